"""Goal ``empty-nodes``: as few nodes in use as can be, those first that give most watts for the fewest moves.

A node is emptied whole or not at all: every pod on it but those of DaemonSets gets a place on another node in use, the
largest first, each where least is left over. A pod that fits nowhere may get its place from one smaller pod that goes
on to a third node. Nodes are tried until none can be emptied; where they are few, it is looked for other nodes to keep,
fewer and larger, on which everybody has room.
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
MOST_REBUILT = 200
"""Nodes in use up to which another set of them is looked for."""
MOST_HOSTS, MOST_GIVING_WAY = 12, 6
"""Nodes on which somebody is asked to give way for a pod that fits nowhere, and how many of each are tried."""


class Emptying:
    """``residents``: all that stand; ``movable``: uids of those that may move; ``watts``: what an unused node saves;
    ``reserved``: rows on which room is kept for others, which are not free whoever leaves."""

    def __init__(
        self,
        trial: ClusterTrial,
        residents: Sequence[Resident],
        movable: frozenset[str],
        counted: CountedMoves,
        closed: Mapping[str, frozenset[str]],
        watts: Callable[[int], float],
        least_gain: float = 1.0,
        reserved: frozenset[int] = frozenset(),
    ) -> None:
        self._trial, self._movable, self._counted, self._closed = trial, movable, counted, closed
        self._watts, self._reserved = watts, reserved
        self._group: dict[str, int] = {}
        """Which pods have moved for the same nodes, by uid."""
        self._least = least_gain
        self._first: dict[str, int] = {}
        self._by_uid = {one.uid: one for one in residents}
        self._on: dict[int, set[str]] = {}
        for one in residents:
            row = trial.row(one.uid)
            if row >= 0 and not one.stationary:
                self._first[one.uid] = row
                self._on.setdefault(row, set()).add(one.uid)
        self._leavers = {row: len(there) for row, there in self._on.items()}
        self._many: Rows = np.zeros(trial.table.rows, np.int64)
        """How many stand on each row."""
        for row, count in self._leavers.items():
            self._many[row] = count
        self._hosts: BoolArray | None = None
        """The only nodes that pods may come to; None: all in use."""
        self._capped = ""

    @property
    def freed(self) -> list[int]:
        """Nodes that were in use, and are not any more."""
        return [row for row in self._leavers if not self._on.get(row)]

    @property
    def wishes(self) -> list[Wish]:
        """Who is to go where, node by node; each node's gain is divided among its pods."""
        freed, found = set(self.freed), list[Wish]()
        for uid, first in self._first.items():
            row = self._trial.row(uid)
            if row != first:
                share = 1.0 / self._leavers[first] if first in freed else 0.0
                found.append(Wish(self._by_uid[uid], first, row, share, str(self._group.get(uid, ""))))
        return sorted(found, key=lambda wish: (-wish.gain, wish.source))

    @property
    def in_use(self) -> int:
        """How many nodes are."""
        return sum(1 for there in self._on.values() if there)

    def run(self) -> str:
        """Empty node after node, then look for another set of nodes to keep; why there is an end."""
        if self._least > 1.0:
            return f"no node is worth {self._least:g}: a freed one counts 1"
        progress = True
        while progress:
            progress = False
            for row in self._candidates():
                if self._trial.judged > MOST_JUDGED:
                    return f"{MOST_JUDGED} places were looked at; a run on the result goes on"
                progress |= self._emptied([row])
            progress = progress or self._rebuilt()
        return f"the cap {self._capped} is reached" if self._capped else "no further node can be emptied"

    def _candidates(self) -> list[int]:
        """Nodes whose pods may all move, those with the least on them first, then those that save the most watts."""
        rows = [row for row, there in self._on.items() if there and self._leavable(row)]
        load = self._load()
        return sorted(rows, key=lambda row: (load[row], -self._watts(row), row))

    def _leavable(self, row: int) -> bool:
        """Whether the node would be free if its pods left, and they may."""
        return row not in self._reserved and self._on[row] <= self._movable

    def _rebuilt(self) -> bool:
        """Whether fewer nodes, the largest, take all that stands on the others: looked at where nodes are few."""
        table = self._trial.table
        used = [row for row, there in self._on.items() if there]
        if len(used) > MOST_REBUILT:
            return False
        fixed = [row for row in used if not self._leavable(row)]
        has = table.allocatable[:2, : table.rows]
        size = (has / np.maximum(has.mean(1, keepdims=True), 1.0)).min(0)
        load = self._load()
        free = [row for row in np.flatnonzero(table.present[: table.rows]).tolist() if row not in set(fixed)]
        order = sorted(free, key=lambda row: (-size[row], -load[row], row))
        for count in range(max(0, self._fewest(has, [*fixed, *order]) - len(fixed)), len(used) - len(fixed)):
            kept = np.zeros(table.rows, np.bool_)
            kept[[*fixed, *order[:count]]] = True
            self._hosts = kept
            done = self._emptied([row for row in used if not kept[row]])
            self._hosts = None
            if done:
                return True
        return False

    def _fewest(self, has: Rows, order: Sequence[int]) -> int:
        """So many of these at least have together what is requested."""
        requested = self._trial.table.requested[:2, : self._trial.table.rows].sum(1, keepdims=True)
        enough = (np.cumsum(has[:, list(order)], 1) >= requested).all(0)
        return int(enough.argmax()) + 1 if enough.any() else len(order)

    def _load(self) -> Floats:
        """``[rows]``: what is requested of each node, in parts of a mean node."""
        table = self._trial.table
        mean = np.maximum(table.allocatable[:2, : table.rows].mean(1, keepdims=True), 1.0)
        found: Floats = (table.requested[:2, : table.rows] / mean).max(0)
        return found

    def _emptied(self, rows: Sequence[int]) -> bool:
        """Whether all that stand on these nodes have a place elsewhere, which they have taken then."""
        trial, mark = self._trial, self._trial.mark
        uids = [(uid, row) for row in rows for uid in self._on.get(row, ())]
        if not uids:
            return False
        if cap := self._counted.full(sum(uid not in self._counted.uids for uid, _ in uids)):
            self._capped = cap
            return False
        moved: list[tuple[str, int, int]] = []
        for uid, row in sorted(uids, key=lambda one: (-self._weight(one[0]), one[0])):
            if not self._placed(uid, row, moved):
                break
        else:
            if self._may([uid for uid, *_ in moved]):
                self._together([uid for uid, *_ in moved])
                return True
        trial.undo(mark)
        for other, source, target in reversed(moved):
            self._stands(other, target, source)
        return False

    def _together(self, uids: Sequence[str]) -> None:
        """These move for the same nodes, with those that any of them moved with before."""
        number = len(self._group)
        before = {self._group[uid] for uid in uids if uid in self._group}
        for uid in [*uids, *(uid for uid, old in self._group.items() if old in before)]:
            self._group[uid] = number

    def _may(self, uids: Sequence[str]) -> bool:
        """Whether the caps allow that these have moved, which counts then."""
        names = self._trial.table.names
        counted: list[tuple[Resident, str, int]] = []
        for uid in dict.fromkeys(uids):
            one, first = self._by_uid[uid], self._first[uid]
            sign = -1 if self._trial.row(uid) == first else 1
            if sign > 0 and (cap := self._counted.refusal(one, names[first])):
                self._capped = cap
                for other, source, before in reversed(counted):
                    self._counted.count(other, source, -before)
                return False
            if (uid in self._counted.uids) is not (sign > 0):
                self._counted.count(one, names[first], sign)
                counted.append((one, names[first], sign))
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
        used = self._hosting()
        used[list(without)] = False
        for name in self._closed.get(one.workload, ()):
            if name in self._trial.table.row_of:
                used[self._trial.table.row_of[name]] = False
        return mask & used

    def _hosting(self) -> BoolArray:
        """Nodes that pods may come to."""
        if self._hosts is not None:
            return self._hosts.copy()
        return self._many > 0

    def _tightest(self, one: Resident, mask: BoolArray) -> int | None:
        rows = np.flatnonzero(mask)
        if not len(rows):
            return None
        return int(rows[int((self._left_over(one, rows) - self._load()[rows]).argmin())])

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
        hosting = self._hosting() & static
        hosting[row] = False
        hosts = np.flatnonzero(hosting)
        if not len(hosts):
            return False
        order = hosts[np.argsort(-self._left_over(one, hosts), kind="stable")][:MOST_HOSTS]
        for host in order.tolist():
            there = [uid for uid in self._on.get(host, ()) if uid in self._movable and self._weight(uid) < weight]
            for uid in sorted(there, key=lambda other: (self._weight(other), other))[:MOST_GIVING_WAY]:
                other = self._by_uid[uid]
                if self._counted.refusal(other, trial.table.names[self._first[uid]]):
                    continue
                mark = trial.mark
                trial.take(uid)
                if trial.takes(one.replacement, host, instead_of=one.uid):
                    trial.put(one.replacement, host)
                    third = self._tightest(other, self._open(other, row, host))
                    if third is not None:
                        self._stands(one.uid, row, host)
                        moved.append((one.uid, row, host))
                        self._go(uid, host, third, moved)
                        return True
                trial.undo(mark)
        return False

    def _go(self, uid: str, source: int, target: int, moved: list[tuple[str, int, int]]) -> None:
        self._trial.put(self._by_uid[uid].replacement, target)
        self._stands(uid, source, target)
        moved.append((uid, source, target))

    def _stands(self, uid: str, source: int, target: int) -> None:
        """It is counted on the target, and no longer on the source."""
        self._on[source].discard(uid)
        self._on.setdefault(target, set()).add(uid)
        self._many[source] -= 1
        self._many[target] += 1

    def _weight(self, uid: str) -> float:
        """The pod's greatest share of a mean node."""
        table, pod_class = self._trial.table, self._by_uid[uid].pod.pod_class
        mean = table.allocatable[:2, : table.rows].mean(1)
        asked = dict(pod_class.requests)
        return float(max(asked.get("cpu", 0) / max(mean[0], 1.0), asked.get("memory", 0) / max(mean[1], 1.0)))
