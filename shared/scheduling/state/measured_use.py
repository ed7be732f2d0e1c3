"""What nodes were last measured to use, and what was requested there by then, as columns beside a node table. Pure.

A measurement is late, and requests are exact and known at once. So both are kept of the moment that it is of: whoever
knows what is requested now can tell what has come and gone since. Whether a measurement is too old the coordinator
says, for all (``services/coordinator/usage``), so one node's use is the same whichever agent looks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MEASURABLE = 4
"""cpu, memory, disk, network: the first of ``shared.model.load.PARTS``."""
REQUESTABLE = 2
"""cpu and memory."""

_PLACES = np.arange(MEASURABLE)


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
        """All that is measured of the row; whether that is anything else than before. ``unmeasured``: bit i is set
        where part i was not. What has another length, as another release may tell it, is nothing."""
        if len(shares) != MEASURABLE or len(requested) != REQUESTABLE:
            return self.clear(row)
        told = np.array(shares, np.float64)
        known = (unmeasured >> _PLACES & 1 == 0) & np.isfinite(told) & (told >= 0)
        told = np.where(known, told, 0.0)
        if (
            (known == self.known[:, row]).all()
            and (told == self.shares[:, row]).all()
            and (self.requested[:, row] == requested).all()
        ):
            return False
        self.known[:, row], self.shares[:, row], self.requested[:, row] = known, told, requested
        (self._rows.add if known.any() else self._rows.discard)(row)
        return True

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
