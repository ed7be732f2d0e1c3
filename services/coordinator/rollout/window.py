"""One window of evidence: what each variant did, and what the choices of both were worth. Pure.

It refuses to judge: ``policy.judging`` does.
"""

from __future__ import annotations

from collections import deque

from services.coordinator.rollout.values import Sample, Worth
from shared.policy.rollout.judging import Kpi, Window
from shared.wire.records import PolicyValue

MOST_TIMES = 4096


class VariantBook:
    """What one policy variant did."""

    def __init__(self) -> None:
        self.groups = self.fallen = self.placements = self.rejected = 0
        self._times_us: deque[float] = deque(maxlen=MOST_TIMES)

    def judged(self, groups: int, fallen: int, spent_us: int) -> None:
        """One agent's report."""
        self.groups += groups
        self.fallen += fallen
        if groups:
            self._times_us.append(spent_us / groups)

    def kpi(self, value: float) -> Kpi:
        """The figures; ``value``: mean of the window's samples."""
        ordered = sorted(self._times_us)
        p99_us = ordered[-(-99 * len(ordered) // 100) - 1] if ordered else 0.0
        return Kpi(value, self.groups, self.fallen, self.placements, self.rejected, p99_us / 1000)


class OpenWindow:
    """What is gathered until it is closed."""

    def __init__(self, opened: float) -> None:
        self.opened = opened
        self.candidate, self.active = VariantBook(), VariantBook()
        self.samples: deque[Sample] = deque(maxlen=MOST_TIMES)

    def values(self, goal: str) -> tuple[PolicyValue, ...]:
        """The mean values by each goal, ``goal`` first."""
        names = dict.fromkeys((goal, *(name for sample in self.samples for name in sample.worth)))
        return tuple(self._value(name) for name in names)

    def closed(self, goal: str) -> Window:
        """The window, judged by ``goal``, which every sample has."""
        pairs = [worth for sample in self.samples if (worth := _pair(sample.worth[goal])) is not None]
        count = len(pairs)
        mine, theirs = (sum(pair[side] for pair in pairs) / count for side in (0, 1))
        squares = sum((pair[0] - pair[1] - mine + theirs) ** 2 for pair in pairs)
        return Window(
            self.candidate.kpi(mine),
            self.active.kpi(theirs),
            count,
            sum(sample.agreed for sample in self.samples),
            goal,
            (squares / (count - 1) / count) ** 0.5 if count > 1 else 0.0,
        )

    def _value(self, goal: str) -> PolicyValue:
        told = [worth for sample in self.samples if (worth := sample.worth.get(goal)) is not None]
        candidates = [worth.candidate for worth in told if worth.candidate is not None]
        return PolicyValue(
            goal=goal,
            active=sum(worth.active for worth in told) / len(told) if told else None,
            candidate=sum(candidates) / len(candidates) if candidates else None,
        )


def _pair(worth: Worth) -> tuple[float, float] | None:
    return None if worth.candidate is None else (worth.candidate, worth.active)
