"""How fast it goes now: pods and decisions per second over the last ten, the latencies of the last thousand pods, and
the longest turn of the last minute.

Why beside the metrics: a scrape gives totals since the start, a screen wants what is true now without a Prometheus. The
shell hands over what a turn brought; what is not asked for costs one comparison per turn. No clock, no I/O.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from shared.quantiles import nearest_rank

WINDOW_S = 10.0
EVERY_S = 1.0
TURNS_S = 60
"""How long the longest turn is remembered, in whole seconds."""
KEPT = 1024
"""Latencies and rounds remembered: enough for a p99."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Per second. ``decisions``: (unit, node) answers of agents."""

    pods: float
    decisions: float


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Milliseconds; 0 where there is nothing yet."""

    p50: float
    p99: float


class Pace:
    """Of one term."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int, int]] = deque()
        self._latencies_s: deque[float] = deque(maxlen=KEPT)
        self._rounds_s: deque[float] = deque(maxlen=KEPT)
        self._turns: deque[tuple[int, float]] = deque()

    def turned(self, now: float, took_s: float) -> None:
        """A turn of the loop ended at ``now``: what is longest of each second is kept."""
        second, turns = int(now), self._turns
        if turns and turns[-1][0] == second:
            if took_s > turns[-1][1]:
                turns[-1] = (second, took_s)
            return
        turns.append((second, took_s))
        while turns[0][0] <= second - TURNS_S:
            turns.popleft()

    def longest_turn_s(self, now: float) -> float:
        """Of the last ``TURNS_S`` seconds."""
        return max((took_s for second, took_s in self._turns if second > now - TURNS_S), default=0.0)

    def mark(self, now: float, bound: int, answers: int) -> None:
        """The totals at ``now`` (seconds of the clock); one a second is kept, and always the newest."""
        marks = self._marks
        if len(marks) > 1 and now < marks[-2][0] + EVERY_S:
            marks[-1] = (now, bound, answers)
            return
        marks.append((now, bound, answers))
        while len(marks) > 1 and marks[1][0] <= now - WINDOW_S:
            marks.popleft()

    def took(self, latencies_s: Sequence[float], rounds_s: Sequence[float]) -> None:
        """Pods bound and rounds ended since the last call."""
        self._latencies_s.extend(latencies_s)
        self._rounds_s.extend(rounds_s)

    @property
    def has_latencies(self) -> bool:
        """Whether any pod was bound yet."""
        return bool(self._latencies_s)

    @property
    def has_rounds(self) -> bool:
        """Whether any round has ended yet."""
        return bool(self._rounds_s)

    def rates(self, now: float, bound: int, answers: int) -> Rates:
        """Over the last ``WINDOW_S``, or since the first mark. ``bound`` and ``answers``: the totals at ``now``."""
        # totals change in marked turns alone: the newest mark before the window tells what they were at its beginning
        before = [mark for mark in self._marks if mark[0] <= now - WINDOW_S]
        base = before[-1] if before else (self._marks[0] if self._marks else None)
        if base is None:
            return Rates(0.0, 0.0)
        span_s = WINDOW_S if before else max(EVERY_S, now - base[0])
        return Rates(round((bound - base[1]) / span_s, 2), round((answers - base[2]) / span_s, 2))

    def latency_ms(self) -> Quantiles:
        """From first seeing a pod to its Binding."""
        return _quantiles(self._latencies_s)

    def round_ms(self) -> Quantiles:
        """Of rounds: from the offers to the plan."""
        return _quantiles(self._rounds_s)


def _quantiles(values_s: Sequence[float]) -> Quantiles:
    p50, p99 = nearest_rank(values_s, 0.5, 0.99)
    return Quantiles(round(p50 * 1000, 3), round(p99 * 1000, 3))
