"""Single moves, the best first, until none brings the goal nearer by what a move must be worth.

What a move is worth is looked up in arrays: what a pod's leaving changes, and what the coming of one of its kind
changes on each node. The best one is then judged by every filter, with the pod taken off its node; one that is refused
is judged again when others have moved. The end is a state in which no move that is looked at is worth it: a
second run on it, whose look is the same, makes none.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shared.model.constraints import fitted
from shared.rebalance.goals.measure import Floats, GoalMeasure, Rows
from shared.rebalance.limits import CountedMoves
from shared.rebalance.residents import Resident
from shared.rebalance.trial import ClusterTrial
from shared.scheduling.state.node_table import PODS_COLUMN, BoolArray

MOST_KINDS = 256
"""Kinds of pods looked at: those of the pods that weigh most where they stand."""
MOST_REFUSED = 400
"""Pods judged in vain for one move."""
NO_ROOM = np.inf
LEAST_PART = 1e-3
"""Of the goal's own least gain: below it a gain is not told from rounding, and there would be no end."""
STEPS_A_POD = 8
"""Steps of one search, for each pod that may move."""


@dataclass(slots=True)
class Wish:
    """A pod is to stand on ``target`` in place of ``source`` (rows). ``group``: wishes that win nothing unless all of
    them are made, "" none."""

    resident: Resident
    source: int
    target: int
    gain: float = 0.0
    group: str = ""


class SingleMoves:
    """``movable``: who may move; ``closed``: by workload the nodes it may not come to."""

    def __init__(
        self,
        trial: ClusterTrial,
        measure: GoalMeasure,
        movable: Sequence[Resident],
        counted: CountedMoves,
        closed: Mapping[str, frozenset[str]],
        least_gain: float,
    ) -> None:
        self._trial, self._measure, self._counted, self._closed = trial, measure, counted, closed
        self._least = max(least_gain, measure.least_gain * LEAST_PART)
        self._pods = list(movable)
        self._first = {one.uid: trial.row(one.uid) for one in self._pods}
        self._leaving: Floats = measure.leaving(self._pods) if self._pods else np.zeros(0)
        self._choose_kinds()
        self._row: Rows = np.array([self._first[one.uid] for one in self._pods], np.int64)
        self._here: dict[int, list[int]] = {}
        for index, row in enumerate(self._row.tolist()):
            self._here.setdefault(row, []).append(index)
        self._prepare()
        self.wishes: dict[str, Wish] = {}

    def run(self) -> str:
        """Move until there is an end; why there is. ``wishes``: who is to go where."""
        refused: dict[int, float] = {}
        for _ in range(STEPS_A_POD * (len(self._pods) + 1)):
            found = self._next(refused)
            if found is None and refused:
                refused = {}
                found = self._next(refused)
            if found is None:
                return (
                    f"no further move brings the goal nearer by {self._least:g}" if not self._capped else self._capped
                )
            index, target, gain = found
            self._move(index, target, gain)
            refused.pop(index, None)
        return "steps enough were made; a run on the result goes on"

    # --- inside -------------------------------------------------------------------------------------------------

    def _choose_kinds(self) -> None:
        """Leave out pods of kinds beyond the most: those that weigh least."""
        number: dict[Hashable, int] = {}
        of: dict[int, int] = {}
        for index in np.argsort(self._leaving, kind="stable").tolist():
            kind = self._measure.kind(self._pods[index])
            if kind in number or len(number) < MOST_KINDS:
                of[index] = number.setdefault(kind, len(number))
        kept = sorted(of)
        self._pods, self._leaving = [self._pods[index] for index in kept], self._leaving[kept]
        self._kind: Rows = np.array([of[index] for index in kept], np.int64)
        self._example: list[Resident] = [self._pods[0]] * len(number) if kept else []
        for index, kind_number in enumerate(self._kind.tolist()):
            self._example[kind_number] = self._pods[index]

    def _prepare(self) -> None:
        """What coming is worth, and where there is room, ``[kinds, rows]``."""
        table, feasibility = self._trial.table, self._trial.feasibility
        every = np.arange(table.rows)
        shape = (len(self._example), table.rows)
        self._coming: Floats = np.full(shape, NO_ROOM)
        self._static: BoolArray = np.zeros(shape, np.bool_)
        room: BoolArray = np.zeros(shape, np.bool_)
        self._asked: Rows = np.zeros((len(self._example), len(table.resource_names)), np.int64)
        self._asked[:, PODS_COLUMN] = 1
        for number, one in enumerate(self._example):
            pod_class = one.replacement.pod_class
            room[number] = feasibility.of(pod_class).mask
            self._static[number] = feasibility.static_verdict(pod_class).mask
            for name, amount in fitted(pod_class):
                if name in table.column_of:
                    self._asked[number, table.column_of[name]] = amount
            self._coming[number] = self._measure.coming(one, every)
        self._coming[~room] = NO_ROOM
        self._capped = ""

    def _next(self, refused: dict[int, float]) -> tuple[int, int, float] | None:
        """(pod, row, gain) of the best move; None: there is none. ``refused``: what pods are worth by all filters."""
        if not self._pods:
            return None
        worth = self._worth()
        for index, value in refused.items():
            worth[index] = max(worth[index], value)
        certain: dict[int, int] = {}
        for _ in range(MOST_REFUSED):
            index = int(worth.argmin())
            if not -worth[index] >= self._least:
                return None
            if index in certain:
                return index, certain[index], -float(worth[index])
            one = self._pods[index]
            if cap := self._counted.refusal(one, self._trial.table.names[self._first[one.uid]]):
                self._capped = f"the cap {cap} is reached"
                worth[index] = NO_ROOM
                refused[index] = NO_ROOM
                continue
            value, target = self._judged(index)
            worth[index] = refused[index] = value
            certain[index] = target
        return None

    def _worth(self) -> Floats:
        """``[pods]``: the best that the arrays promise of each."""
        coming = self._coming
        kinds = np.arange(len(coming))
        best = coming.argmin(1)
        first = coming[kinds, best]
        coming[kinds, best] = NO_ROOM
        second = coming.min(1)
        coming[kinds, best] = first
        found: Floats = self._leaving + np.where(best[self._kind] != self._row, first[self._kind], second[self._kind])
        return found

    def _judged(self, index: int) -> tuple[float, int]:
        """What the pod's best move is worth by every filter, and where to."""
        one, row = self._pods[index], int(self._row[index])
        mask = self._trial.rows_for(one.replacement, instead_of=one.uid)
        mask[row] = False
        for name in self._closed.get(one.workload, ()):
            if (closed := self._trial.table.row_of.get(name)) is not None and closed != self._first[one.uid]:
                mask[closed] = False
        rows = np.flatnonzero(mask)
        if not len(rows):
            return NO_ROOM, -1
        coming = self._measure.coming(one, rows)
        best = int(coming.argmin())
        return float(self._leaving[index] + coming[best]), int(rows[best])

    def _move(self, index: int, target: int, gain: float) -> None:
        one, source = self._pods[index], int(self._row[index])
        first = self._first[one.uid]
        self._trial.put(one.replacement, target)
        changed = np.array((source, target), np.int64)
        self._measure.moved(one, changed)
        self._here[source].remove(index)
        self._here.setdefault(target, []).append(index)
        self._row[index] = target
        wish = self.wishes.setdefault(one.uid, Wish(one, first, target))
        wish.target, wish.gain = target, wish.gain + gain
        self._counted.count(one, self._trial.table.names[first])
        if target == first:
            del self.wishes[one.uid]
            self._counted.count(one, self._trial.table.names[first], -1)
        touched = [*self._here[source], *self._here[target]]
        self._leaving[touched] = self._measure.leaving([self._pods[other] for other in touched])
        self._refresh(changed)

    def _refresh(self, rows: Rows) -> None:
        """What coming to these rows is worth now; of room, what amounts alone say: the filters judge before a move."""
        table = self._trial.table
        free = (table.allocatable - table.requested)[:, rows]
        room = self._static[:, rows] & (self._asked[:, :, None] <= free[None]).all(1)
        for number, one in enumerate(self._example):
            self._coming[number, rows] = self._measure.coming(one, rows)
        self._coming[:, rows] = np.where(room, self._coming[:, rows], NO_ROOM)
