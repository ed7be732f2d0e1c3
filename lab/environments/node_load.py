"""What runs on each node over time, in closed form: utilisation, its spread over nodes, and work lost to contention.

Between two changes every load is constant, so time means are exact sums, not samples. Utilisation is demand over limit
and may exceed 1, as in ``usage.py``. Contention: on a node whose demand for a part exceeds the limit by a factor u,
every pod that uses this part gets 1/u of what it wants of it; a pod goes on at the pace of the part that it gets least
of. Runs last as long as they last (the thesis' stress tools run by the clock), so contention shows as work not done,
never as a longer run. Memory is no rate: above its limit nothing slows down, and what a kernel would kill is refused.

Pure. Parts are always in the order of ``PARTS``. Source of the imbalance: targets T3.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

PARTS = ("cpu", "memory", "disk", "network")
CPU, MEMORY, DISK, NETWORK = range(4)
RATES = (CPU, DISK, NETWORK)
"""The parts that are given out per second: what contention slows."""
RECOUNT_EVERY = 512
"""After so many changes the running sums are made anew, so that rounding cannot pile up."""

FloatArray = NDArray[np.float64]


class NodeLoad:
    """Loads of ``nodes`` nodes. Give changes in order of time; read ``demand`` [nodes, 4], shares of the limits."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.demand: FloatArray = np.zeros((nodes, len(PARTS)))
        self.highest: FloatArray = np.zeros(nodes)
        self.counted: NDArray[np.bool_] = np.ones(nodes, np.bool_)
        self.now_s = 0.0
        self.imbalance_area = 0.0
        self.used_area: FloatArray = np.zeros(len(PARTS))
        self.lost: FloatArray = np.zeros((nodes, 1 << len(RATES)))
        """Seconds of work lost so far on a node, by the set of parts a pod uses (bit i: ``RATES[i]``)."""
        self._used: FloatArray = np.zeros(len(PARTS))
        self._since: FloatArray = np.zeros(nodes)
        self._sum = self._squares = 0.0
        self._live = nodes
        self._changes = 0

    @property
    def spread(self) -> float:
        """Population s.d. over the counted nodes of each one's highest utilisation, now."""
        if not self._live:
            return 0.0
        mean = self._sum / self._live
        return sqrt(max(0.0, self._squares / self._live - mean * mean))

    def advance(self, now_s: float) -> None:
        """Let time pass without a change."""
        passed = now_s - self.now_s
        if passed > 0:
            self.imbalance_area += self.spread * passed
            self.used_area += self._used * passed
        self.now_s = now_s

    def change(self, now_s: float, node: int, delta: FloatArray) -> None:
        """From ``now_s`` on the node's demand differs by ``delta`` [4]."""
        self.advance(now_s)
        self.settle(node)
        row = self.demand[node]
        before = float(self.highest[node])
        self._used -= np.minimum(row, 1.0)
        row += delta
        self._used += np.minimum(row, 1.0)
        after = max(0.0, float(row.max()))
        self.highest[node] = after
        self._sum += after - before
        self._squares += after * after - before * before
        self._changes += 1
        if self._changes % RECOUNT_EVERY == 0:
            self._recount()

    def count(self, now_s: float, node: int, *, counted: bool) -> None:
        """Whether the node is part of the spread from ``now_s`` on: a dead one is not."""
        self.advance(now_s)
        self.counted[node] = counted
        self._recount()

    def settle(self, node: int) -> None:
        """Bring the node's lost work up to now."""
        passed = self.now_s - float(self._since[node])
        self._since[node] = self.now_s
        if passed > 0 and self.highest[node] > 1.0:
            self.lost[node] += passed * (1.0 - _paces(self.demand[node]))

    def _recount(self) -> None:
        live = self.highest[self.counted]
        self._live = len(live)
        self._sum = float(live.sum())
        self._squares = float((live * live).sum())
        self._used = np.minimum(self.demand, 1.0).sum(axis=0)


def pattern_of(usage: FloatArray) -> int:
    """Which parts a pod competes for, as the index into ``NodeLoad.lost``."""
    return sum(1 << bit for bit, part in enumerate(RATES) if usage[part] > 0)


def _paces(demand: FloatArray) -> FloatArray:
    """Pace 0..1 by set of parts [2 ** rates]."""
    paces = np.ones(1 << len(RATES))
    for bit, part in enumerate(RATES):
        share = float(demand[part])
        if share > 1.0:
            uses = (np.arange(len(paces)) >> bit) & 1 == 1
            paces[uses] = np.minimum(paces[uses], 1.0 / share)
    return paces
