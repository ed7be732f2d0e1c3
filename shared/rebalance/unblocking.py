"""Goal ``unblock``: a pod or gang that no node takes would fit if others moved; which, and where to.

Member by member, the largest first: on a node that takes it at once it is put; else nodes are looked at on which the
least is missing, and pods are taken off, the smallest that suffice, each to a node that takes it. Who went in vain
comes back. All members of the unit's minimum get a place, or nobody moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from shared.model.constraints import fitted
from shared.model.pod import Pod
from shared.rebalance.goals.measure import Floats, Rows
from shared.rebalance.limits import CountedMoves
from shared.rebalance.residents import Resident
from shared.rebalance.search import Wish
from shared.rebalance.trial import ClusterTrial
from shared.scheduling.state.node_table import PODS_COLUMN

MOST_NODES = 40
"""Nodes looked at for one member."""


class Unblocking:
    """``members``: pending pods of the unit; ``needed``: how many of them must have a place."""

    def __init__(
        self,
        trial: ClusterTrial,
        movable: Sequence[Resident],
        members: Sequence[Pod],
        needed: int,
        counted: CountedMoves,
        closed: Mapping[str, frozenset[str]],
    ) -> None:
        self._trial, self._members, self._needed = trial, members, needed
        self._counted, self._closed = counted, closed
        self._first = {one.uid: trial.row(one.uid) for one in movable}
        self._by_uid = {one.uid: one for one in movable}
        self._on: dict[int, set[str]] = {}
        for uid, row in self._first.items():
            self._on.setdefault(row, set()).add(uid)
        self.places: dict[str, int] = {}
        self.short = needed

    @property
    def wishes(self) -> list[Wish]:
        """Who is to go where."""
        found = []
        for uid, first in self._first.items():
            row = self._trial.row(uid)
            if row != first:
                found.append(Wish(self._by_uid[uid], first, row, 1.0, "unit"))
        return found

    def run(self) -> str:
        """Find places; why there is an end. Nobody has moved where the minimum has no room."""
        start, order = self._trial.mark, sorted(self._members, key=lambda pod: (-_amount(pod), pod.key))
        refusals: list[str] = []
        for pod in order:
            if len(self.places) >= self._needed:
                break
            row = self._place(pod)
            if row is None:
                refusals.append(pod.key)
            else:
                self.places[pod.key] = row
        self.short = max(0, self._needed - len(self.places))
        if self.short:
            self._trial.undo(start)
            self.places = {}
            return f"{self.short} of {self._needed} have no room whoever may move: {', '.join(refusals[:3])}"
        return "every member has room" if self.wishes else "every member has room already: nobody need move"

    def _place(self, pod: Pod) -> int | None:
        trial = self._trial
        rows = np.flatnonzero(trial.rows_for(pod))
        if len(rows):
            row = int(rows[int(self._short_of(pod)[rows].argmin())])
            trial.put(pod, row)
            return row
        static = trial.feasibility.static_verdict(pod.pod_class).mask
        short = self._short_of(pod)
        best: tuple[int, int, list[tuple[str, int]]] | None = None
        for row in [row for row in np.argsort(short, kind="stable").tolist() if static[row]][:MOST_NODES]:
            moves = self._opened(pod, row, len(best[2]) if best else 1 << 30)
            if moves is not None:
                best = (len(moves), row, moves)
                if len(moves) == 1:
                    break
        if best is None:
            return None
        for uid, target in best[2]:
            trial.put(self._by_uid[uid].replacement, target)
            self._counted.count(self._by_uid[uid], trial.table.names[self._first[uid]])
            self._on[best[1]].discard(uid)
            self._on.setdefault(target, set()).add(uid)
        trial.put(pod, best[1])
        return best[1]

    def _opened(self, pod: Pod, row: int, fewer_than: int) -> list[tuple[str, int]] | None:
        """Who goes where so that the node takes the pod, fewer than so many; the cluster is as before."""
        trial, mark = self._trial, self._trial.mark
        gone: list[tuple[str, int]] = []
        name = trial.table.names[row]
        there = sorted(
            self._on.get(row, ()), key=lambda uid: (self._useless(uid, pod), _amount(self._by_uid[uid].pod), uid)
        )
        fits = False
        for uid in there:
            if len(gone) + 1 >= fewer_than:
                break
            one = self._by_uid[uid]
            if self._counted.refusal(one, name, len(gone) + 1):
                continue
            mask = trial.rows_for(one.replacement, instead_of=uid)
            mask[row] = False
            for closed in self._closed.get(one.workload, ()):
                if closed in trial.table.row_of:
                    mask[trial.table.row_of[closed]] = False
            rows = np.flatnonzero(mask)
            if not len(rows):
                continue
            target = int(rows[int(self._free(rows).argmin())])
            trial.put(one.replacement, target)
            gone.append((uid, target))
            if trial.takes(pod, row):
                fits = True
                break
        if fits:
            gone = self._without_vain(pod, row, gone)
        trial.undo(mark)
        return gone if fits and len(gone) < fewer_than else None

    def _without_vain(self, pod: Pod, row: int, gone: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """Those of them that the pod needs: the others are back."""
        kept = list(gone)
        for uid, _ in gone[:-1]:
            mark = self._trial.mark
            one = self._by_uid[uid]
            if self._trial.takes(one.replacement, row, instead_of=uid):
                self._trial.put(one.replacement, row)
                if self._trial.takes(pod, row):
                    kept = [item for item in kept if item[0] != uid]
                    continue
            self._trial.undo(mark)
        return kept

    def _useless(self, uid: str, pod: Pod) -> bool:
        """Whether it holds nothing that the pod asks for."""
        held = {name for name, _ in self._by_uid[uid].pod.pod_class.requests}
        return not held & {name for name, _ in pod.pod_class.requests}

    def _short_of(self, pod: Pod) -> Floats:
        """``[rows]``: which part of what the pod asks for each node lacks, added up."""
        table = self._trial.table
        found = np.zeros(table.rows)
        for name, amount in (("pods", 1), *fitted(pod.pod_class)):
            column = PODS_COLUMN if name == "pods" else table.column_of.get(name)
            if column is not None:
                free = (table.allocatable[column] - table.requested[column])[: table.rows]
                found += np.clip((amount - free) / amount, 0.0, None)
        return found

    def _free(self, rows: Rows) -> Floats:
        table = self._trial.table
        has = np.maximum(table.allocatable[:2, rows], 1)
        found: Floats = ((has - table.requested[:2, rows]) / has).sum(0)
        return found


def _amount(pod: Pod) -> int:
    return sum(amount for name, amount in pod.pod_class.requests if name != "memory") * (1 << 40) + sum(
        amount for name, amount in pod.pod_class.requests if name == "memory"
    )
