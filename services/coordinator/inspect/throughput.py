"""How fast it goes now: pods and decisions per second over the last ten, the latencies of the last thousand pods.

Why beside the metrics: a scrape gives totals since the start, a screen wants what is true now without a Prometheus. The
shell hands over what a turn brought; what is not asked for costs one comparison per turn. No clock, no I/O.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from msgspec import Struct

from shared.quantiles import nearest_rank

WINDOW_S = 10.0
EVERY_S = 1.0
KEPT = 1024
"""Latencies and cycles remembered: enough for a p99."""


class Rates(Struct, frozen=True, kw_only=True):
    """Per second, over the last ten."""

    pods_per_s_10s: float
    decisions_per_s_10s: float


class Quantiles(Struct, frozen=True):
    """Milliseconds; 0 where there is nothing yet."""

    p50: float
    p99: float


class Throughput:
    """Of one term."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int, int]] = deque()
        self.latencies_s: deque[float] = deque(maxlen=KEPT)
        """From first seeing a pod to its Binding."""
        self.rounds_s: deque[float] = deque(maxlen=KEPT)
        """Of scheduling cycles: from the offers to the plan."""

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
        """Pods bound and scheduling cycles ended since the last call."""
        self.latencies_s.extend(latencies_s)
        self.rounds_s.extend(rounds_s)

    def rates(self, now: float, bound: int, answers: int) -> Rates:
        """Over the last ``WINDOW_S``, or since the first mark. ``bound`` and ``answers``: the totals at ``now``."""
        # totals change in marked turns alone: the newest mark before the window tells what they were at its beginning
        before = [mark for mark in self._marks if mark[0] <= now - WINDOW_S]
        base = before[-1] if before else (self._marks[0] if self._marks else (now, bound, answers))
        span_s = WINDOW_S if before else max(EVERY_S, now - base[0])
        return Rates(
            pods_per_s_10s=round((bound - base[1]) / span_s, 2),
            decisions_per_s_10s=round((answers - base[2]) / span_s, 2),
        )

    def latency_ms(self) -> Quantiles:
        """Of the last pods."""
        return _quantiles(self.latencies_s)

    def round_ms(self) -> Quantiles:
        """Of the last scheduling cycles."""
        return _quantiles(self.rounds_s)


def _quantiles(values_s: Sequence[float]) -> Quantiles:
    p50, p99 = nearest_rank(values_s, 0.5, 0.99)
    return Quantiles(round(p50 * 1000, 3), round(p99 * 1000, 3))
