"""Which parked groups a latency that fell may help: those whose strict limit it has come within. Pure.

By target in order of their limits, so that a reading costs two look-ups, however many wait.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from shared.model.constraints import PodClass


def farther(one_us: int, other_us: int) -> int:
    """The latency of the two that lets fewer in; below 0, not known, lets nobody in."""
    return min(one_us, other_us) if min(one_us, other_us) < 0 else max(one_us, other_us)


class LimitedGroups:
    """Numbers of groups (``parked_groups.py``) whose class has a strict limit of latency."""

    def __init__(self) -> None:
        self._by_target: dict[str, list[tuple[int, int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_target)

    def __contains__(self, target: str) -> bool:
        return target in self._by_target

    def add(self, pod_class: PodClass, number: int) -> None:
        """A group began to wait."""
        if pod_class.latency_strict:
            insort(self._by_target.setdefault(pod_class.latency_target, []), (pod_class.latency_hard_us, number))

    def discard(self, pod_class: PodClass, number: int) -> None:
        """It waits no longer."""
        if pod_class.latency_strict:
            limits = self._by_target[pod_class.latency_target]
            del limits[bisect_left(limits, (pod_class.latency_hard_us, number))]
            if not limits:
                del self._by_target[pod_class.latency_target]

    def within(self, target: str, before_us: int, now_us: int) -> list[int]:
        """Groups that ``now_us`` lets in and ``before_us`` did not; below 0: not known."""
        limits = self._by_target.get(target, [])
        if now_us < 0:
            return []
        end = len(limits) if before_us < 0 else bisect_left(limits, (before_us, -1))
        return [number for _, number in limits[bisect_left(limits, (now_us, -1)) : end]]
