"""Which pods are offline, and which resources are lent, as the audit reads objects. It shares no code with the mesh."""

from __future__ import annotations

from collections.abc import Iterable

from lab.audit.rules import Json

NAMES = ("batch-cpu", "batch-memory")
KATALYST_NAMES = (
    "resource.katalyst.kubewharf.io/reclaimed_millicpu", "resource.katalyst.kubewharf.io/reclaimed_memory",
)  # fmt: skip
LABELS = {"koordinator.sh/qosClass": "BE", "conclave.io/qos": "offline"}
ANNOTATIONS = {
    "katalyst.kubewharf.io/qos_level": "reclaimed_cores", "volcano.sh/qos-level": "BE", "conclave.io/qos": "offline",
}  # fmt: skip


def is_lent(resource: str) -> bool:
    """By the last part of its name, whose domain is the lender's; of Katalyst by all of it."""
    return ("/" in resource and resource.rpartition("/")[2] in NAMES) or resource in KATALYST_NAMES


def is_offline(meta: Json, requests: Iterable[tuple[str, int]]) -> bool:
    """What its request says, else all of its marks."""
    if any(is_lent(name) for name, _ in requests):
        return True
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    said = [labels[key] == value for key, value in LABELS.items() if key in labels]
    said += [annotations[key] == value for key, value in ANNOTATIONS.items() if key in annotations]
    return bool(said) and all(said)
