"""From Kubernetes JSON structs to the model. Pure; a bad field spoils its object only (``ObjectError``).

Requests follow kube-scheduler 1.36 (``component-helpers/resource``): containers plus sidecars, or the largest init
step if greater; then pod-level requests replace what they name; then overhead is added. A container whose status
carries resources counts the greater of spec and status while a resize is under way.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from shared.errors import ObjectError
from shared.kube import objects as api
from shared.kube.convert_demands import (
    declared_features,
    latency_limits,
    latency_target,
    needed_features,
    node_latency,
    unsupported_fields,
)
from shared.kube.convert_relations import images_of, relations_of
from shared.kube.pod_groups import group_of
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
from shared.model.node import CONDITIONS, MESSAGE_CHARS, UNKNOWN_LATENCY, Condition, Node
from shared.model.pod import (
    DEVICES_ANNOTATION,
    LATENCY_HARD_ANNOTATION,
    LATENCY_SOFT_ANNOTATION,
    LATENCY_TARGET_ANNOTATION,
    PREEMPTIBLE_ANNOTATION,
    Pod,
)
from shared.model.relations import Relations
from shared.model.resources import CPU, GPU_MILLI, MEMORY, MILLI_PER_DEVICE, Resources, parse_amount
from shared.model.workload_key import workload_key

DEFAULT_CPU_MILLIS = 100
DEFAULT_MEMORY_BYTES = 200 * 1024 * 1024
"""What scoring counts for a container without a request (kube-scheduler ``util/pod_resources.go``)."""

PREEMPTED_REASON = "PreemptionByScheduler"
"""Reason of the DisruptionTarget condition that a preempting scheduler sets (``core/v1`` types)."""

KEPT_RUNNING = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet"})
"""Controllers whose pods do not end by themselves."""

POD_LEVEL_RESOURCES = ("cpu", "memory", "hugepages-")


def pod_from_api(pod: api.Pod) -> Pod:
    """The model of ``pod``; a field that cannot be used is named in ``Pod.invalid`` and the class left empty."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    template, annotations, labels = _template_of(pod), meta.annotations or {}, meta.labels or {}
    pod_class, images, unsupported, invalid = template
    relations: Relations | None = None
    devices: tuple[int, ...] = ()
    if not invalid:
        try:
            relations = relations_of(pod)
            devices = _devices(annotations.get(DEVICES_ANNOTATION, ""))
        except ObjectError as error:
            pod_class, invalid = PodClass(), str(error)
    condition, preempted = ("", "", ""), False
    for item in status.conditions or ():
        if item.type == "PodScheduled":
            condition = (item.status, item.reason or "", item.message or "")
        elif item.type == "DisruptionTarget":
            preempted = item.status == "True" and item.reason == PREEMPTED_REASON
    pending, owner = not spec.node_name, owner_of(meta)
    workload = workload_key(meta.namespace or "", owner=owner, labels=labels, images=images)
    return Pod(
        uid=meta.uid,
        namespace=meta.namespace or "",
        name=meta.name,
        resource_version=meta.resource_version,
        pod_class=pod_class,
        scheduler_name=spec.scheduler_name or "",
        node_name=spec.node_name or "",
        phase=status.phase or "",
        priority=spec.priority or 0,
        terminating=meta.deletion_timestamp is not None,
        gates=tuple(gate.name for gate in spec.scheduling_gates) if spec.scheduling_gates else (),
        created=meta.creation_timestamp or "",
        condition=condition,
        devices=devices,
        nominated_node=status.nominated_node_name or "",
        invalid=invalid,
        labels=labels,
        relations=relations,
        start_time=status.start_time or "",
        images=images if pending else (),
        owner=owner if pending else ("", "", ""),
        never_preempts=spec.preemption_policy == "Never",
        preempted=preempted,
        preemptible=annotations.get(PREEMPTIBLE_ANNOTATION) != "false",
        workload=sys.intern(workload),  # copies share one string
        unsupported=unsupported if pending else "",
        group=group_of(pod, owner),
        ends=owner[1] not in KEPT_RUNNING,
    )


def owner_of(meta: api.ObjectMeta) -> tuple[str, str, str]:
    """(apiVersion, kind, name) of the owner that controls the object; empty when none does."""
    for owner in meta.owner_references or ():
        if owner.controller:
            return owner.api_version, owner.kind, owner.name
    return "", "", ""


def node_from_api(node: api.Node) -> Node:
    """The model of ``node``; an unparsable field is named in ``Node.invalid`` and counts as 0 or unknown."""
    meta, invalid = node.metadata, ""
    allocatable = Resources()
    for name, quantity in (node.status.allocatable or {}).items():
        try:
            allocatable[name] = _amount(f"status.allocatable[{name}]", name, quantity)
        except ObjectError as error:
            invalid = str(error)
    try:
        latency_us = node_latency(meta)
    except ObjectError as error:
        latency_us, invalid = UNKNOWN_LATENCY, str(error)
    ready = any(item.type == "Ready" and item.status == "True" for item in node.status.conditions or ())
    return Node(
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        labels=meta.labels or {},
        taints=tuple(Taint(t.key, t.value or "", t.effect) for t in node.spec.taints or ()),
        unschedulable=bool(node.spec.unschedulable),
        allocatable=allocatable,
        ready=ready,
        deleting=meta.deletion_timestamp is not None,
        invalid=invalid,
        latency_us=latency_us,
        conditions=_not_as_it_should_be(node),
        features=declared_features(node.status),
    )


def _not_as_it_should_be(node: api.Node) -> tuple[Condition, ...]:
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
    """What copies of a pod share. ``invalid``: why the class is empty."""

    pod_class: PodClass
    images: tuple[str, ...]
    unsupported: str
    invalid: str


_encode = msgspec.msgpack.Encoder().encode
_templates: dict[bytes, _Template] = {}


def _template_of(pod: api.Pod) -> _Template:
    """Worked out once for all pods that give it the same to read."""
    spec, status, affinity = pod.spec, pod.status, pod.spec.affinity
    annotations = pod.metadata.annotations or {}
    read = _encode(
        (
            spec.containers, spec.init_containers, spec.resources, spec.overhead, spec.node_selector, spec.tolerations,
            affinity.node_affinity if affinity is not None else None, spec.host_network, spec.host_users,
            bool(spec.node_name), annotations.get(LATENCY_SOFT_ANNOTATION), annotations.get(LATENCY_HARD_ANNOTATION),
            annotations.get(LATENCY_TARGET_ANNOTATION), _class_labels(pod.metadata),
            status.container_statuses, status.init_container_statuses, _infeasible(status), bool(spec.resource_claims),
        )
    )  # fmt: skip
    found = _templates.get(read)
    if found is None:
        pod_class, invalid = PodClass(), ""
        try:
            pod_class = _one_of(pod_class_of(pod))
        except ObjectError as error:
            invalid = str(error)
        found = _Template(pod_class, images_of(spec), unsupported_fields(spec), invalid)
        if len(_templates) >= MOST_TEMPLATES:
            del _templates[next(iter(_templates))]
        _templates[read] = found
    return found


@functools.lru_cache(maxsize=MOST_TEMPLATES)
def _one_of(pod_class: PodClass) -> PodClass:
    """The first of equal classes, so that thousands of copies of a pod keep one between them and its hash is known.

    As many as templates: a class that a remembered template has is never forgotten here before it is there.
    """
    return pod_class


def pod_class_of(pod: api.Pod, *, incoming: bool = False) -> PodClass:
    """What the pod asks of a node. Raises ``ObjectError`` naming the field.

    ``incoming``: the pod is to be placed even if it names a node already (what-if questions); otherwise a named
    node means that it is bound there, and the class leaves the name out so that bound pods share it.
    """
    spec = pod.spec
    requests = effective_requests(pod)
    _check_gpu(requests.get(GPU_MILLI, 0))
    cpu, memory = _score_requests(pod, requests, bound=bool(spec.node_name) and not incoming)
    required, preferred = _node_affinity(spec.affinity)
    soft_us, hard_us = latency_limits(pod.metadata)
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
        latency_target=latency_target(pod.metadata),
        labels=_class_labels(pod.metadata),
    )


def _class_labels(meta: api.ObjectMeta) -> tuple[tuple[str, str], ...]:
    """The labels by which policies tell pods apart; nearly no pod has one, and each is looked at."""
    labels = meta.labels
    if not labels or CLASS_LABEL_PREFIX not in " ".join(labels):
        return ()
    return tuple(sorted(item for item in labels.items() if item[0].startswith(CLASS_LABEL_PREFIX)))


def effective_requests(pod: api.Pod) -> Resources:
    """Amounts per resource that the pod counts on a node. Raises ``ObjectError`` naming the field."""
    spec = pod.spec
    running = {s.name: s for s in (*(pod.status.container_statuses or ()), *(pod.status.init_container_statuses or ()))}
    infeasible = _infeasible(pod.status)
    steps = [
        (c.restart_policy == "Always", _container_requests(c, f"spec.initContainers[{i}]", running, infeasible))
        for i, c in enumerate(spec.init_containers or ())
    ]
    containers = [
        _container_requests(c, f"spec.containers[{i}]", running, infeasible)
        for i, c in enumerate(spec.containers or ())
    ]
    requests = _init_and_main(containers, steps)
    if spec.resources is not None and spec.resources.requests:
        for name, quantity in spec.resources.requests.items():
            if name.startswith(POD_LEVEL_RESOURCES):
                requests[name] = _amount(f"spec.resources.requests[{name}]", name, quantity)
    for name, quantity in (spec.overhead or {}).items():
        requests[name] = requests.get(name, 0) + _amount(f"spec.overhead[{name}]", name, quantity)
    return requests


def _infeasible(status: api.PodStatus) -> bool:
    """Whether the kubelet has said that a resize cannot be."""
    return any(c.type == "PodResizePending" and c.reason == "Infeasible" for c in status.conditions or ())


def _init_and_main(containers: Iterable[Resources], steps: Iterable[tuple[bool, Resources]]) -> Resources:
    """Containers plus sidecars, or the largest init step: its own request plus the sidecars declared before it."""
    main = Resources()
    for amounts in containers:
        _add(main, amounts)
    sidecars, largest = Resources(), Resources()
    for is_sidecar, amounts in steps:
        if is_sidecar:
            _add(sidecars, amounts)
            step = sidecars
        else:
            step = sidecars.plus(amounts)
        largest = largest.at_least(step)
    _add(main, sidecars)
    return main.at_least(largest) if largest else main


def _add(into: Resources, amounts: Resources) -> None:
    for name, amount in amounts.items():
        into[name] = into.get(name, 0) + amount


def _container_requests(
    container: api.Container, where: str, running: dict[str, api.ContainerStatus], infeasible: bool
) -> Resources:
    asked = _amounts(container.resources, where)
    status = running.get(container.name) if running else None
    if status is None or status.resources is None:
        return asked
    actual = _amounts(status.resources, "status.containerStatuses")
    for name, quantity in (status.allocated_resources or {}).items():
        amount = _amount("status.containerStatuses.allocatedResources", name, quantity)
        if amount > actual.get(name, 0):
            actual[name] = amount
    return actual if infeasible else asked.at_least(actual)


def _amounts(resources: api.ResourceRequirements | None, where: str) -> Resources:
    if resources is None or not resources.requests:
        return Resources()
    return Resources(
        (name, _amount(f"{where}.resources.requests[{name}]", name, quantity))
        for name, quantity in resources.requests.items()
    )


def _amount(field: str, name: str, quantity: str | float) -> int:
    try:
        amount = parse_amount(name, quantity)
    except ValueError as error:
        raise ObjectError(str(error), field=field) from error
    if amount < 0:
        raise ObjectError(f"{quantity!r} is negative; give an amount of 0 or more", field=field)
    return amount


def _check_gpu(milli: int) -> None:
    if milli > MILLI_PER_DEVICE and milli % MILLI_PER_DEVICE:
        raise ObjectError(
            f"{milli} is neither a share of one device (below 1000) nor a multiple of 1000", field=GPU_MILLI
        )


def _score_requests(pod: api.Pod, requests: Resources, *, bound: bool) -> tuple[int, int]:
    """(milli-cores, bytes) that least-allocated counts: requests with defaults for containers that name none.

    Of a pod not yet bound, pod-level requests are ignored here; of a bound one they count where given
    (kube-scheduler 1.36 ``noderesources/resource_allocation.go``; the oracle's ``leastallocated-podlevel``).
    """
    spec = pod.spec
    level = spec.resources.requests if spec.resources is not None and spec.resources.requests else {}
    if bound and level:
        return (
            requests.get(CPU, 0) if CPU in requests else DEFAULT_CPU_MILLIS,
            requests.get(MEMORY, 0) if MEMORY in requests else DEFAULT_MEMORY_BYTES,
        )

    running = {s.name: s for s in (*(pod.status.container_statuses or ()), *(pod.status.init_container_statuses or ()))}
    infeasible = _infeasible(pod.status)

    def with_defaults(container: api.Container, where: str) -> Resources:
        amounts = _container_requests(container, where, running, infeasible)
        return Resources({CPU: amounts.get(CPU, DEFAULT_CPU_MILLIS), MEMORY: amounts.get(MEMORY, DEFAULT_MEMORY_BYTES)})

    steps = [
        (c.restart_policy == "Always", with_defaults(c, f"spec.initContainers[{i}]"))
        for i, c in enumerate(spec.init_containers or ())
    ]
    containers = [with_defaults(c, f"spec.containers[{i}]") for i, c in enumerate(spec.containers or ())]
    amounts = _init_and_main(containers, steps)
    for name in (CPU, MEMORY):
        overhead = (spec.overhead or {}).get(name)
        if overhead is not None:
            amounts[name] = amounts.get(name, 0) + _amount(f"spec.overhead[{name}]", name, overhead)
    return amounts.get(CPU, 0), amounts.get(MEMORY, 0)


def _term(term: api.NodeSelectorTerm | None) -> SelectorTerm:
    if term is None:
        return SelectorTerm()
    return SelectorTerm(requirements_of(term.match_expressions), requirements_of(term.match_fields))


def requirements_of(items: list[api.NodeSelectorRequirement] | None) -> tuple[Requirement, ...]:
    """Expressions of a node selector term, of a pod's or of a volume's."""
    return tuple(Requirement(r.key, r.operator, tuple(r.values or ())) for r in items or ())


def _node_affinity(affinity: api.Affinity | None) -> tuple[tuple[SelectorTerm, ...] | None, tuple[PreferredTerm, ...]]:
    node = affinity.node_affinity if affinity is not None else None
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
