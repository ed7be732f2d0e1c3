"""The QoS class that a pod claims, in any of four vocabularies, as one. Read only: nothing is written back. Pure.

    label       koordinator.sh/qosClass           LSE | LSR | LS | BE | SYSTEM
    annotation  katalyst.kubewharf.io/qos_level   dedicated_cores | shared_cores | reclaimed_cores | system_cores
    annotation  volcano.sh/qos-level              LC | HLS | LS | BE
    either      conclave.io/qos                   exclusive | online | offline | system

What it requests decides before what it claims: a pod that requests lent resources is offline, for it holds room that
has to be given back. Of claims that contradict each other the most protected counts (``PROTECTION``); one that no
vocabulary knows counts as online. Each contradiction is named in one line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from shared.kube.objects import ObjectMeta
from shared.model.qos import PROTECTION, Qos, is_lent

QOS_KEY = "conclave.io/qos"
_OURS = {qos.value: qos for qos in Qos}
VOCABULARIES: tuple[tuple[str, str, Mapping[str, Qos]], ...] = (
    (
        "label",
        "koordinator.sh/qosClass",
        {
            "LSE": Qos.EXCLUSIVE,
            "LSR": Qos.ONLINE,  # its CPUs are its own, but what it leaves of them is lent
            "LS": Qos.ONLINE,
            "BE": Qos.OFFLINE,
            "SYSTEM": Qos.SYSTEM,
        },
    ),
    (
        "annotation",
        "katalyst.kubewharf.io/qos_level",
        {
            "dedicated_cores": Qos.EXCLUSIVE,
            "shared_cores": Qos.ONLINE,
            "reclaimed_cores": Qos.OFFLINE,
            "system_cores": Qos.SYSTEM,
        },
    ),
    (
        "annotation",
        "volcano.sh/qos-level",
        {"LC": Qos.EXCLUSIVE, "HLS": Qos.ONLINE, "LS": Qos.ONLINE, "BE": Qos.OFFLINE},
    ),
    ("label", QOS_KEY, _OURS),
    ("annotation", QOS_KEY, _OURS),
)


LABELS, ANNOTATIONS = (
    frozenset(key for where, key, _ in VOCABULARIES if where == kind) for kind in ("label", "annotation")
)


def qos_of(meta: ObjectMeta, requests: tuple[tuple[str, int], ...]) -> tuple[Qos, str]:
    """(class, what is contradictory about it or ""). ``requests``: (resource, amount) of what the pod requests."""
    lent = _lent_among(requests)
    said = not (LABELS.isdisjoint(meta.labels or ()) and ANNOTATIONS.isdisjoint(meta.annotations or ()))
    if not (lent or said):
        return Qos.ONLINE, ""  # as nearly all are
    claims: list[tuple[Qos, str]] = []
    unknown = ""
    for where, key, text, known in _said(meta):
        qos = known.get(text)
        if qos is None:
            qos, unknown = Qos.ONLINE, f"{where} {key}: {text[:64]!r} is none of {', '.join(known)}"
        claims.append((qos, f"{where} {key}: {text[:64]}"))
    if lent:
        other = next((told for qos, told in claims if qos is not Qos.OFFLINE), "")
        doubt = f"it requests {lent}, which is lent, and has the {other}; it counts as offline; remove one of them"
        return Qos.OFFLINE, doubt if other else ""
    if not claims:
        return Qos.ONLINE, ""
    qos = max((qos for qos, _ in claims), key=PROTECTION.__getitem__)
    if len({qos for qos, _ in claims}) > 1:
        told = " and ".join(f"the {told}" for _, told in claims)
        return qos, f"it has {told}, which contradict each other; it counts as {qos}; keep one of them"
    return qos, f"{unknown}; it counts as {qos}; correct or remove it" if unknown else ""


@lru_cache(maxsize=4096)
def _lent_among(requests: tuple[tuple[str, int], ...]) -> str:
    """The first lent resource that is requested; "" where none is. Pods of one template share the answer."""
    return next((name for name, _ in requests if is_lent(name)), "")


def _said(meta: ObjectMeta) -> Iterator[tuple[str, str, str, Mapping[str, Qos]]]:
    labels, annotations = meta.labels, meta.annotations
    if not labels and not annotations:
        return
    for where, key, known in VOCABULARIES:
        text = ((labels if where == "label" else annotations) or {}).get(key)
        if text is not None:
            yield where, key, text, known
