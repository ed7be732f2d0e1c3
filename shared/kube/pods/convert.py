"""From Kubernetes JSON structs to the model. Pure; a bad field spoils its object only (``ObjectError``)."""

from __future__ import annotations

import functools
import sys
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from shared.errors import ObjectError
from shared.kube import objects as api
from shared.kube.nodes.katalyst import (
    DEDICATED_CORES,
    ENHANCEMENT_ANNOTATION,
    MAIN_ANNOTATION,
    QOS_ANNOTATION,
    dedicated_of,
)
from shared.kube.nodes.node_topology import needs_of
from shared.kube.pod_groups import group_of
from shared.kube.pods.convert_asks import device_pod_from_api, extended_asks, extended_claim
from shared.kube.pods.convert_demands import (
    NO_LATENCY,
    declared_features,
    foreign_share,
    latency_demands,
    needed_features,
    node_latency,
)
from shared.kube.pods.convert_relations import images_of, relations_of
from shared.kube.pods.convert_requests import (
    amount_of,
    check_gpu,
    effective_requests,
    resize_infeasible,
    score_requests,
)
from shared.kube.pods.offline_terms import offline_terms_of
from shared.kube.pods.qos import qos_of
from shared.model.constraints import (
    CLASS_LABEL_PREFIX,
    HostPort,
    PodClass,
    PreferredTerm,
    Requirement,
    SelectorTerm,
    Taint,
    Toleration,
)
from shared.model.devices import ContainerAsk
from shared.model.node import (
    CONDITIONS,
    HELD_TAINT,
    MESSAGE_CHARS,
    NOT_REMOVED,
    OUR_ANNOTATIONS,
    UNKNOWN_LATENCY,
    Condition,
    Node,
)
from shared.model.node_topology import TopologyRefusal
from shared.model.pod import (
    DEVICES_ANNOTATION,
    LATENCY_HARD_ANNOTATION,
    LATENCY_LIMIT_ANNOTATION,
    LATENCY_SOFT_ANNOTATION,
    LATENCY_TARGET_ANNOTATION,
    PREEMPTIBLE_ANNOTATION,
    Pod,
)
from shared.model.qos import Qos
from shared.model.resources import CPU, GPU_MILLI, MEMORY, Resources
from shared.model.terms.relations import Relations
from shared.model.units.reservation import KEEP_ROOM_ANNOTATION, RESERVATION_ANNOTATION, RESERVED_ANNOTATIONS
from shared.model.workload_key import workload_key

PREEMPTED_REASON = "PreemptionByScheduler"
"""Reason of the DisruptionTarget condition that a preempting scheduler sets (``core/v1`` types)."""

REFUSALS = frozenset(TopologyRefusal)

KEPT_RUNNING = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet"})
"""Controllers whose pods do not end by themselves."""


def pod_from_api(pod: api.KubePod) -> Pod:
    """The model of ``pod``; a field that cannot be used is named in ``Pod.invalid`` and the class left empty.

    What many pods have alike they share: of 100,000 that a mirror keeps, strings and labels of their own are 50 MB."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    template, annotations, labels = _template_of(pod), meta.annotations or {}, meta.labels or {}
    pod_class, images, extended, invalid = template
    relations: Relations | None = None
    devices: tuple[int, ...] = ()
    if not invalid:
        try:
            relations = relations_of(pod)
            devices = _devices(annotations.get(DEVICES_ANNOTATION, ""))
        except ObjectError as error:
            pod_class, invalid = PodClass(), str(error)
    condition, preempted, why_preempted = ("", "", ""), False, ""
    for item in status.conditions or ():
        if item.type == "PodScheduled":
            condition = (item.status, item.reason or "", item.message or "")
        elif item.type == "DisruptionTarget":
            preempted = item.status == "True" and item.reason == PREEMPTED_REASON
            why_preempted = (item.message or "") if preempted else ""
    pending, owner = not spec.node_name, owner_of(meta)
    workload = workload_key(meta.namespace or "", owner=owner, labels=labels, images=images)
    asks = None
    if spec.resource_claims and not invalid:
        try:
            asks = device_pod_from_api(pod)
        except ObjectError as error:
            pod_class, invalid = PodClass(), str(error)
    qos, doubt = qos_of(meta, pod_class.requests)
    found = Pod(
        uid=meta.uid,
        namespace=sys.intern(meta.namespace or ""),
        name=meta.name,
        resource_version=meta.resource_version,
        pod_class=pod_class,
        scheduler_name=sys.intern(spec.scheduler_name or ""),
        node_name=sys.intern(spec.node_name or ""),
        phase=sys.intern(status.phase or ""),
        priority=spec.priority or 0,
        terminating=meta.deletion_timestamp is not None,
        gates=tuple(gate.name for gate in spec.scheduling_gates) if spec.scheduling_gates else (),
        created=meta.creation_timestamp or "",
        condition=condition,
        devices=devices,
        nominated_node=status.nominated_node_name or "",
        invalid=invalid,
        labels=_one_of_labels(tuple(labels.items())),
        relations=relations,
        start_time=status.start_time or "",
        images=images if pending else (),
        owner=owner if pending else ("", "", ""),
        never_preempts=spec.preemption_policy == "Never",
        preempted=preempted,
        preemptible=annotations.get(PREEMPTIBLE_ANNOTATION) != "false",
        workload=sys.intern(workload),
        unsupported=foreign_share(annotations) if pending else "",
        group=group_of(pod, owner),
        ends=owner[1] not in KEPT_RUNNING,
        asks=asks,
        refused=status.reason if status.reason in REFUSALS else "",
        qos=qos,
        qos_doubt=doubt,
        offline=offline_terms_of(meta, owner, why_preempted) if qos is Qos.OFFLINE else None,
    )
    if annotations and (RESERVATION_ANNOTATION in annotations or KEEP_ROOM_ANNOTATION in annotations):
        found = replace(
            found, owner=owner, takes="" if pending else annotations.get(RESERVATION_ANNOTATION, ""),
            keep_room_s=_whole_seconds(annotations.get(KEEP_ROOM_ANNOTATION, "")),
        )  # fmt: skip
    return replace(found, extended=extended, extended_claim=extended_claim(status)) if extended else found


MOST_KEPT_S = 3600
MOST_DIGITS = 6
"""Of a number of seconds: ``int`` refuses some thousands by an error of its own."""


def _whole_seconds(text: str) -> int:
    """At most an hour; 0, as if nothing was said, for what is no number of seconds."""
    text = text.removesuffix("s")
    return min(int(text), MOST_KEPT_S) if len(text) <= MOST_DIGITS and text.isdecimal() else 0


def controller_of(meta: api.ObjectMeta) -> api.OwnerReference | None:
    """The owner that controls the object; None: none does."""
    return next((owner for owner in meta.owner_references or () if owner.controller), None)


def owner_of(meta: api.ObjectMeta) -> tuple[str, str, str]:
    """(apiVersion, kind, name) of the owner that controls the object; empty when none does."""
    for owner in meta.owner_references or ():
        if owner.controller:
            return owner.api_version, owner.kind, owner.name
    return "", "", ""


def node_from_api(node: api.KubeNode) -> Node:
    """The model of ``node``; an unparsable field is named in ``Node.invalid`` and counts as 0 or unknown."""
    meta, invalid = node.metadata, ""
    allocatable = Resources()
    for name, quantity in (node.status.allocatable or {}).items():
        try:
            allocatable[name] = amount_of(f"status.allocatable[{name}]", name, quantity)
        except ObjectError as error:
            invalid = str(error)
    try:
        latency_us = node_latency(meta)
    except ObjectError as error:
        latency_us, invalid = UNKNOWN_LATENCY, str(error)
    ready = any(item.type == "Ready" and item.status == "True" for item in node.status.conditions or ())
    taints = node.spec.taints or ()
    return Node(
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        labels=meta.labels or {},
        taints=tuple(Taint(t.key, t.value or "", t.effect) for t in taints if t.key != HELD_TAINT),
        unschedulable=bool(node.spec.unschedulable),
        allocatable=allocatable,
        ready=ready,
        deleting=meta.deletion_timestamp is not None,
        invalid=invalid,
        latency_us=latency_us,
        conditions=_not_as_it_should_be(node),
        features=declared_features(node.status),
        held=any(taint.key == HELD_TAINT for taint in taints),
        marked=OUR_ANNOTATIONS in (meta.annotations or {}),
        capacity=_capacity(node.status),
        reserved=_reserved(meta.annotations) if meta.annotations else (False, False),
    )


def _reserved(annotations: dict[str, str]) -> tuple[bool, bool]:
    return RESERVED_ANNOTATIONS in annotations, all(key in annotations for key in NOT_REMOVED)


def _capacity(status: api.NodeStatus) -> tuple[int, int]:
    """Cpu and memory; one that cannot be read is not told, and spoils nothing: nobody places by it."""
    found = []
    for name in (CPU, MEMORY):
        try:
            found.append(amount_of("", name, (status.capacity or {}).get(name, 0)))
        except ObjectError:
            found.append(0)
    return found[0], found[1]


def _not_as_it_should_be(node: api.KubeNode) -> tuple[Condition, ...]:
    return tuple(
        Condition(
            item.type, item.status, (item.reason or "")[:MESSAGE_CHARS], (item.message or "")[:MESSAGE_CHARS],
            item.last_transition_time or "",
        )
        for item in node.status.conditions or ()
        if item.status != CONDITIONS.get(item.type, item.status)
    )  # fmt: skip


MOST_TEMPLATES = 4096
"""Templates that are remembered, the newest; a cluster has hundreds. A forgotten one costs a conversion."""


class _Template(NamedTuple):
    """What copies of a pod share. ``extended``: as of the pod; ``invalid``: why the class is empty."""

    pod_class: PodClass
    images: tuple[str, ...]
    extended: tuple[ContainerAsk, ...]
    invalid: str


_encode = msgspec.msgpack.Encoder().encode
_templates: dict[bytes, _Template] = {}


def _template_of(pod: api.KubePod) -> _Template:
    """Worked out once for all pods that give it the same to read."""
    spec, status, affinity = pod.spec, pod.status, pod.spec.affinity
    annotations = pod.metadata.annotations or {}
    read = _encode(
        (
            spec.containers, spec.init_containers, spec.resources, spec.overhead, spec.node_selector, spec.tolerations,
            affinity.node_affinity if affinity is not None else None, spec.host_network, spec.host_users,
            bool(spec.node_name), annotations.get(LATENCY_SOFT_ANNOTATION), annotations.get(LATENCY_HARD_ANNOTATION),
            annotations.get(LATENCY_TARGET_ANNOTATION), annotations.get(LATENCY_LIMIT_ANNOTATION),
            _class_labels(pod.metadata),
            status.container_statuses, status.init_container_statuses, status.resources, status.allocated_resources,
            resize_infeasible(status),
            bool(spec.resource_claims),
            _dedicated(annotations) if annotations and annotations.get(QOS_ANNOTATION) == DEDICATED_CORES else None,
        )
    )  # fmt: skip
    found = _templates.get(read)
    if found is None:
        pod_class, invalid = PodClass(), ""
        extended: tuple[ContainerAsk, ...] = ()
        try:
            pod_class = _one_of(pod_class_of(pod))
            extended = extended_asks(spec)
        except ObjectError as error:
            invalid = str(error)
        found = _Template(pod_class, images_of(spec), extended, invalid)
        if len(_templates) >= MOST_TEMPLATES:
            del _templates[next(iter(_templates))]
        _templates[read] = found
    return found


def _dedicated(annotations: dict[str, str]) -> tuple[str, str]:
    return annotations.get(ENHANCEMENT_ANNOTATION, ""), annotations.get(MAIN_ANNOTATION, "")


@functools.lru_cache(maxsize=MOST_TEMPLATES)
def _one_of(pod_class: PodClass) -> PodClass:
    """The first of equal classes, so that thousands of copies of a pod keep one between them and its hash is known.

    As many as templates: a class that a remembered template has is never forgotten here before it is there.
    """
    return pod_class


@functools.lru_cache(maxsize=MOST_TEMPLATES)
def _one_of_labels(labels: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """One between all copies of a pod; nobody changes it."""
    return dict(labels)


def pod_class_of(pod: api.KubePod, *, incoming: bool = False) -> PodClass:
    """What the pod asks of a node. Raises ``ObjectError`` naming the field.

    ``incoming``: the pod is to be placed even if it names a node already (what-if questions); otherwise a named
    node means that it is bound there, and the class leaves the name out so that bound pods share it.
    """
    spec = pod.spec
    requests = effective_requests(pod)
    check_gpu(requests.get(GPU_MILLI, 0))
    cpu, memory = score_requests(pod, requests, bound=bool(spec.node_name) and not incoming)
    required, preferred = node_affinity_of(spec.affinity.node_affinity if spec.affinity is not None else None)
    try:
        soft_us, hard_us, target, strict = latency_demands(pod.metadata)
    except ObjectError:
        if not spec.node_name or incoming:
            raise
        soft_us, hard_us, target, strict = NO_LATENCY  # it is there: what it holds counts, whatever it says by now
    dedicated = dedicated_of(pod.metadata, spec)
    return PodClass(
        requests=tuple(sorted((name, amount) for name, amount in requests.items() if amount > 0)),
        score_cpu_millis=cpu,
        score_memory_bytes=memory,
        node_name=(spec.node_name or "") if incoming else "",
        node_selector=tuple(sorted((spec.node_selector or {}).items())),
        affinity_terms=required,
        preferred_terms=preferred,
        tolerations=tuple(
            Toleration(t.key or "", t.operator or "Equal", t.value or "", t.effect or "")
            for t in spec.tolerations or ()
        ),
        host_ports=_host_ports(spec),
        latency_soft_us=soft_us,
        latency_hard_us=hard_us,
        features=needed_features(spec),
        latency_target=target,
        labels=_class_labels(pod.metadata),
        needs=needs_of(spec, dedicated),
        latency_strict=strict,
    )


def _class_labels(meta: api.ObjectMeta) -> tuple[tuple[str, str], ...]:
    """The labels by which policies tell pods apart; nearly no pod has one, and each is looked at."""
    labels = meta.labels
    if not labels or CLASS_LABEL_PREFIX not in " ".join(labels):
        return ()
    return tuple(sorted(item for item in labels.items() if item[0].startswith(CLASS_LABEL_PREFIX)))


def _term(term: api.NodeSelectorTerm | None) -> SelectorTerm:
    if term is None:
        return SelectorTerm()
    return SelectorTerm(requirements_of(term.match_expressions), requirements_of(term.match_fields))


def requirements_of(items: list[api.NodeSelectorRequirement] | None) -> tuple[Requirement, ...]:
    """Expressions of a node selector term, of a pod's or of a volume's."""
    return tuple(Requirement(r.key, r.operator, tuple(r.values or ())) for r in items or ())


def node_affinity_of(
    node: api.KubeNodeAffinity | None,
) -> tuple[tuple[SelectorTerm, ...] | None, tuple[PreferredTerm, ...]]:
    """Required terms, None for no requirement, and preferred ones."""
    if node is None:
        return None, ()
    required = None
    if node.required is not None:
        required = tuple(_term(term) for term in node.required.node_selector_terms or ())
    preferred = tuple(PreferredTerm(p.weight, _term(p.preference)) for p in node.preferred or () if p.weight)
    return required, preferred


def _host_ports(spec: api.PodSpec) -> tuple[HostPort, ...]:
    """Host ports of containers and sidecars, sorted (a host-network pod has its container ports copied by the API)."""
    ports = set()
    sidecars = [c for c in spec.init_containers or () if c.restart_policy == "Always"]
    for container in (*(spec.containers or ()), *sidecars):
        for port in container.ports or ():
            if port.host_port:
                ports.add(HostPort(port.protocol or "TCP", port.host_ip or "0.0.0.0", port.host_port))  # noqa: S104
    return tuple(sorted(ports, key=lambda p: (p.protocol, p.ip, p.port)))


def _devices(text: str) -> tuple[int, ...]:
    if not text:
        return ()
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ObjectError(
            f"{text[:64]!r} does not name devices as comma-separated indices",
            field=f"metadata.annotations[{DEVICES_ANNOTATION}]",
        ) from None
