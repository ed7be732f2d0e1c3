"""Where what queues have lent stands: the nodes that would take a unit if enough of it went, the likeliest first.

    a pod counts, leaves or goes --> summed up by queue and node --a unit of a new kind--> nodes in order
    the next units of that kind --> the nodes found for the first, then those behind them

Sums only: whether a node takes the unit, and who has to go, dry runs and rules say afterwards (``reclaiming.py``); a
node that is left out here no eviction opens. The sums are kept while looks ask for them, moved by what changes; the
order is that of the moment when the first of a kind asked for it in a look.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator

import numpy as np

from services.coordinator.core.state import CoordinatorState
from shared.model.pod import Pod
from shared.model.resources import PODS
from shared.scheduling.parked_groups import group_key
from shared.scheduling.queues.nodes import Amounts, QueueLine, WaitingUnit
from shared.scheduling.queues.outlook import QueueOutlook
from shared.scheduling.queues.reclaim.owed import givers
from shared.scheduling.queues.reclaim.search import Work
from shared.scheduling.queues.turns import amounts_of
from shared.scheduling.state.node_table import PODS_COLUMN, IntArray

COUNTED = 1024
"""Pods of which it is counted in one part of the work where they stand."""

ROWS_PER_WORK = 8
"""Nodes whose sums are compared in the time in which one is looked at."""

KINDS_KEPT = 1024
"""Kinds of units of which it is remembered how many nodes were tried in vain."""


class _Holdings:
    """What some pods hold, by resource and row."""

    def __init__(self) -> None:
        self._of: dict[str, dict[int, int]] = {}

    def count(self, row: int, amounts: Amounts, sign: int) -> None:
        """One more pod, or (-1) one less."""
        for name, amount in amounts:
            there = self._of.setdefault(name, {})
            after = there.get(row, 0) + sign * amount
            if after:
                there[row] = after
            else:
                there.pop(row, None)

    def add_to(self, sums: IntArray, name: str) -> None:
        """Add what they hold of one resource to ``sums [rows]``."""
        if there := self._of.get(name):
            rows = np.fromiter(there.keys(), np.int64, len(there))
            sums[rows] += np.fromiter(there.values(), np.int64, len(there))


class LentRanking:
    """The nodes for units of one kind, in one look. Those on which somebody was found are offered to the next unit
    first, where the fewest had to go; then come those that were not tried yet."""

    def __init__(self, names: list[str], first: int) -> None:
        self._names = names
        self._next = first if first < len(names) else 0
        self._left = len(names)
        self._found: list[tuple[int, int, str]] = []
        """(how many had to go, the place in the order, the node), a heap."""

    @property
    def tried(self) -> int:
        """The place of the next node in the order: where the next look goes on, had none of these helped."""
        return self._next

    def untried(self) -> tuple[int, str] | None:
        """(place, name) of the next node that was not tried; None: all were."""
        if not self._left:
            return None
        at = self._next
        self._left -= 1
        self._next = (at + 1) % len(self._names)
        return at, self._names[at]

    def found(self, at: int, node: str, victims: int) -> None:
        """So many have to go there."""
        heapq.heappush(self._found, (victims, at, node))

    def best(self) -> tuple[int, str] | None:
        """Take off where the fewest had to go, when it was tried last: (place, name)."""
        return heapq.heappop(self._found)[1:] if self._found else None

    @property
    def fewest(self) -> int | None:
        """So many had to go at the best node; None: there is none."""
        return self._found[0][0] if self._found else None

    def __len__(self) -> int:
        """On how many nodes somebody was found."""
        return len(self._found)


class Lent:
    """Knows where what queues have lent stands, in one term."""

    def __init__(self, state: CoordinatorState) -> None:
        self._state = state
        self._held: dict[QueueLine | None, _Holdings] = {}
        """By queue what may be asked to leave; None: what is leaving."""
        self._of: dict[str, tuple[QueueLine | None, int, Amounts]] = {}
        """What of that each pod is."""
        self._changed: dict[str, None] | None = None
        """Pods that may hold something else by now; None: nothing is summed up."""
        self._nodes_version = -1
        self._rankings: dict[Hashable, LentRanking] = {}
        self._tried: OrderedDict[Hashable, int] = OrderedDict()

    def begin(self) -> None:
        """A look begins. What nobody asked for in the last is not followed any more."""
        if not self._rankings:
            self.forget()
        self._rankings.clear()

    def forget(self) -> None:
        """The sums are not kept any more, until somebody asks for them."""
        self._changed = self._state.queues.changed = None
        self._held.clear()
        self._of.clear()

    def ranking(self, pod: Pod, unit: WaitingUnit) -> Work[LentRanking | None]:
        """The nodes, those first where the smallest part of what the unit asks for is to be freed; None: nobody owes it
        anything, or no node may be opened for it."""
        lines = yield from givers(QueueOutlook(self._state.queues), unit)
        if not lines:
            return None
        kind = self._kind(pod, unit)
        known = self._rankings.get(kind)
        if known is None:
            yield from self._count()
            names = yield from self._in_order(pod, unit, lines)
            known = self._rankings[kind] = LentRanking(names, self._tried.pop(kind, 0))
        return known

    def tried_in_vain(self, pod: Pod, unit: WaitingUnit, ranking: LentRanking) -> None:
        """None of the nodes that were tried for the unit helps: the next look goes on behind them."""
        self._tried[self._kind(pod, unit)] = ranking.tried
        while len(self._tried) > KINDS_KEPT:
            self._tried.popitem(last=False)

    @staticmethod
    def _kind(pod: Pod, unit: WaitingUnit) -> Hashable:
        return unit.line, unit.amounts, group_key(pod)

    # --- in order -----------------------------------------------------------------------------------------------

    def _in_order(self, pod: Pod, unit: WaitingUnit, lines: Iterable[QueueLine]) -> Work[list[str]]:
        state = self._state
        table = state.cache.table
        rows = state.constraints.resolvable(pod)
        yield max(1, table.rows // ROWS_PER_WORK)
        # A part of the work lies behind: rows may be other nodes' by now.
        if state.nodes_version != self._nodes_version:
            return []
        rows = rows[rows < table.rows]
        part = np.zeros(len(rows))
        enough = np.ones(len(rows), np.bool_)
        for name, amount in unit.amounts:
            column = PODS_COLUMN if name == PODS else table.column_of.get(name)
            if column is None:
                return []
            free = table.allocatable[column, : table.rows] - table.requested[column, : table.rows]
            self._add(free, name, (None,))
            self._keep_for_nominated(free, name, pod.priority)
            given = np.zeros(table.rows, np.int64)
            self._add(given, name, lines)
            short = np.maximum(0, amount - free[rows])
            enough &= short <= given[rows]
            part = np.maximum(part, short / amount)
        yield max(1, table.rows // ROWS_PER_WORK)
        rows, part = rows[enough], part[enough]
        names = [name for row in rows.tolist() if (name := table.names[row])]
        if len(names) < len(rows) or state.nodes_version != self._nodes_version:
            return []
        # Among equals by name: whoever leads tries the same nodes first (I11).
        return [names[at] for at in np.lexsort((np.array(names, np.str_), part)).tolist()]

    def _add(self, sums: IntArray, name: str, lines: Iterable[QueueLine | None]) -> None:
        for line in lines:
            if (held := self._held.get(line)) is not None:
                held.add_to(sums, name)

    def _keep_for_nominated(self, free: IntArray, name: str, priority: int) -> None:
        """What is kept for those that are nominated, and as important, is not free."""
        for pod_class, rows in self._state.cluster.held_for(priority).copies.items():
            amount = dict(amounts_of(pod_class.requests)).get(name, 0)
            if amount:
                held = np.fromiter(rows.keys(), np.int64, len(rows))
                free[held] -= amount * np.fromiter(rows.values(), np.int64, len(rows))

    # --- summed up ----------------------------------------------------------------------------------------------

    def _count(self) -> Work[None]:
        """Bring the sums up to date: costs as what changed since."""
        state = self._state
        tree = state.queues
        # `is not`: a tree that was cleared follows another dict, and has told this one nothing since.
        if self._changed is None or tree.changed is not self._changed or state.nodes_version != self._nodes_version:
            self.forget()
            self._nodes_version = state.nodes_version
            self._changed = tree.changed = dict.fromkeys(tree.charges)
        changed = self._changed
        while changed and changed is self._changed:
            some = [uid for uid, _ in zip(changed, range(COUNTED), strict=False)]
            for uid in some:
                del changed[uid]
                self._count_one(uid)
            yield len(some)

    def _count_one(self, uid: str) -> None:
        before, now = self._of.pop(uid, None), self._standing(uid)
        if before is not None:
            line, row, amounts = before
            self._held[line].count(row, amounts, -1)
        if now is not None:
            line, row, amounts = self._of[uid] = now
            held = self._held.get(line)
            if held is None:
                held = self._held[line] = _Holdings()
            held.count(row, amounts, 1)

    def _standing(self, uid: str) -> tuple[QueueLine | None, int, Amounts] | None:
        """What the pod holds where it stands, if it leaves, or may be asked to."""
        state = self._state
        account, charge = state.cache.accounts.get(uid), state.queues.charges.get(uid)
        if account is None or charge is None:
            return None
        row = state.cache.table.row_of.get(account.node_name)
        if row is None or not (charge.leaving or (charge.evictable and account.assumed_at is None)):
            return None
        return None if charge.leaving else charge.line, row, charge.amounts

    def broken(self) -> Iterator[str]:
        """What is wrong with the sums; nothing while all is well. Costs as all pods."""
        state = self._state
        tree, turns = state.queues, state.queue.turns
        if self._changed is None or self._changed is not tree.changed or state.nodes_version != self._nodes_version:
            return
        unknown = self._changed.keys() | (turns.dirty.keys() if turns is not None else set[str]())
        for uid in (self._of.keys() | tree.charges.keys()) - unknown:
            if self._of.get(uid) != self._standing(uid):
                yield f"queue-lent: {uid} is summed up as {self._of.get(uid)}, and is {self._standing(uid)}"
