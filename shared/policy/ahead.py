"""What the rows of a table are worth to units of a class once other units of it stand there: judged in thought, some
rows and numbers of units at once, so that many units cost little more than one.

For policies that judge a row alike whatever is counted on others (``rows_apart``). Nothing is counted on the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from shared.model.constraints import PodClass
from shared.policy.observation import Verdicts
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.state.node_table import IntArray, NodeTable

Judge = Callable[[NodeTable, IntArray], Verdicts]
"""Verdicts on some rows of a table."""


Worth = tuple[float, bool]
"""A policy's verdict on one row: score, and whether it accepts."""


class Ahead:
    """Of one class and some rows that take it."""

    def __init__(
        self, table: NodeTable, feasibility: FeasibilityCache, pod_class: PodClass, rows: Iterable[int], judge: Judge
    ) -> None:
        self._table = table
        self._feasibility = feasibility
        self._pod_class = pod_class
        self._judge = judge
        self._known: dict[int, list[Worth | None]] = {row: [] for row in rows}

    def worth(self, row: int, units: int) -> Worth | None:
        """The row's with so many units more on it, None: it takes no further one. To be asked in order of ``units``."""
        known = self._known[row]
        if len(known) < units:
            self._look(row, units)
        return known[units - 1]

    def _look(self, row: int, units: int) -> None:
        """Judge the row with so many units and up to twice as many and one, for it may get all; and each other row that
        is known as far with so many, at first also with one more, for they may get as many each."""
        deep, wide = list(range(units, 2 * units + 1)), [1, 2] if units == 1 else [units]
        others = [
            other for other, known in self._known.items()
            if other != row and len(known) == units - 1 and (units == 1 or known[-1] is not None)
        ]  # fmt: skip
        rows = np.concatenate(([row] * len(deep), np.repeat(np.array(others, np.int64), len(wide))))
        copies = np.concatenate((deep, np.tile(np.array(wide, np.int64), len(others))))
        table = self._table.with_copies(rows, copies, self._pod_class)
        takes = self._feasibility.of_copies(table, self._pod_class)
        if self._pod_class.claimed[0]:
            takes &= table.claim_fits(self._pod_class.claimed)
        found = np.flatnonzero(takes)
        worth: list[Worth | None] = [None] * len(rows)
        if len(found):
            verdicts = self._judge(table, found)
            accept = [True] * len(found) if verdicts.accept is None else verdicts.accept.tolist()
            for place, score, accepted in zip(found.tolist(), verdicts.score.tolist(), accept, strict=True):
                worth[place] = score, accepted
        self._known[row] += worth[: len(deep)]
        step = len(wide)
        for index, other in enumerate(others):
            start = len(deep) + index * step
            self._known[other] += worth[start : start + step]
