"""What a pod asks for, as amounts: of the containers that count, of the pod, and what scoring counts. Pure.

As kube-scheduler 1.36 (``component-helpers/resource``): containers plus sidecars, or the largest init step if greater;
then pod-level requests replace what they name; then overhead is added.

While a bound pod is resized in place its spec, what the kubelet allocated and what the container has differ. Of a
container, a sidecar and the pod level each resource counts as the greatest of the three; where the kubelet called the
resize infeasible, as the greater of the last two. Other init containers, and pods on no node, count by their spec.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from shared.errors import ObjectError
from shared.kube import objects as api
from shared.model.resources import CPU, GPU_MILLI, MEMORY, MILLI_PER_DEVICE, Resources, parse_amount

DEFAULT_CPU_MILLIS = 100
DEFAULT_MEMORY_BYTES = 200 * 1024 * 1024
"""What scoring counts for a container without a request (kube-scheduler ``util/pod_resources.go``)."""

POD_LEVEL_RESOURCES = ("cpu", "memory", "hugepages-")


def effective_requests(pod: api.KubePod) -> Resources:
    """Amounts per resource that the pod counts on a node. Raises ``ObjectError`` naming the field."""
    requests = _of_containers(pod, {})
    requests.update(_pod_level(pod))
    _add(requests, _overhead(pod.spec))
    return requests


def with_default_requests(spec: api.PodSpec) -> api.PodSpec:
    """A template's spec as the API server makes a pod of it: limits that have no request beside them become requests
    (``SetDefaults_Pod``; of the pod as a whole only where none of its containers asks for the resource)."""
    spec = replace(
        spec,
        containers=_all_with_defaults(spec.containers),
        init_containers=_all_with_defaults(spec.init_containers),
    )
    limits = (spec.resources.limits if spec.resources is not None else None) or {}
    if spec.resources is None or not limits:
        return spec
    own = _of_containers(api.KubePod(spec=spec), {})
    given = {name: limit for name, limit in limits.items() if name.startswith("hugepages-") or name not in own}
    return replace(spec, resources=replace(spec.resources, requests={**given, **(spec.resources.requests or {})}))


def _all_with_defaults(containers: list[api.Container] | None) -> list[api.Container] | None:
    return [_with_defaults(one) for one in containers] if containers is not None else None


def _with_defaults(container: api.Container) -> api.Container:
    found = container.resources
    if found is None or not found.limits:
        return container
    return replace(container, resources=replace(found, requests={**found.limits, **(found.requests or {})}))


def resize_infeasible(status: api.PodStatus) -> bool:
    """Whether the kubelet has said that a resize cannot be; the first such condition decides."""
    reasons = (one.reason for one in status.conditions or () if one.type == "PodResizePending")
    return next(reasons, "") == "Infeasible"


def _of_containers(pod: api.KubePod, missing: Mapping[str, int]) -> Resources:
    """All containers together. ``missing``: what each counts for a resource that it does not name."""
    spec, status = pod.spec, pod.status
    there: dict[str, api.ContainerStatus] = {}
    if spec.node_name:
        there = {one.name: one for one in (*(status.container_statuses or ()), *(status.init_container_statuses or ()))}
    infeasible = bool(there) and resize_infeasible(status)

    def counted(container: api.Container, where: str, *, runs_on: bool) -> Resources:
        asked, found = _amounts(container.resources, where), there.get(container.name) if runs_on else None
        if found is not None and found.resources is not None:
            asked = _in_force(asked, found.resources, found.allocated_resources, "status.containerStatuses", infeasible)
        return Resources({**missing, **asked}) if missing else asked

    steps: list[tuple[bool, Resources]] = []
    for index, one in enumerate(spec.init_containers or ()):
        is_sidecar = one.restart_policy == "Always"
        steps.append((is_sidecar, counted(one, f"spec.initContainers[{index}]", runs_on=is_sidecar)))
    return _init_and_main(
        (counted(one, f"spec.containers[{index}]", runs_on=True) for index, one in enumerate(spec.containers or ())),
        steps,
    )


def _pod_level(pod: api.KubePod) -> Resources:
    """What the pod as a whole names, in place of what its containers ask for."""
    spec, status = pod.spec, pod.status
    if spec.resources is None or not spec.resources.requests:
        return Resources()
    asked = _amounts(spec.resources, "spec")
    counts = asked
    if spec.node_name and status.resources is not None:
        counts = _in_force(asked, status.resources, status.allocated_resources, "status", resize_infeasible(status))
    return Resources((name, counts.get(name, 0)) for name in asked if name.startswith(POD_LEVEL_RESOURCES))


def _in_force(
    asked: Resources,
    actual: api.ResourceRequirements,
    allocated: api.Quantities | None,
    where: str,
    infeasible: bool,
) -> Resources:
    """The greatest of what is asked for, what was allocated and what there is (``determineEffectiveRequests``)."""
    counts = _greatest(
        _amounts(actual, where),
        ((name, amount_of(f"{where}.allocatedResources", name, text)) for name, text in (allocated or {}).items()),
    )
    return counts if infeasible else _greatest(counts, asked.items())


def _greatest(amounts: Resources, others: Iterable[tuple[str, int]]) -> Resources:
    """The greater of the two; what either names stays named, be it 0."""
    for name, amount in others:
        if amount >= amounts.get(name, 0):
            amounts[name] = amount
    return amounts


def _overhead(spec: api.PodSpec) -> Resources:
    overhead = (spec.overhead or {}).items()
    return Resources((name, amount_of(f"spec.overhead[{name}]", name, quantity)) for name, quantity in overhead)


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
        largest = _greatest(largest, step.items())
    _add(main, sidecars)
    return _greatest(main, largest.items())


def _add(into: Resources, amounts: Resources) -> None:
    for name, amount in amounts.items():
        into[name] = into.get(name, 0) + amount


def _amounts(resources: api.ResourceRequirements | None, where: str) -> Resources:
    if resources is None or not resources.requests:
        return Resources()
    return Resources(
        (name, amount_of(f"{where}.resources.requests[{name}]", name, quantity))
        for name, quantity in resources.requests.items()
    )


def amount_of(field: str, name: str, quantity: str | float) -> int:
    """A quantity as the model counts it. Raises ``ObjectError`` with the field."""
    try:
        amount = parse_amount(name, quantity)
    except ValueError as error:
        raise ObjectError(str(error), field=field) from error
    if amount < 0:
        raise ObjectError(f"{quantity!r} is negative; give an amount of 0 or more", field=field)
    return amount


def check_gpu(milli: int) -> None:
    """Raises ``ObjectError`` for more than one device that are not whole ones."""
    if milli > MILLI_PER_DEVICE and milli % MILLI_PER_DEVICE:
        raise ObjectError(
            f"{milli} is neither a share of one device (below 1000) nor a multiple of 1000", field=GPU_MILLI
        )


def score_requests(pod: api.KubePod, requests: Resources, *, bound: bool) -> tuple[int, int]:
    """(milli-cores, bytes) that least-allocated counts: requests with defaults for containers that name none.

    Of a pod not yet bound, pod-level requests are ignored here; of a bound one they count where given
    (kube-scheduler 1.36 ``noderesources/resource_allocation.go``; the oracle's ``leastallocated-podlevel``).
    """
    missing = {CPU: DEFAULT_CPU_MILLIS, MEMORY: DEFAULT_MEMORY_BYTES}
    level = _pod_level(pod) if bound else Resources()
    if level:
        missing = {name: amount for name, amount in missing.items() if name not in requests}
    amounts = _of_containers(pod, missing)
    amounts.update(level)
    _add(amounts, _overhead(pod.spec))
    return amounts.get(CPU, 0), amounts.get(MEMORY, 0)
