"""In which order moves are made: batches, each of which fits beside everything that stands before it.

The place of every move of a batch is reserved before anybody of it leaves. So a move *needs* another when its place is
free only once that one has left; it comes in a later batch. Moves that need each other around (a strongly connected
component that is no single move) can begin nowhere: one of them goes over a node that has room for it, and on from
there; where none has, the one that is worth least is left out, and the others follow (a partial step).

What budgets allow holds per batch: a batch begins when the replacements of the one before are Ready. Of one workload
only a part moves at once, with those that are not Ready anyway. Nobody moves whom a pod that stays must have beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from shared.model.terms.labels import selects
from shared.model.terms.relations import Relations
from shared.rebalance.components import components
from shared.rebalance.limits import Caps, at_most_at_once
from shared.rebalance.protections import CoveringBudgets
from shared.rebalance.residents import Resident
from shared.rebalance.search import Wish
from shared.rebalance.trial import ClusterTrial, copy_of, room_for
from shared.scheduling.profiles import spreads_by_default

FITS = "its place is free from the start"
ROOM = "room"
MOST_TOLD = 3


@dataclass(slots=True)
class MoveStep:
    """A move in its batch. ``after``: keys of pods that have to leave first; ``why``: why it is here."""

    wish: Wish
    why: str = FITS
    after: tuple[str, ...] = ()


@dataclass(slots=True)
class OrderedMoves:
    """``left``: wishes that are not made, and why."""

    batches: list[list[MoveStep]] = field(default_factory=list)
    left: list[tuple[Wish, str]] = field(default_factory=list)


class MoveOrdering:
    """``trial``: the cluster as it is before the first move; it is left as it is after the last. ``away``: by workload
    pods that stand nowhere yet."""

    def __init__(
        self, trial: ClusterTrial, budgets: CoveringBudgets, caps: Caps, standing: Sequence[Resident],
        away: Mapping[str, int] | None = None,
    ) -> None:  # fmt: skip
        self._trial, self._covering, self._budgets, self._caps = trial, budgets, budgets.all, caps
        self._copies = Counter(one.workload for one in standing) + Counter(away or {})
        self._unready = Counter(one.workload for one in standing if one.unready) + Counter(away or {})
        self._dependents = [one for one in standing if one.pod.relations is not None and one.pod.relations.affinity]
        """Who must have others beside it."""
        self._spare = inf if not caps.moves else caps.moves
        self._waits: dict[str, str] = {}
        """Why a pod was not in a batch before, by uid."""
        self._bereaving: dict[str, str] = {}
        """Who must not leave whom, by uid, as the last batch was looked at."""
        self._gone: dict[int, list[str]] = {}
        """Who has left each row by now."""
        self._devices: dict[str, tuple[int, ...]] = {}
        """Which the room of each has, by uid: it is chosen while nobody of the batch has left."""

    def run(self, wishes: Sequence[Wish]) -> OrderedMoves:
        """Batches of these, whose pods stand at their sources."""
        found, rest = OrderedMoves(), list(wishes)
        self._spare -= len(rest)
        while rest:
            if batch := self._batch(rest):
                found.batches.append(batch)
                made = {step.wish.resident.uid for step in batch}
                rest = [wish for wish in rest if wish.resident.uid not in made]
            else:
                rest = self._broken(rest, found)
        return found

    def _batch(self, rest: Sequence[Wish]) -> list[MoveStep]:
        """The moves that fit together now, which have been made then."""
        trial, chosen = self._trial, list[Wish]()
        self._bereaving = {}
        allowed = [budget.allowed for budget in self._budgets]
        moving = Counter(self._unready)
        start = trial.mark
        for wish in rest:
            one, covering = wish.resident, self._covering.of(wish.resident)
            if self._caps.at_once and len(chosen) >= self._caps.at_once:
                self._waits.setdefault(one.uid, f"at most {self._caps.at_once} move at once")
            elif tight := [number for number in covering if allowed[number] < 1]:
                self._waits.setdefault(one.uid, f"the budget {self._budgets[tight[0]].name} allows no more at once")
            elif moving[one.workload] >= at_most_at_once(self._copies[one.workload], self._caps.workload_part):
                self._waits.setdefault(one.uid, f"only a part of {one.workload} moves at once")
            elif not trial.takes(copy_of(one), wish.target, instead_of=one.uid):
                self._waits[one.uid] = ROOM
            else:
                trial.put(room := room_for(one), wish.target)
                self._devices[one.uid] = trial.devices(room.uid)
                chosen.append(wish)
                moving[one.workload] += 1
                for number in covering:
                    allowed[number] -= 1
        batch = [self._told(wish) for wish in self._settled(chosen, start, {wish.resident.uid for wish in rest})]
        for step in batch:
            self._gone.setdefault(step.wish.source, []).append(step.wish.resident.pod.key)
        return batch

    def _told(self, wish: Wish) -> MoveStep:
        """Why the move is in this batch."""
        waited = self._waits.get(wish.resident.uid, "")
        if waited != ROOM:
            return MoveStep(wish, waited or FITS)
        after = tuple(self._gone.get(wish.target, ()))
        return MoveStep(wish, f"after {told(after)} left its place" if after else "after others had moved", after)

    def _settled(self, chosen: list[Wish], start: int, moving: set[str]) -> list[Wish]:
        """The batch as made: who moves stands at the new place alone. A move that others of the batch make impossible
        by leaving (a spread becomes uneven) waits for the next, as one does that pods that stay must have beside them.
        """
        trial = self._trial
        while True:
            trial.undo(start)
            self._arrive(chosen)
            wrong = [
                wish
                for wish in chosen
                if self._tied(wish.resident) and not trial.takes(wish.resident.replacement, wish.target)
            ]
            if wrong:
                self._waits[wrong[-1].resident.uid] = (
                    "it would not fit while others of the batch before are on their way"
                )
            elif wrong := self._bereaved(chosen, start, moving):
                self._waits[wrong[-1].resident.uid] = self._bereaving[wrong[-1].resident.uid]
            else:
                return chosen
            chosen = [wish for wish in chosen if wish is not wrong[-1]]

    def _bereaved(self, chosen: list[Wish], start: int, moving: set[str]) -> list[Wish]:
        """Of these, which have moved, those that a pod that stays must have beside it, and has not any more."""
        trial, asked = self._trial, set[tuple[int, Relations | None, str]]()
        for one in self._dependents:
            if one.uid in moving or not (wanted := [wish for wish in chosen if _must_have(one, wish.resident)]):
                continue
            row = trial.row(one.uid)
            key = row, one.pod.relations, one.pod.namespace
            if row < 0 or key in asked:
                continue
            asked.add(key)
            if trial.takes(one.replacement, row, instead_of=one.uid):
                continue
            trial.undo(start)
            had = trial.takes(one.replacement, row, instead_of=one.uid)
            self._arrive(chosen)
            if had:
                why = f"{one.pod.key} stays, and must have it beside it"
                self._bereaving |= {wish.resident.uid: why for wish in wanted}
                return wanted
        return []

    def _arrive(self, chosen: Sequence[Wish]) -> None:
        """Each stands in its room alone."""
        for wish in chosen:
            self._trial.take(wish.resident.uid)
        for wish in chosen:
            self._trial.put(wish.resident.replacement, wish.target, self._devices[wish.resident.uid])

    def _tied(self, one: Resident) -> bool:
        """Whether rules look at others that stand."""
        ruled = one.pod.relations is not None or spreads_by_default(one.pod)
        return ruled or bool(self._trial.state.index.anti_affinity)

    def _broken(self, rest: list[Wish], found: OrderedMoves) -> list[Wish]:
        """No move can begin: one goes over a node with room, or is left out."""
        if bereaving := [wish for wish in rest if wish.resident.uid in self._bereaving]:
            found.left.append((bereaving[0], self._bereaving[bereaving[0].resident.uid]))
            return [wish for wish in rest if wish is not bereaving[0]]
        leaving: dict[int, list[int]] = {}
        for number, wish in enumerate(rest):
            leaving.setdefault(wish.source, []).append(number)
        needs = {
            number: [other for other in leaving.get(wish.target, ()) if other != number]
            for number, wish in enumerate(rest)
        }
        circle = components(needs)[0]
        for number in sorted(circle, key=lambda other: _size(rest[other].resident)):
            wish = rest[number]
            if (
                self._spare < 1
                or len(circle) < 2
                or any(self._budgets[covering].allowed < 1 for covering in self._covering.of(wish.resident))
            ):
                continue
            if (over := self._over(wish, {rest[other].source for other in circle})) is None:
                continue
            self._spare -= 1
            keys = [rest[other].resident.pod.key for other in circle]
            why = f"over {self._trial.table.names[over]}: {told(keys)} wait for each other's places"
            self._gone.setdefault(wish.source, []).append(wish.resident.pod.key)
            self._trial.put(wish.resident.replacement, over)
            found.batches.append([MoveStep(Wish(wish.resident, wish.source, over, group=wish.group), why)])
            rest[number] = Wish(wish.resident, over, wish.target, wish.gain, wish.group)
            return rest
        worst = min(circle, key=lambda other: rest[other].gain)
        if len(circle) > 1:
            why = f"a partial step: {len(circle)} moves wait for each other's places, and no node has room for one"
        else:
            why = "its place is not free, and nobody leaves it"
        found.left.append((rest[worst], why))
        return [wish for number, wish in enumerate(rest) if number != worst]

    def _over(self, wish: Wish, sources: set[int]) -> int | None:
        """The node with room that is fullest afterwards; none of the circle's."""
        one = wish.resident
        mask = self._trial.rows_for(copy_of(one), instead_of=one.uid)
        mask[[*sources, wish.source, wish.target]] = False
        rows = np.flatnonzero(mask)
        if not len(rows):
            return None
        table = self._trial.table
        used = table.requested[:2, rows] / np.maximum(table.allocatable[:2, rows], 1)
        return int(rows[int(used.sum(0).argmax())])


def told(keys: Sequence[str]) -> str:
    """Some of these pods, for people."""
    more = len(keys) - MOST_TOLD
    return ", ".join(keys[:MOST_TOLD]) + (f" and {more} more" if more > 0 else "")


def _must_have(one: Resident, other: Resident) -> bool:
    """Whether the labels of the other are those that it must have beside it."""
    terms = one.pod.relations.affinity if one.pod.relations is not None else ()
    return any(term.selector is not None and selects(term.selector, other.pod.labels) for term in terms)


def _size(one: Resident) -> int:
    return sum(amount for _, amount in one.pod.pod_class.requests)
