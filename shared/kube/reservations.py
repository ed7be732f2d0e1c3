"""Reservation objects (``conclave.io/v1alpha1``) and their reserve pods. Pure.

    Reservation --what a pod of that template would be--> Pod with ``reserves``: pending, on its node, or finished

So a Reservation is queued, offered, judged, planned and bound as a pod is, and holds its node as one. A field that
cannot be used never loses the object: it is told in ``Pod.invalid``, with the remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import field
from msgspec.structs import replace

from shared.errors import ObjectError
from shared.kube import objects as api
from shared.kube.objects import Json, ObjectMeta
from shared.kube.pods.convert import pod_from_api
from shared.kube.pods.convert_relations import selector_from_api
from shared.kube.resources import Resource
from shared.kube.spec_reader import SpecReader, field_at
from shared.model.constraints import PodClass
from shared.model.pod import DEVICES_ANNOTATION, Pod
from shared.model.units.queue import QUEUE_LABEL
from shared.model.units.reservation import (
    KEEPS_ROOM_LABEL,
    NEVER_EXPIRES,
    Reservation,
    ReservationOwner,
    ReservationPhase,
    reserve_name,
)

DEFAULT_TTL_S = 3600
MOST_TTL_S = 31_536_000
MOST_OWNERS = 32
CONDITION = "Ready"


class ReservationObject(Json, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: Any = None
    status: Any = None


RESERVATIONS = Resource("Reservation", "conclave.io", "v1alpha1", "reservations", True, ReservationObject)


class _Shape(Json, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: api.PodSpec = field(default_factory=api.PodSpec)


def reserve_pod_from_api(item: ReservationObject) -> Pod:
    """The reserve pod, in no pod group, whatever its template says. It is on a node while the Reservation is Available,
    and finished once that is over. A template that names no scheduler leaves it to any of ours (``in_name_of``)."""
    meta, spec, read = item.metadata, item.spec if isinstance(item.spec, Mapping) else {}, SpecReader()
    status = item.status if isinstance(item.status, Mapping) else {}
    terms = _terms(meta, spec, status, read)
    template = _template(read, spec)
    nodes = _node_terms(read, spec)
    told = [api.PodCondition("PodScheduled", "False", terms.reason, terms.message)] if terms.reason else None
    stands = terms.phase is ReservationPhase.AVAILABLE
    labels = {} if stands else _labels(template)
    devices = str(status.get("devices") or "")
    reserve = api.KubePod(
        metadata=ObjectMeta(
            name=reserve_name(meta.name), namespace=meta.namespace, uid=meta.uid,
            resource_version=meta.resource_version, labels=labels,
            annotations={**_annotations(template), **({DEVICES_ANNOTATION: devices} if devices else {})},
            creation_timestamp=meta.creation_timestamp,
            deletion_timestamp=None if stands else meta.deletion_timestamp,
        ),
        spec=_spec(template.spec, nodes, read.whole("priority", spec.get("priority"), -(10**9), 10**9, 0)),
        status=api.PodStatus(phase="Failed" if terms.phase.over else "Pending", conditions=told),
    )  # fmt: skip
    if stands or terms.phase.over:
        node = str(status.get("node") or "")
        reserve = replace(reserve, spec=replace(reserve.spec, node_name=node or None))
    pod = replace(pod_from_api(reserve), images=(), workload="", ends=False, group="")
    if KEEPS_ROOM_LABEL in (meta.labels or {}) and nodes is not None and nodes.match_fields and not stands:
        names = nodes.match_fields[0].values or []
        pod = replace(pod, nominated_node=names[0] if len(names) == 1 else "")
    invalid = pod.invalid or "; ".join(read.problems)
    if invalid and not pod.node_name and not pod.finished:
        return replace(pod, reserves=terms, takes=meta.uid, invalid=invalid, pod_class=PodClass())
    return replace(pod, reserves=terms, takes=meta.uid, invalid="", never_preempts=True)


def _terms(meta: ObjectMeta, spec: Mapping[str, Any], status: Mapping[str, Any], read: SpecReader) -> Reservation:
    created = seconds_since_1970(meta.creation_timestamp)
    condition = next(
        (c for c in status.get("conditions") or () if isinstance(c, Mapping) and c.get("type") == CONDITION), {}
    )
    owners = [one for one in found if isinstance(one, Mapping)] if isinstance(
        found := status.get("currentOwners"), list
    ) else []  # fmt: skip
    once = spec.get("allocateOnce")
    once = True if once is None else read.flag("allocateOnce", once)
    return Reservation(
        name=meta.name,
        phase=_phase(status.get("phase"), node=bool(status.get("node"))),
        once=once,
        owners=_owners(read, spec),
        namespaces=_names(read, "namespaces", spec.get("namespaces")) or (meta.namespace or "",),
        expires=_expires(read, spec, created),
        created=created,
        ended=seconds_since_1970(str(status.get("endedAt") or "")),
        reason=str(condition.get("reason") or ""),
        message=str(condition.get("message") or ""),
        taken_by=tuple(str(one.get("name")) for one in owners),
        taker=str(owners[0].get("uid") or "") if once and owners else "",
        observed=_whole(status.get("observedGeneration")),
        generation=meta.generation or 0,
    )


def _phase(value: Any, *, node: bool) -> ReservationPhase:
    try:
        phase = ReservationPhase(value or "Pending")
    except ValueError:
        return ReservationPhase.PENDING
    return ReservationPhase.PENDING if phase is ReservationPhase.AVAILABLE and not node else phase


def _expires(read: SpecReader, spec: Mapping[str, Any], created: float) -> float:
    ttl, until = spec.get("ttlSeconds"), spec.get("expirationTime")
    if ttl is not None and until is not None:
        read.refuse("expirationTime", until, "is given beside spec.ttlSeconds; keep one of the two")
    if until is not None:
        found = seconds_since_1970(until if isinstance(until, str) else "")
        if not found:
            read.refuse("expirationTime", until, "is no time; write one such as 2026-12-01T08:00:00Z")
            return created + DEFAULT_TTL_S
        if created and found <= created:
            read.refuse("expirationTime", until, "was over when it was made; give a later one")
        return found
    seconds = read.whole("ttlSeconds", ttl, 1, MOST_TTL_S, DEFAULT_TTL_S)
    return created + seconds if created else NEVER_EXPIRES


def _owners(read: SpecReader, spec: Mapping[str, Any]) -> tuple[ReservationOwner, ...]:
    found: list[ReservationOwner] = []
    given = read.listed("owners", spec.get("owners"))
    if not given:
        read.refuse("owners", given, "names nobody; say whose pods may use it: controller, selector or pod")
    if len(given) > MOST_OWNERS:
        read.refuse("owners", len(given), f"are too many; at most {MOST_OWNERS}")
    for at, item in enumerate(given[:MOST_OWNERS]):
        name, one = f"owners[{at}]", read.object(f"owners[{at}]", item)
        controller = read.object(f"{name}.controller", one.get("controller"))
        owner = ReservationOwner(
            kind=read.printable(f"{name}.controller.kind", controller.get("kind")),
            name=read.printable(f"{name}.controller.name", controller.get("name")),
            labels=_selector(read, f"{name}.selector", one.get("selector")),
            pod=read.printable(f"{name}.pod", one.get("pod")),
        )
        if bool(owner.kind) != bool(owner.name):
            read.refuse(f"{name}.controller", controller, "must have kind and name")
        elif owner == ReservationOwner():
            read.refuse(name, item, "names nobody; give controller, selector or pod")
        else:
            found.append(owner)
    return tuple(found)


def _selector(read: SpecReader, name: str, value: Any) -> Any:
    if value is None:
        return None
    try:
        selector = selector_from_api(msgspec.convert(value, api.KubeLabelSelector), f"spec.{name}")
    except (msgspec.ValidationError, ObjectError) as error:
        read.problems.append(f"spec.{name}: {error}; write matchLabels or matchExpressions")
        return None
    if selector is not None and not selector.requirements:
        read.refuse(name, value, "selects every pod; name at least one label")
        return None
    return selector


def _template(read: SpecReader, spec: Mapping[str, Any]) -> _Shape:
    amounts, template = spec.get("resources"), spec.get("template")
    if (amounts is None) == (template is None):
        read.refuse("template", None, "or spec.resources: give one of the two, what is to be kept room for")
        return _Shape()
    try:
        if template is not None:
            return msgspec.convert(template, _Shape)
        needs = api.ResourceRequirements(requests=msgspec.convert(amounts, api.Quantities))
    except msgspec.ValidationError as error:
        read.problems.append(f"spec.{'template' if template is not None else 'resources'}: {error}")
        return _Shape()
    if not needs.requests:
        read.refuse("resources", amounts, "is empty; write amounts, such as {cpu: 2, memory: 4Gi}")
    return _Shape(spec=api.PodSpec(containers=[api.Container("room", resources=needs)]))


def _labels(template: _Shape) -> dict[str, str]:
    """Of a pod that is to be placed; in no queue, whose quota the pod itself is to count against."""
    return {key: value for key, value in (template.metadata.labels or {}).items() if key != QUEUE_LABEL}


def _annotations(template: _Shape) -> dict[str, str]:
    """Latency limits, say; nothing that tells what a pod was given."""
    return {key: value for key, value in (template.metadata.annotations or {}).items() if key != DEVICES_ANNOTATION}


def _spec(spec: api.PodSpec, nodes: api.NodeSelectorTerm | None, priority: int) -> api.PodSpec:
    """What decides where it may stand. Claims and volumes are the pod's own, and not kept."""
    affinity = spec.affinity
    if nodes is not None:
        required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
        terms = [_both(term, nodes) for term in (required.node_selector_terms or [] if required else [])] or [nodes]
        node_affinity = replace(
            (affinity.node_affinity if affinity else None) or api.KubeNodeAffinity(),
            required=api.NodeSelector(node_selector_terms=terms),
        )
        affinity = replace(affinity or api.Affinity(), node_affinity=node_affinity)
    return replace(
        spec, node_name=None, priority=priority, affinity=affinity,
        volumes=None, resource_claims=None, scheduling_gates=None, scheduling_group=None, preemption_policy="Never",
    )  # fmt: skip


def _both(term: api.NodeSelectorTerm, more: api.NodeSelectorTerm) -> api.NodeSelectorTerm:
    return api.NodeSelectorTerm(
        [*(term.match_expressions or ()), *(more.match_expressions or ())] or None,
        [*(term.match_fields or ()), *(more.match_fields or ())] or None,
    )


def _node_terms(read: SpecReader, spec: Mapping[str, Any]) -> api.NodeSelectorTerm | None:
    _, names = field_at(spec, "nodes.names")
    _, selector = field_at(spec, "nodes.selector")
    one_of = _names(read, "nodes.names", names)
    chosen = _selector(read, "nodes.selector", selector)
    fields = [api.NodeSelectorRequirement("metadata.name", "In", list(one_of))] if one_of else None
    expressions = [
        api.NodeSelectorRequirement(one.key, one.operator, list(one.values) or None)
        for one in (chosen.requirements if chosen is not None else ())
    ]
    if not fields and not expressions:
        return None
    return api.NodeSelectorTerm(expressions or None, fields)


def _names(read: SpecReader, name: str, value: Any) -> tuple[str, ...]:
    given = read.listed(name, value)
    if all(isinstance(one, str) and one for one in given):
        return tuple(dict.fromkeys(given))
    read.refuse(name, value, "must be a list of names")
    return ()


def seconds_since_1970(text: str | None) -> float:
    """Of an RFC 3339 time; 0 where it is none."""
    try:
        at = datetime.fromisoformat(text or "")
    except ValueError:
        return 0.0
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
