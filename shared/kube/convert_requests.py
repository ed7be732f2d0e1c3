"""What a pod asks for, as amounts: of the containers that count, of the pod, and what scoring counts. Pure.

As kube-scheduler 1.36 (``component-helpers/resource``): containers plus sidecars, or the largest init step if greater;
then pod-level requests replace what they name; then overhead is added. A container whose status carries resources
counts the greater of spec and status while a resize is under way.
"""

from __future__ import annotations

from collections.abc import Iterable

from shared.errors import ObjectError
from shared.kube import objects as api
from shared.model.resources import CPU, GPU_MILLI, MEMORY, MILLI_PER_DEVICE, Resources, parse_amount

DEFAULT_CPU_MILLIS = 100
DEFAULT_MEMORY_BYTES = 200 * 1024 * 1024
"""What scoring counts for a container without a request (kube-scheduler ``util/pod_resources.go``)."""

POD_LEVEL_RESOURCES = ("cpu", "memory", "hugepages-")


def effective_requests(pod: api.Pod) -> Resources:
    """Amounts per resource that the pod counts on a node. Raises ``ObjectError`` naming the field."""
    spec = pod.spec
    running = {s.name: s for s in (*(pod.status.container_statuses or ()), *(pod.status.init_container_statuses or ()))}
    infeasible = resize_infeasible(pod.status)
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
                requests[name] = amount_of(f"spec.resources.requests[{name}]", name, quantity)
    for name, quantity in (spec.overhead or {}).items():
        requests[name] = requests.get(name, 0) + amount_of(f"spec.overhead[{name}]", name, quantity)
    return requests


def resize_infeasible(status: api.PodStatus) -> bool:
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
        amount = amount_of("status.containerStatuses.allocatedResources", name, quantity)
        if amount > actual.get(name, 0):
            actual[name] = amount
    return actual if infeasible else asked.at_least(actual)


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


def score_requests(pod: api.Pod, requests: Resources, *, bound: bool) -> tuple[int, int]:
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
    infeasible = resize_infeasible(pod.status)

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
            amounts[name] = amounts.get(name, 0) + amount_of(f"spec.overhead[{name}]", name, overhead)
    return amounts.get(CPU, 0), amounts.get(MEMORY, 0)
