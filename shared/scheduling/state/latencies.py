"""Measured round trips of nodes to what users named, as columns beside a node table: two arrays per target. Pure.

Policies read one that stands still while medians waver (``STEP``); limits that are strict are held against the newest
median as it is. A node's latency to "the users" in general is a fact of the node (an annotation) and lies in the table
itself.
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
MOST_LIMITED = 1024
"""Targets with a limit that are remembered beside those that somebody measures: pods may name what they like."""

_NONE: Mapping[str, NDArray[np.int64]] = {}


class TargetLatencies:
    """By target: int64 [capacity], microseconds, ``UNKNOWN_LATENCY`` where not known. False without any target."""

    def __init__(
        self,
        capacity: int,
        known: Mapping[str, NDArray[np.int64]] = _NONE,
        newest: Mapping[str, NDArray[np.int64]] = _NONE,
    ) -> None:
        self._capacity = capacity
        self._known = dict(known)
        self._newest = dict(newest)
        self._limited: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._known)

    def to(self, target: str, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64 [rows]."""
        known = self._known.get(target)
        return np.full(len(rows), UNKNOWN_LATENCY, np.int64) if known is None else known.take(rows)

    def newest(self, target: str, rows: NDArray[np.int64] | slice) -> NDArray[np.int64]:
        """int64 [rows]: the newest medians as they are."""
        newest = self._newest.get(target)
        if newest is None:
            newest = np.full(self._capacity, UNKNOWN_LATENCY, np.int64)
        found: NDArray[np.int64] = newest[rows]
        return found

    def limit(self, target: str) -> None:
        """Somebody is held to a limit of it: from now on every change of its medians is one."""
        if target not in self._limited:
            if len(self._limited) >= MOST_LIMITED:
                self._limited &= self._known.keys()
            self._limited.add(target)

    def put(self, row: int, latencies: Mapping[str, int]) -> dict[str, int]:
        """All that is measured of the row; a target that is not named is not known. What changed: by target what was
        the newest before."""
        changed: dict[str, int] = {}
        for target in latencies.keys() - self._known.keys():
            self._known[target] = np.full(self._capacity, UNKNOWN_LATENCY, np.int64)
            self._newest[target] = self._known[target].copy()
        for target, known in self._known.items():
            before, now = int(known[row]), latencies.get(target, UNKNOWN_LATENCY)
            last, self._newest[target][row] = int(self._newest[target][row]), now
            wavers = before >= 0 <= now and abs(now - before) <= max(STEP_US, STEP * before)
            if before != now and not wavers:
                known[row] = now
                changed[target] = last
            elif last != now and target in self._limited:
                changed[target] = last
        for target in [target for target in changed if not (self._known[target] >= 0).any()]:
            del self._known[target], self._newest[target]
        return changed

    def clear(self, row: int) -> None:
        """The node left."""
        for known in (*self._known.values(), *self._newest.values()):
            known[row] = UNKNOWN_LATENCY

    def grow(self, extra: int) -> None:
        """Room for more rows."""
        self._capacity += extra
        more = np.full(extra, UNKNOWN_LATENCY, np.int64)
        self._known = {target: np.concatenate((known, more)) for target, known in self._known.items()}
        self._newest = {target: np.concatenate((newest, more)) for target, newest in self._newest.items()}

    def of_rows(self, rows: NDArray[np.int64]) -> TargetLatencies:
        """Those rows alone, in this order; a row may stand there several times."""
        known = {target: known[rows] for target, known in self._known.items()}
        return TargetLatencies(len(rows), known, {target: newest[rows] for target, newest in self._newest.items()})
