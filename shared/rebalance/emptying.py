"""Goal ``empty-nodes``: as few nodes in use as can be, those first that give most watts for the fewest moves.

A node is emptied whole or not at all: every pod on it but those of DaemonSets gets a place on another node in use, the
largest first, each where least is left over. A pod that fits nowhere may get its place from one smaller pod that goes
on to a third node. Nodes are tried until none can be emptied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from shared.rebalance.goals.measure import Floats, Rows
from shared.rebalance.limits import CountedMoves
from shared.rebalance.residents import Resident
from shared.rebalance.search import Wish
from shared.rebalance.trial import ClusterTrial
from shared.scheduling.state.node_table import BoolArray

MOST_JUDGED = 20_000
"""Pods judged by all filters for one plan."""
MOST_HOSTS, MOST_GIVING_WAY = 12, 6
"""Nodes on which somebody is asked to give way for a pod that fits nowhere, and how many of each are tried."""


class Emptying:
    """``residents``: all that stand; ``movable``: uids of those that may move; ``watts``: what an unused node saves."""

    def __init__(
        self,
        trial: ClusterTrial,
        residents: Sequence[Resident],
        movable: frozenset[str],
        counted: CountedMoves,
        closed: Mapping[str, frozenset[str]],
        watts: Callable[[int], float],
        least_gain: float = 1.0,
    ) -> None:
        self._trial, self._movable, self._counted, self._closed = trial, movable, counted, closed
        self._watts = watts
        self._least = least_gain
        self._first: dict[str, int] = {}
        self._by_uid = {one.uid: one for one in residents}
        self._on: dict[int, set[str]] = {}
        for one in residents:
            row = trial.row(one.uid)
            if row >= 0 and not one.stationary:
                self._first[one.uid] = row
                self._on.setdefault(row, set()).add(one.uid)
        self.freed: list[int] = []
        self._capped = ""

    @property
    def wishes(self) -> list[Wish]:
        """Who is to go where, in the order in which nodes were emptied; each node's gain is divided among its pods."""
        found = []
        for uid, first in self._first.items():
            row = self._trial.row(uid)
            if row != first:
                share = 1.0 / max(1, self._leavers[first]) if first in self.freed else 0.0
                found.append(Wish(self._by_uid[uid], first, row, share))
        place = {row: number for number, row in enumerate(self.freed)}
        return sorted(found, key=lambda wish: place.get(wish.source, -1))

    @property
    def in_use(self) -> int:
        """How many nodes are."""
        return sum(1 for there in self._on.values() if there)

    def run(self) -> str:
        """Empty node after node; why there is an end."""
        self._leavers: dict[int, int] = {row: len(there) for row, there in self._on.items()}
        if self._least > 1.0:
            return f"no node is worth {self._least:g}: a freed one counts 1"
        progress = True
        while progress:
            progress = False
            for row in self._candidates():
                if self._trial.judged > MOST_JUDGED:
                    return f"{MOST_JUDGED} places were looked at; a run on the result goes on"
                if self._emptied(row):
                    progress = True
        return f"the cap {self._capped} is reached" if self._capped else "no further node can be emptied"

    def _candidates(self) -> list[int]:
        """Nodes whose pods may all move, the most watts for a pod first; where that is equal the least used first."""
        table = self._trial.table
        rows = [row for row, there in self._on.items() if there and there <= self._movable]
        has = np.maximum(table.allocatable[:2], 1)
        used = (table.requested[:2] / has).max(0)
        return sorted(rows, key=lambda row: (used[row], len(self._on[row]), -self._watts(row), row))

    def _emptied(self, row: int) -> bool:
        """Whether all that stand on the node have a place elsewhere, which they have taken then."""
        trial, mark = self._trial, self._trial.mark
        uids = sorted(self._on.get(row, ()), key=lambda uid: (-self._weight(uid), uid))
        if not uids or not self._may(uids, row):
            return False
        moved: list[tuple[str, int, int]] = []
        for uid in uids:
            if not self._placed(uid, row, moved):
                trial.undo(mark)
                for other, source, target in reversed(moved):
                    self._on[target].discard(other)
                    self._on[source].add(other)
                return False
        for uid, *_ in moved:
            self._counted.count(self._by_uid[uid], trial.table.names[self._first[uid]])
        self.freed.append(row)
        return True

    def _may(self, uids: Sequence[str], row: int) -> bool:
        new = [uid for uid in uids if uid not in self._counted.uids]
        for uid in new:
            if cap := self._counted.refusal(self._by_uid[uid], self._trial.table.names[row], len(new)):
                self._capped = cap
                return False
        return True

    def _placed(self, uid: str, row: int, moved: list[tuple[str, int, int]]) -> bool:
        one = self._by_uid[uid]
        mask = self._open(one, row)
        target = self._tightest(one, mask)
        if target is None and not self._made_way(one, row, moved):
            return False
        if target is not None:
            self._go(uid, row, target, moved)
        return True

    def _open(self, one: Resident, *without: int) -> BoolArray:
        """Nodes in use that take the pod."""
        mask = self._trial.rows_for(one.replacement, instead_of=one.uid)
        used = np.zeros(len(mask), np.bool_)
        used[[row for row, there in self._on.items() if there]] = True
        used[list(without)] = False
        for name in self._closed.get(one.workload, ()):
            if name in self._trial.table.row_of:
                used[self._trial.table.row_of[name]] = False
        return mask & used

    def _tightest(self, one: Resident, mask: BoolArray) -> int | None:
        rows = np.flatnonzero(mask)
        if not len(rows):
            return None
        return int(rows[int(self._left_over(one, rows).argmin())])

    def _left_over(self, one: Resident, rows: Rows) -> Floats:
        """What is free of each node beside the pod, as shares added up."""
        table = self._trial.table
        asked = np.zeros(len(table.resource_names))
        for name, amount in one.replacement.pod_class.requests:
            if name in table.column_of:
                asked[table.column_of[name]] = amount
        has = table.allocatable[:2, rows]
        left = (has - table.requested[:2, rows] - asked[:2, None]) / np.maximum(has, 1)
        found: Floats = left.sum(0)
        return found

    def _made_way(self, one: Resident, row: int, moved: list[tuple[str, int, int]]) -> bool:
        """Whether a smaller pod elsewhere went on to a third node, and the pod came to its place."""
        trial, weight = self._trial, self._weight(one.uid)
        static = trial.feasibility.static_verdict(one.replacement.pod_class).mask
        hosts = np.array(
            [other for other, there in self._on.items() if there and other != row and static[other]], np.int64
        )
        if not len(hosts):
            return False
        order = hosts[np.argsort(-self._left_over(one, hosts), kind="stable")][:MOST_HOSTS]
        for host in order.tolist():
            there = [uid for uid in self._on[host] if uid in self._movable and self._weight(uid) < weight]
            for uid in sorted(there, key=lambda other: (self._weight(other), other))[:MOST_GIVING_WAY]:
                other = self._by_uid[uid]
                if self._counted.refusal(other, trial.table.names[self._first[uid]], 2):
                    continue
                mark = trial.mark
                trial.take(uid)
                if trial.takes(one.replacement, host, instead_of=one.uid):
                    trial.put(one.replacement, host)
                    third = self._tightest(other, self._open(other, row, host))
                    if third is not None:
                        trial.put(other.replacement, third)
                        moved += ((one.uid, row, host), (uid, host, third))
                        self._on[row].discard(one.uid)
                        self._on[host].discard(uid)
                        self._on[host].add(one.uid)
                        self._on[third].add(uid)
                        return True
                trial.undo(mark)
        return False

    def _go(self, uid: str, source: int, target: int, moved: list[tuple[str, int, int]]) -> None:
        self._trial.put(self._by_uid[uid].replacement, target)
        self._on[source].discard(uid)
        self._on[target].add(uid)
        moved.append((uid, source, target))

    def _weight(self, uid: str) -> float:
        """The pod's greatest share of a mean node."""
        table, pod_class = self._trial.table, self._by_uid[uid].pod.pod_class
        mean = table.allocatable[:2, : table.rows].mean(1)
        asked = dict(pod_class.requests)
        return float(max(asked.get("cpu", 0) / max(mean[0], 1.0), asked.get("memory", 0) / max(mean[1], 1.0)))
