"""What nodes were last measured to use, and what was requested there by then, as columns beside a node table. Pure.

A measurement is late, and requests are exact and known at once. So both are kept of the moment that it is of: whoever
knows what is requested now can tell what has come and gone since. Whether a measurement is too old the coordinator
says, for all (``services/coordinator/usage``), so one node's use is the same whichever agent looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

MEASURABLE = 4
"""cpu, memory, disk, network: the first of ``shared.model.load.PARTS``."""
REQUESTABLE = 2
"""cpu and memory."""

_PLACES = np.arange(MEASURABLE)

Told = tuple[int, Sequence[float], int, Sequence[int]]
"""Of a row: the shares in use, as bit i of the next which part i was not measured, and what was requested by then."""


class MeasuredUse:
    """``shares`` float64 [MEASURABLE, capacity] of what nodes have; ``known`` bool, likewise: measured; ``requested``
    float64 [REQUESTABLE, capacity]: milli-cores and bytes. False where nothing is measured of any node."""

    def __init__(self, capacity: int) -> None:
        self.shares: NDArray[np.float64] = np.zeros((MEASURABLE, capacity))
        self.known: NDArray[np.bool_] = np.zeros((MEASURABLE, capacity), np.bool_)
        self.requested: NDArray[np.float64] = np.zeros((REQUESTABLE, capacity))
        self._rows: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._rows)

    def put(self, row: int, shares: Sequence[float], unmeasured: int, requested: Sequence[int]) -> bool:
        """All that is measured of the row, as ``put_some``; whether that is anything else than before."""
        return bool(self.put_some([(row, shares, unmeasured, requested)]))

    def put_some(self, told: Iterable[Told]) -> list[int]:
        """All that is measured of these rows, each once; those of which it is anything else than before. What has
        another length, as another release may tell it, is nothing."""
        changed: list[int] = []
        readable: list[Told] = []
        for one in told:
            if len(one[1]) == MEASURABLE and len(one[3]) == REQUESTABLE:
                readable.append(one)
            elif self.clear(one[0]):
                changed.append(one[0])
        if not readable:
            return changed
        rows = np.array([one[0] for one in readable])
        shares = np.array([one[1] for one in readable], np.float64).T
        unmeasured = np.array([one[2] for one in readable])
        requested = np.array([one[3] for one in readable], np.float64).T
        known = (unmeasured >> _PLACES[:, None] & 1 == 0) & np.isfinite(shares) & (shares >= 0)
        shares = np.where(known, shares, 0.0)
        other = (known != self.known[:, rows]).any(axis=0) | (shares != self.shares[:, rows]).any(axis=0)
        other |= (requested != self.requested[:, rows]).any(axis=0)
        self.known[:, rows], self.shares[:, rows], self.requested[:, rows] = known, shares, requested
        for row, measured in zip(rows.tolist(), known.any(axis=0).tolist(), strict=True):
            (self._rows.add if measured else self._rows.discard)(row)
        changed += rows[other].tolist()
        return changed

    def clear(self, row: int) -> bool:
        """Nothing is measured of it any more; whether anything was."""
        if row not in self._rows:
            return False
        self._rows.remove(row)
        self.known[:, row], self.shares[:, row], self.requested[:, row] = False, 0.0, 0.0
        return True

    def then(self, row: int) -> list[int]:
        """What was requested of the row, as ``put`` takes it; empty: nothing is measured."""
        return [int(amount) for amount in self.requested[:, row].tolist()] if row in self._rows else []

    def grow(self, extra: int) -> None:
        """Room for more rows."""
        more = ((0, 0), (0, extra))
        self.shares, self.known = np.pad(self.shares, more), np.pad(self.known, more)
        self.requested = np.pad(self.requested, more)

    def of_rows(self, rows: NDArray[np.int64]) -> MeasuredUse:
        """Those rows alone, in this order; a row may stand there several times."""
        if not self._rows:
            return MeasuredUse(len(rows))
        other = MeasuredUse(0)
        other.shares, other.known, other.requested = self.shares[:, rows], self.known[:, rows], self.requested[:, rows]
        other._rows = {place for place, row in enumerate(rows.tolist()) if row in self._rows}
        return other
