"""How fast it goes now: pods and decisions per second over the last ten, latencies of the last five minutes.

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
LATENCY_WINDOW_S = 300.0
"""How long a latency counts: one slow pod is not told of for ever where nothing else comes."""
KEPT = 1024
"""Latencies and cycles remembered: enough for a p99."""


class Rates(Struct, frozen=True, kw_only=True):
    """Per second, over the last ten."""

    pods_per_s_10s: float
    decisions_per_s_10s: float


class Quantiles(Struct, frozen=True):
    """Milliseconds; 0 where there was nothing in the window."""

    p50: float
    p99: float


class Throughput:
    """Of one term."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int, int]] = deque()
        self._latencies_s: deque[tuple[float, float]] = deque(maxlen=KEPT)
        """(when, from when the pod could be placed to its Binding): without the time for which it was gated, or no node
        took it."""
        self._rounds_s: deque[tuple[float, float]] = deque(maxlen=KEPT)
        """(when, of a scheduling cycle from the offers to the plan)."""

    def mark(self, now: float, bound: int, answers: int) -> None:
        """The totals at ``now`` (seconds of the clock); one a second is kept, and always the newest."""
        marks = self._marks
        if len(marks) > 1 and now < marks[-2][0] + EVERY_S:
            marks[-1] = (now, bound, answers)
            return
        marks.append((now, bound, answers))
        while len(marks) > 1 and marks[1][0] <= now - WINDOW_S:
            marks.popleft()

    def took(self, now: float, latencies_s: Sequence[float], rounds_s: Sequence[float]) -> None:
        """Pods bound and scheduling cycles ended since the last call."""
        self._latencies_s.extend((now, value) for value in latencies_s)
        self._rounds_s.extend((now, value) for value in rounds_s)

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

    def latency_ms(self, now: float) -> Quantiles | None:
        """Of the last pods in ``LATENCY_WINDOW_S``; None: there was none."""
        return _quantiles(self._latencies_s, now)

    def round_ms(self, now: float) -> Quantiles | None:
        """Of the last scheduling cycles, alike."""
        return _quantiles(self._rounds_s, now)


def _quantiles(marked: deque[tuple[float, float]], now: float) -> Quantiles | None:
    while marked and marked[0][0] <= now - LATENCY_WINDOW_S:
        marked.popleft()
    if not marked:
        return None
    p50, p99 = nearest_rank([value for _, value in marked], 0.5, 0.99)
    return Quantiles(round(p50 * 1000, 3), round(p99 * 1000, 3))
