"""What was taken of one node over the last minutes. Pure."""

from __future__ import annotations

import math
from collections import deque

BUCKETS = 30
GAP_S = 60.0
"""Without a sample for so long the window begins anew."""

Pair = tuple[float, float]
"""Cpu and memory: milli-cores, bytes."""


class LoadWindow:
    """At most ``BUCKETS`` samples, each the greatest of its time: so many looks within a second weigh as one."""

    def __init__(self, length_s: float) -> None:
        self._length_s = length_s
        self._samples: deque[tuple[float, Pair]] = deque()
        """(begin of the bucket, what was taken)"""
        self._began_s = 0.0
        self._last_s = -math.inf

    def add(self, now_s: float, taken: Pair) -> None:
        """What is taken now."""
        if now_s - self._last_s > max(GAP_S, 2 * self._length_s / BUCKETS):
            self._began_s = now_s
        self._last_s = now_s
        if self._samples and now_s - self._samples[-1][0] < self._length_s / BUCKETS:
            at_s, before = self._samples[-1]
            self._samples[-1] = at_s, (max(before[0], taken[0]), max(before[1], taken[1]))
        else:
            self._samples.append((now_s, taken))
        while len(self._samples) > 1 and self._samples[0][0] <= now_s - self._length_s:
            self._samples.popleft()

    def covered_s(self, now_s: float) -> float:
        """For how long it has seen the node without a gap; at most its length."""
        return min(self._length_s, max(0.0, now_s - self._began_s)) if self._samples else 0.0

    @property
    def full(self) -> bool:
        """Whether it has seen as much as it is to judge by."""
        return self.covered_s(self._last_s) >= self._length_s

    def percentile(self, percent: float) -> Pair:
        """By nearest rank, of cpu and of memory each; nothing taken where there is no sample."""
        if not self._samples:
            return 0.0, 0.0
        place = max(0, math.ceil(len(self._samples) * percent / 100) - 1)
        cpu, memory = (sorted(taken[part] for _, taken in self._samples)[place] for part in (0, 1))
        return cpu, memory
