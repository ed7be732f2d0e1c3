"""Where what queues have lent stands: the nodes that would take a unit if enough of it went, the likeliest first.

Sums only: what the pods of each queue hold on each node is counted once in a look. Whether a node takes the unit, and
who has to go, dry runs and rules say afterwards (``reclaiming.py``); a node that is left out here no eviction opens.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import numpy as np

from services.coordinator.core.state import State
from shared.model.pod import Pod
from shared.model.resources import PODS
from shared.scheduling.queues.nodes import Amounts, Line, Waiting
from shared.scheduling.queues.outlook import Outlook
from shared.scheduling.queues.reclaim.owed import givers
from shared.scheduling.queues.reclaim.search import Work
from shared.scheduling.queues.reclaim.victims import Stock
from shared.scheduling.state.node_table import PODS_COLUMN, IntArray

COUNTED = 1024
"""Pods of which it is counted in one part of the work where they stand."""

ROWS_PER_WORK = 8
"""Nodes whose sums are compared in the time in which one is looked at."""


class _Holdings:
    """What some pods hold, by resource: rows, and the amounts there."""

    def __init__(self, found: Counter[tuple[int, Amounts]]) -> None:
        rows, amounts = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
        for (row, asked), count in found.items():
            for name, amount in asked:
                rows[name].append(row)
                amounts[name].append(count * amount)
        self._of = {name: (np.array(rows[name], np.int64), np.array(amounts[name], np.int64)) for name in rows}

    def add_to(self, sums: IntArray, name: str) -> None:
        """Add what they hold of one resource to ``sums [rows]``."""
        if (found := self._of.get(name)) is not None:
            np.add.at(sums, *found)


class Lent:
    """One term's."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._held: dict[Line | None, _Holdings] = {}
        self._nodes_version = -1

    def begin(self) -> None:
        """A look begins: everything is to be counted anew."""
        self._held.clear()

    def nodes(self, pod: Pod, unit: Waiting, stock: Stock) -> Work[list[str]]:
        """The nodes, those first where the smallest part of what the unit asks for is to be freed. ``stock`` is told
        how many pods were looked at."""
        state = self._state
        table, tree = state.cache.table, state.queues
        rows = state.constraints.resolvable(pod)
        yield max(1, table.rows // ROWS_PER_WORK)
        if not len(rows):
            return []
        lines = yield from givers(Outlook(tree), unit)
        if state.nodes_version != self._nodes_version:
            self._nodes_version = state.nodes_version
            self._held.clear()
        counted: list[Line | None] = [None, *lines] if lines else []
        for line in counted:
            if line not in self._held:
                uids = list(tree.decided.leaving if line is None else line.charges)
                stock.weighed += len(uids)
                self._held[line] = yield from self._count(uids, leaving=line is None)
        if not lines or state.nodes_version != self._nodes_version:
            return []
        rows = rows[rows < table.rows]
        part = np.zeros(len(rows))
        enough = np.ones(len(rows), np.bool_)
        for name, amount in unit.amounts:
            column = PODS_COLUMN if name == PODS else table.column_of.get(name)
            if column is None:
                return []
            free = table.allocatable[column, : table.rows] - table.requested[column, : table.rows]
            self._held[None].add_to(free, name)
            given = np.zeros(table.rows, np.int64)
            for line in lines:
                self._held[line].add_to(given, name)
            short = np.maximum(0, amount - free[rows])
            enough &= short <= given[rows]
            part = np.maximum(part, short / amount)
        yield max(1, table.rows // ROWS_PER_WORK)
        found = [(float(part[at]), table.names[rows[at]]) for at in np.flatnonzero(enough)]
        return [name for _, name in sorted(found) if name in table.row_of]

    def _count(self, uids: list[str], *, leaving: bool) -> Work[_Holdings]:
        """What these hold where they stand: those that are leaving, or those that may be asked to."""
        found = Counter[tuple[int, Amounts]]()
        for part in (uids[start : start + COUNTED] for start in range(0, len(uids), COUNTED)):
            found.update(self._standing(part, leaving=leaving))
            yield len(part)
        return _Holdings(found)

    def _standing(self, uids: Iterable[str], *, leaving: bool) -> Iterable[tuple[int, Amounts]]:
        accounts, row_of = self._state.cache.accounts, self._state.cache.table.row_of
        for uid in uids:
            account, charge = accounts.get(uid), self._state.queues.charges.get(uid)
            if account is None or charge is None or charge.leaving is not leaving:
                continue
            row = row_of.get(account.node_name)
            if row is not None and (leaving or (charge.evictable and account.assumed_at is None)):
                yield row, charge.amounts
