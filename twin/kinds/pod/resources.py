"""Sums over a pod's resources: QoS class, what all containers request together.

Why: defaulting, validation, quota and the QoS class decide on the same sums. Sources: ``pkg/apis/core/v1/helper/qos``
and ``component-helpers/resource`` (init containers count as their peak, sidecars add up). Amounts are integers in
units of 1e-9, see ``quantity``. It never changes a pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from twin.kinds.rules.quantity import nanos

Json = dict[str, Any]
Amounts = dict[str, int]

POD_LEVEL = ("cpu", "memory")
"""Resources that spec.resources may name, beside huge pages."""


def is_pod_level(resource: str) -> bool:
    """Whether spec.resources may name it."""
    return resource in POD_LEVEL or resource.startswith("hugepages-")


def containers(spec: Json) -> Iterator[Json]:
    """Containers, then init containers."""
    yield from spec.get("containers") or ()
    yield from spec.get("initContainers") or ()


def is_sidecar(container: Json) -> bool:
    """An init container that keeps running."""
    return bool(container.get("restartPolicy") == "Always")


def _amounts(container: Json, part: str) -> Amounts:
    return {name: nanos(text) for name, text in ((container.get("resources") or {}).get(part) or {}).items()}


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _peak(total: Amounts, other: Amounts) -> None:
    for name, amount in other.items():
        total[name] = max(total.get(name, 0), amount)


def aggregate(spec: Json, part: str) -> Amounts:
    """All containers together; ``part`` is ``requests`` or ``limits``."""
    total: Amounts = {}
    for container in spec.get("containers") or ():
        _add(total, _amounts(container, part))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        amounts = _amounts(container, part)
        if is_sidecar(container):
            _add(total, amounts)
            _add(sidecars, amounts)
            amounts = dict(sidecars)
        else:
            _add(amounts, sidecars)
        _peak(peak, amounts)
    _peak(total, peak)
    return total


def pod_requests(spec: Json, part: str = "requests") -> Amounts:
    """What the pod counts for: pod-level values in place of the sum where given, and the overhead on top."""
    total = aggregate(spec, part)
    for name, amount in _amounts(spec, part).items():
        total[name] = amount
    for name, text in (spec.get("overhead") or {}).items():
        if part == "requests" or name in total:
            total[name] = total.get(name, 0) + nanos(text)
    return total


def qos_class(spec: Json) -> str:
    """Guaranteed, Burstable or BestEffort (ComputePodQOS); only cpu and memory count."""
    pod_level = spec.get("resources")
    if pod_level:
        return _qos([pod_level])
    return _qos([container.get("resources") or {} for container in containers(spec)])


def _qos(all_resources: Iterable[Json]) -> str:
    requests: Amounts = {}
    limits: Amounts = {}
    guaranteed = True
    for resources in all_resources:
        if not resources:
            guaranteed = False
            continue
        limited = set()
        for part, total in (("requests", requests), ("limits", limits)):
            for name, text in (resources.get(part) or {}).items():
                if name in POD_LEVEL and (amount := nanos(text)) > 0:
                    total[name] = total.get(name, 0) + amount
                    if part == "limits":
                        limited.add(name)
        if len(limited) < len(POD_LEVEL):
            guaranteed = False
    if not requests and not limits:
        return "BestEffort"
    if guaranteed and len(requests) == len(limits) and all(limits.get(n) == a for n, a in requests.items()):
        return "Guaranteed"
    return "Burstable"
