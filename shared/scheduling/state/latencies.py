"""Measured round trips of nodes to what users named, as columns beside a node table: one array per target. Pure.

A node's latency to "the users" in general is a fact of the node (an annotation) and lies in the table itself.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from shared.model.node import UNKNOWN_LATENCY

STEP_US = 250
STEP = 0.03
"""What moved by less than the one, or than this part of itself, stays as it is: each change makes its row to be judged
anew, and a median of five moves a little all the time."""


class TargetLatencies:
    """By target: int64 [capacity], microseconds, ``UNKNOWN_LATENCY`` where not known. False without any target."""

    def __init__(self, capacity: int, known: dict[str, NDArray[np.int64]] | None = None) -> None:
        self._capacity = capacity
        self._known = known if known is not None else {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def to(self, target: str, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64 [rows]."""
        known = self._known.get(target)
        return np.full(len(rows), UNKNOWN_LATENCY, np.int64) if known is None else known.take(rows)

    def put(self, row: int, latencies: Mapping[str, int]) -> bool:
        """All that is measured of the row; a target that is not named is not known. Whether anything changed."""
        changed = False
        for target in latencies.keys() - self._known.keys():
            self._known[target] = np.full(self._capacity, UNKNOWN_LATENCY, np.int64)
        for target, known in self._known.items():
            before, now = int(known[row]), latencies.get(target, UNKNOWN_LATENCY)
            if before == now or (before >= 0 <= now and abs(now - before) <= max(STEP_US, STEP * before)):
                continue
            known[row] = now
            changed = True
        if changed:
            self._known = {target: known for target, known in self._known.items() if (known >= 0).any()}
        return changed

    def clear(self, row: int) -> None:
        """The node left."""
        for known in self._known.values():
            known[row] = UNKNOWN_LATENCY

    def grow(self, extra: int) -> None:
        """Room for more rows."""
        self._capacity += extra
        more = np.full(extra, UNKNOWN_LATENCY, np.int64)
        self._known = {target: np.concatenate((known, more)) for target, known in self._known.items()}

    def of_rows(self, rows: NDArray[np.int64]) -> TargetLatencies:
        """Those rows alone, in this order; a row may stand there several times."""
        return TargetLatencies(len(rows), {target: known[rows] for target, known in self._known.items()})
