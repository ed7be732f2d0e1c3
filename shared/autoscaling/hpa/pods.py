"""Metrics that pods carry (Resource, ContainerResource, Pods): which pods count, and how many replicas follow.

Source: ``pkg/controller/podautoscaler/replica_calculator.go`` of Kubernetes 1.36. Pods of which nothing is known are
counted against the move: as idle where the rest asks for more, as busy where it asks for less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from shared.autoscaling.hpa.model import CPU, HpaController, PodFacts, PodUsage

MAX_INT32, MAX_INT64 = 2**31 - 1, 2**63 - 1


class NoValueError(Exception):
    """A metric from which no number of replicas follows. The text says why; the caller names the reason."""


class Tolerance(NamedTuple):
    """How far a ratio may be from 1 without a change, apart for each direction."""

    down: float
    up: float

    def covers(self, ratio: float) -> bool:
        """Whether nothing is to change. Both ends are included; not a number is never covered."""
        return 1.0 - self.down <= ratio <= 1.0 + self.up


class PodSample(NamedTuple):
    """One pod's value, in milli-units, and the time it was averaged over."""

    value: int
    at_s: float
    window_s: float


class HpaPodGroups(NamedTuple):
    """The target's pods by what their metrics are worth. ``ready``: how many count as they are."""

    ready: int
    unready: tuple[str, ...]
    missing: tuple[str, ...]
    ignored: tuple[str, ...]


class Measure(NamedTuple):
    """``ratio`` of what is used to what is wanted; utilisation in percent where there is one; the mean, milli-units."""

    ratio: float
    utilization: int | None
    mean: int


def whole_replicas(wanted: float) -> int:
    """``wanted`` rounded up, within an int32; 0 where it is not a number (0 of 0)."""
    if math.isnan(wanted):
        return 0
    if math.isinf(wanted) or abs(wanted) > MAX_INT32:
        return MAX_INT32 if wanted > 0 else -MAX_INT32 - 1
    return math.ceil(wanted)


def quotient(dividend: int, divisor: int) -> int:
    """Integer division that truncates towards zero, as Go's."""
    whole = abs(dividend) // abs(divisor)
    return whole if (dividend < 0) == (divisor < 0) else -whole


def pod_samples(usages: Iterable[PodUsage], resource: str) -> dict[str, PodSample]:
    """By pod, the sum over its containers. A pod of which any container lacks the resource has no sample."""
    found: dict[str, PodSample] = {}
    for usage in usages:
        values = [amounts.get(resource) for _, amounts in usage.containers]
        if values and None not in values:
            found[usage.pod] = PodSample(
                sum(value for value in values if value is not None), usage.at_s, usage.window_s
            )
    return found


def container_samples(usages: Iterable[PodUsage], resource: str, container: str) -> dict[str, PodSample]:
    """By pod, that container's value. A pod whose metrics lack the container, or it the resource, has no sample."""
    found: dict[str, PodSample] = {}
    for usage in usages:
        amounts = next((amounts for name, amounts in usage.containers if name == container), {})
        if resource in amounts:
            found[usage.pod] = PodSample(amounts[resource], usage.at_s, usage.window_s)
    return found


def group_pods(
    pods: Iterable[PodFacts], samples: Mapping[str, PodSample], *, resource: str, now: float, flags: HpaController
) -> HpaPodGroups:
    """Sort the target's pods. ``resource``: "" for a metric of one's own; for cpu alone readiness counts.

    A Succeeded pod is not ignored: without a metric it is missing.
    """
    ready, unready, missing, ignored = 0, [], [], []
    for pod in pods:
        if pod.deleting or pod.phase == "Failed":
            ignored.append(pod.name)
        elif pod.phase == "Pending":
            unready.append(pod.name)
        elif pod.name not in samples:
            missing.append(pod.name)
        elif resource == CPU and _starting(pod, samples[pod.name], now, flags):
            unready.append(pod.name)
        else:
            ready += 1
    return HpaPodGroups(ready, tuple(unready), tuple(missing), tuple(ignored))


def _starting(pod: PodFacts, sample: PodSample, now: float, flags: HpaController) -> bool:
    """Whether the cpu that the pod used may be that of its start. A Ready condition that is Unknown is not False."""
    if not pod.ready or pod.start_s is None:
        return True
    if pod.start_s + flags.cpu_initialization_s > now:
        return pod.ready == "False" or sample.at_s < pod.ready_since_s + sample.window_s
    # later: only one that has never been ready
    return pod.ready == "False" and pod.start_s + flags.initial_readiness_s > pod.ready_since_s


def requests_of(pods: Iterable[PodFacts], resource: str, container: str) -> dict[str, int]:
    """Milli-units by pod, of all pods or none: raises ``NoValueError`` where one lacks the request.

    Containers and sidecars count; where the pod itself has requests and no container is named, what the scheduler
    counts for it does (KEP-2837).
    """
    found: dict[str, int] = {}
    for pod in pods:
        if pod.pod_requests is not None and not container:
            if resource not in pod.pod_requests:
                raise NoValueError(f"pod {pod.name} requests no {resource}")
            found[pod.name] = pod.pod_requests[resource]
            continue
        named = [one for one in pod.containers if container in ("", one.name)]
        if container and not named:
            raise NoValueError(f"pod {pod.name} has no container {container}")
        for one in named:
            if resource not in one.requests:
                raise NoValueError(f"container {one.name} of pod {pod.name} requests no {resource}")
        found[pod.name] = sum(one.requests[resource] for one in named)
    return found


def utilization_measure(requests: Mapping[str, int], target: int) -> Callable[[Mapping[str, int]], Measure]:
    """Percent of what known pods request, truncated before it is divided by the ``target`` percent."""

    def measured(values: Mapping[str, int]) -> Measure:
        known = [name for name in values if name in requests]
        requested = sum(requests[name] for name in known)
        if not requested:
            raise NoValueError("no metrics of pods that request anything")
        used = sum(values[name] for name in known)
        percent = quotient(used * 100, requested)
        return Measure(float(percent) / float(target), percent, quotient(used, len(known)))

    return measured


def mean_measure(target: int) -> Callable[[Mapping[str, int]], Measure]:
    """The mean over all values, those of pods that are gone too, against a ``target`` in milli-units."""

    def measured(values: Mapping[str, int]) -> Measure:
        mean = quotient(sum(values.values()), len(values))
        return Measure(float(mean) / float(target), None, mean)

    return measured


def replicas_for_pods(
    samples: Mapping[str, PodSample],
    groups: HpaPodGroups,
    *,
    current: int,
    tolerance: Tolerance,
    measured: Callable[[Mapping[str, int]], Measure],
    busy: Callable[[str], int],
) -> tuple[int, Measure]:
    """(replicas, what was measured of the pods that count). ``busy``: what a missing pod is taken to use when the rest
    asks for less. Raises ``NoValueError``."""
    left_out = {*groups.ignored, *groups.unready}
    values = {name: sample.value for name, sample in samples.items() if name not in left_out}
    if not values:
        raise NoValueError("no metrics of the target's pods, which may be unready")
    first = measured(values)
    rising_with_unready = bool(groups.unready) and first.ratio > 1.0
    if not rising_with_unready and not groups.missing:
        if tolerance.covers(first.ratio):
            return current, first
        return whole_replicas(first.ratio * float(groups.ready)), first
    if first.ratio < 1.0:
        values.update((name, busy(name)) for name in groups.missing)
    elif first.ratio > 1.0:
        values.update(dict.fromkeys(groups.missing, 0))
    if rising_with_unready:
        values.update(dict.fromkeys(groups.unready, 0))
    return _against(first.ratio, measured(values).ratio, len(values), current, tolerance), first


def _against(first: float, second: float, entries: int, current: int, tolerance: Tolerance) -> int:
    """What the second ratio asks for; ``current`` where it is small, or would turn the move round."""
    if tolerance.covers(second) or first < 1.0 < second or second < 1.0 < first:
        return current
    wanted = whole_replicas(second * float(entries))
    return current if (second < 1.0 and wanted > current) or (second > 1.0 and wanted < current) else wanted


def ready_pods(pods: Sequence[PodFacts]) -> int:
    """How many are Running and Ready. Raises ``NoValueError`` where there are no pods at all."""
    if not pods:
        raise NoValueError("the selector finds no pods")
    return sum(pod.phase == "Running" and pod.ready == "True" for pod in pods)
