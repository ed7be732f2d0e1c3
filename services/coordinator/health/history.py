"""An hour of what a leader did, in steps of ten seconds: for charts, where nobody runs a Prometheus.

Columns of machine numbers in a ring, so that the memory is fixed and known: 360 steps by some forty columns, 8 bytes
each. What is not known in a step is not a number (NaN, told as null). Of resources the first ``MOST_RESOURCES`` names
that a node ever offered have a column. A new leader begins with an empty one. Pure.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping

STEP_S = 10.0
STEPS = 360
MOST_RESOURCES = 16

NAN = math.nan

COUNTED = ("bound_per_s", "decisions_per_s", "evicted_per_s", "seen_per_s")
"""Told as totals, kept per second."""

LEVELS = (
    "pending_active", "pending_backoff", "pending_unschedulable", "pending_in_flight", "pending_gated",
    "pending_unsupported",
    "latency_p50_ms", "latency_p99_ms", "round_p50_ms", "round_p99_ms",
    "turn_longest_ms", "turn_busy_share", "events_waiting", "writes_queued",
    "nodes", "nodes_not_ready", "agents", "agents_suspect", "health",
)  # fmt: skip
"""Told and kept as they are."""


class HealthHistory:
    """Of one term."""

    def __init__(self) -> None:
        self._columns: dict[str, array[float]] = {name: _empty() for name in (*COUNTED, *LEVELS)}
        self._allocation: dict[str, array[float]] = {}
        self._times = _empty()
        self._totals: Mapping[str, float] | None = None
        self._at: float | None = None
        self._place = 0
        self.count = 0

    def due(self, at: float) -> bool:
        """Whether the step is over that the last ``took`` began."""
        return self._at is None or at >= self._at + STEP_S

    def took(
        self, at: float, totals: Mapping[str, float], levels: Mapping[str, float], allocation: Mapping[str, float]
    ) -> None:
        """One step ends at ``at`` (Unix seconds). ``totals`` by the names of ``COUNTED``; the first one only begins."""
        before, begun = self._totals, self._at
        self._totals, self._at = dict(totals), at
        place = self._place
        self._times[place] = at
        for name in COUNTED:
            span_s = at - begun if begun is not None else 0.0
            rate = (totals[name] - before[name]) / span_s if before is not None and span_s > 0 else NAN
            self._columns[name][place] = max(0.0, rate) if not math.isnan(rate) else NAN
        for name in LEVELS:
            self._columns[name][place] = levels.get(name, NAN)
        for name in allocation:
            if name not in self._allocation and len(self._allocation) < MOST_RESOURCES:
                self._allocation[name] = _empty()
        for name, column in self._allocation.items():
            column[place] = allocation.get(name, NAN)
        self._place = (place + 1) % STEPS
        self.count = min(STEPS, self.count + 1)

    def times(self, after: float = -math.inf) -> list[float]:
        """Ends of the steps after ``after``, oldest first."""
        return [self._times[place] for place in self._places(after)]

    def series(self, after: float = -math.inf) -> dict[str, list[float | None]]:
        """The columns, as long as ``times``."""
        return _told(self._columns, self._places(after))

    def allocation(self, after: float = -math.inf) -> dict[str, list[float | None]]:
        """Requested share by resource, as long as ``times``."""
        return _told(self._allocation, self._places(after))

    def _places(self, after: float) -> list[int]:
        first = self._place - self.count
        places = [(first + step) % STEPS for step in range(self.count)]
        return [place for place in places if self._times[place] > after]


def _empty() -> array[float]:
    return array("d", [NAN]) * STEPS


def _told(columns: Mapping[str, array[float]], places: list[int]) -> dict[str, list[float | None]]:
    return {
        name: [None if math.isnan(column[place]) else round(column[place], 4) for place in places]
        for name, column in columns.items()
    }
