"""From verdicts to slots: the best few nodes an agent offers for the units of one class.

For one unit the slots are its best candidates. For many units of the same class they are an exact greedy: slot j is
the best node once slots 0..j-1 are taken, so that the coordinator can merge the slots of several agents in order.
Where a row's verdict rests on that row alone, the scores of a class are kept, and judged again where rows changed, all
of them where what rows are compared with did (``context_of``);
where it does so while an answer lasts, the greedy looks ahead (``ahead.py``); any other policy is asked anew for each
unit. A policy that fails (exception, NaN, wrong shape, too late) is replaced by the fallback at once and counted (I12,
see ``guard.py``). A class is ranked by one of the two alone: their scores do not compare.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.model.constraints import NO_NORMS, Norms, PodClass
from shared.policy.ahead import Ahead
from shared.policy.guard import PlacementGuard, fault_of
from shared.policy.observation import Observation, Policy, Rng, Verdicts, rows_apart
from shared.scheduling.cycle.feasibility import FeasibilityCache, class_limit
from shared.scheduling.state.node_table import BoolArray, IntArray, NodeTable
from shared.scheduling.state.room.counted import Counted

INFEASIBLE = -np.inf


class _Fell(Exception):
    """The policy gave no usable answer where it had given some before: all is the fallback's."""


class _Rebased(Exception):
    """The policy decides by other means than before: its verdicts do not compare with those."""


class Slot(NamedTuple):
    """One place for one unit: a feasible row, its score and verdict, and the generation it was judged at."""

    row: int
    score: float
    accept: bool
    generation: int


@dataclass(slots=True)
class Ranking:
    """Scores of one class over all rows; ``INFEASIBLE`` where a filter rejects. ``accept`` None: all of them.
    ``fallen``: by the fallback. ``basis``: of the verdicts; ``context``: what rows were compared with."""

    score: NDArray[np.float64]
    accept: BoolArray | None
    norms: Norms
    seen: int
    static_seen: int
    fallen: bool = False
    basis: int = 0
    context: Hashable = None


class Ranker:
    """Ranks the nodes of one table by one policy."""

    def __init__(
        self, table: NodeTable, feasibility: FeasibilityCache, policy: Policy | PlacementGuard, rng: Rng
    ) -> None:
        self.table = table
        self.feasibility = feasibility
        self.guard = policy if isinstance(policy, PlacementGuard) else PlacementGuard(policy)
        self._rng = rng
        self._classes: OrderedDict[PodClass, Ranking] = OrderedDict()

    @property
    def fallbacks(self) -> int:
        """Decisions made by the fallback instead."""
        return self.guard.fallbacks

    def use(self, policy: Policy | PlacementGuard) -> None:
        """Decide by another policy from the next call on."""
        self.guard = policy if isinstance(policy, PlacementGuard) else PlacementGuard(policy)
        self._classes.clear()

    def fell_back(self, pod_class: PodClass) -> bool:
        """Whether the last ranking of the class (as it was ``seen``) is the fallback's."""
        known = self._classes.get(pod_class)
        return known is not None and known.fallen

    def prepare(self, asked: Sequence[tuple[PodClass, PodClass]]) -> None:
        """These classes, each with what the policy sees of it, are asked for next, before the table changes."""
        if len(asked) > 1 and hasattr(self.guard.policy, "prepare"):
            rows = [(seen, np.flatnonzero(self.feasibility.of(pod_class).mask)) for pod_class, seen in asked]
            self.guard.prepare(self.table, rows)

    def slots(
        self, pod_class: PodClass, count: int, *, extra: int, norms: Norms = NO_NORMS, seen: PodClass | None = None
    ) -> list[Slot]:
        """Up to ``count + extra`` slots, best first; accepted ones before rejected ones; ties fall at random.

        ``seen``: the class as the policy sees it (with its workload); what is feasible is kept by ``pod_class``.
        """
        wanted, seen = count + extra, pod_class if seen is None else seen
        if count == 1:
            return self._best(self._ranking(pod_class, norms, seen), wanted)
        if not rows_apart(self.guard.policy):
            return self._one_by_one(pod_class, wanted, norms, seen)
        ranking = self._ranking(pod_class, norms, seen, units=wanted)
        try:
            return self._looking_ahead(ranking, pod_class, self._best(ranking, wanted), wanted, seen)
        except _Rebased:
            return self._one_by_one(pod_class, wanted, norms, seen)
        except _Fell:
            self._fall(ranking, seen, self.feasibility.of(pod_class).mask)
            return self._looking_ahead(ranking, pod_class, self._best(ranking, wanted), wanted, seen)

    def judged(self, pod_class: PodClass, *, norms: Norms = NO_NORMS) -> Ranking:
        """What the policy says of every row, to be read before the next call."""
        return self._ranking(pod_class, norms, pod_class)

    def guided(
        self, pod_class: PodClass, wanted: int, allowed: IntArray, added: NDArray[np.float64], *, norms: Norms,
        seen: PodClass | None = None, units: int = 1,
    ) -> list[Slot]:  # fmt: skip
        """Up to ``wanted`` different rows of ``allowed``, best first, by the policy's score plus ``added [rows]``.

        For several ``units``, where the policy can look ahead, a row stands there again for each further unit that the
        greedy gives it, with what it is worth by then. More than the rows decides who gets what, so what is known of
        rows beyond that is named as well.
        """
        seen = pod_class if seen is None else seen
        ranking = self._ranking(pod_class, norms, seen, units=units)
        best = self._guided_best(ranking, wanted, allowed, added)
        if units == 1 or not rows_apart(self.guard.policy):
            return best
        try:
            return self._looking_ahead(ranking, pod_class, best[:units], units, seen, added) + best[units:]
        except _Rebased:
            return best
        except _Fell:
            self._fall(ranking, seen, self.feasibility.of(pod_class).mask)
            best = self._guided_best(ranking, wanted, allowed, added)
            return self._looking_ahead(ranking, pod_class, best[:units], units, seen, added) + best[units:]

    def _guided_best(self, ranking: Ranking, wanted: int, allowed: IntArray, added: NDArray[np.float64]) -> list[Slot]:
        score = np.full(len(ranking.score), INFEASIBLE)
        score[allowed] = ranking.score[allowed] + added[allowed]
        return self._best(replace(ranking, score=score), wanted)

    # --- many units of one class ----------------------------------------------------------------------------------

    def _looking_ahead(
        self, ranking: Ranking, pod_class: PodClass, leading: list[Slot], wanted: int, seen: PodClass,
        added: NDArray[np.float64] | None = None,
    ) -> list[Slot]:  # fmt: skip
        """The greedy where what a row is given changes that row's verdict alone: only rows that are ``leading`` now
        come into question. ``added [rows]``: of guided units, to what the policy says; then what is known of further
        slots follows those ``wanted``, the best first. ``_Fell``: the policy failed on the way."""

        def judge(table: NodeTable, rows: IntArray) -> Verdicts:
            observation = Observation(table, seen, rows, ranking.norms)
            verdicts, fallen = self.guard.decide(observation, self._rng)
            if fallen == ranking.fallen:
                if not fallen and verdicts.basis != ranking.basis:
                    raise _Rebased
                return verdicts
            if fallen:
                raise _Fell
            return self.guard.fall_back(observation, self._rng)

        generation = self.table.generation
        ahead = Ahead(self.table, self.feasibility, pod_class, (slot.row for slot in leading), judge)
        heap = [(not slot.accept, -slot.score, 0, float(place), slot.row) for place, slot in enumerate(leading)]
        taken: list[Slot] = []
        while heap:
            rejected, minus, units, place, row = heap[0]
            taken.append(Slot(row, -minus, not rejected, int(generation[row])))
            if len(taken) == wanted:
                heapq.heappop(heap)
                break
            units += 1
            worth = ahead.worth(row, units)
            if worth is None:
                heapq.heappop(heap)
            else:  # of equals the row given fewer, then any; of guided units the first named, as they are dealt
                score, accept = worth
                score += 0.0 if added is None else float(added[row])
                place = self._rng.random() if added is None else place
                heapq.heapreplace(heap, (not accept, -score, units, place, row))
        further = sorted(heap) if added is not None else ()
        return taken + [Slot(row, -minus, not rejected, int(generation[row])) for rejected, minus, _, _, row in further]

    def _one_by_one(self, pod_class: PodClass, wanted: int, norms: Norms, seen: PodClass) -> list[Slot]:
        """The greedy where what a row is given may change every verdict: counted on the table while it lasts."""
        taken: list[Slot] = []
        with Counted(self.table) as counted:
            while len(taken) < wanted and (best := self._best(self._ranking(pod_class, norms, seen), 1)):
                taken += best
                counted.add(best[0].row, pod_class)
        return taken

    # --- from a ranking to rows -----------------------------------------------------------------------------------

    def _best(self, ranking: Ranking, wanted: int) -> list[Slot]:
        """The best rows, one slot each: all accepted ones before any rejected one."""
        accept, generation = ranking.accept, self.table.generation
        slots: list[Slot] = []
        for accepted in (True,) if accept is None else (True, False):
            if len(slots) == wanted:
                break
            score = ranking.score if accept is None else np.where(accept == accepted, ranking.score, INFEASIBLE)
            rows = self._leading(score, wanted - len(slots))
            judged = zip(rows, score[rows].tolist(), generation[rows].tolist(), strict=True)
            slots += [Slot(row, worth, accepted, at) for row, worth, at in judged]
        return slots

    def _leading(self, score: NDArray[np.float64], wanted: int) -> list[int]:
        """Up to so many rows of the greatest scores, best first; ties fall at random."""
        bound = INFEASIBLE
        if wanted < len(score):
            bound = float(score.max())
            if np.count_nonzero(score == bound) < wanted:  # else the best alone will do, which is cheap to see
                bound = float(np.partition(score, -wanted)[-wanted])
        above = np.flatnonzero(score > bound)
        draws = [self._rng.random() for _ in range(len(above))]
        keyed = sorted(zip((-score[above]).tolist(), draws, above.tolist(), strict=True))
        leading = [row for _, _, row in keyed][:wanted]
        if bound > INFEASIBLE:
            leading += self._some(np.flatnonzero(score == bound), wanted - len(leading))
        return leading

    def _some(self, rows: IntArray, count: int) -> list[int]:
        """So many of the rows, drawn one after the other."""
        left, some = len(rows), list[int]()
        moved: dict[int, int] = {}
        for place in range(count):
            other = place + (int(self._rng.random() * (left - place)) if left - place > 1 else 0)
            some.append(moved.get(other, other))
            moved[other] = moved.get(place, place)
        drawn: list[int] = rows[some].tolist()
        return drawn

    # --- scores of a class ----------------------------------------------------------------------------------------

    def _ranking(self, pod_class: PodClass, norms: Norms, seen: PodClass, *, units: int = 1) -> Ranking:
        table = self.table
        mask = self.feasibility.of(pod_class).mask
        known = self._classes.get(seen)
        context = self.guard.context(table)
        fresh = (
            known is None
            or not self.guard.policy.row_local
            or known.norms != norms
            or known.context != context
            or known.static_seen < table.static_stamp
            or len(known.score) != table.rows
            or (known.fallen and self.guard.willing)
        )
        if known is None or fresh:
            known = Ranking(np.full(table.rows, INFEASIBLE), None, norms, table.clock, table.clock, context=context)
            rows = np.flatnonzero(mask)
            self._classes[seen] = known
            while len(self._classes) > class_limit(table.rows, 9):
                self._classes.popitem(last=False)
        else:
            changed = table.changed_since(known.seen)
            known.score[changed] = INFEASIBLE
            rows = changed[mask[changed]]
            known.seen = table.clock
        self._classes.move_to_end(seen)
        if len(rows):
            self._judge(known, Observation(table, seen, rows, norms, units), mask)
        return known

    def _judge(self, known: Ranking, observation: Observation, mask: BoolArray) -> None:
        """Put verdicts into the ranking; over all its rows where policy and fallback would mix."""
        verdicts, fallen = self.guard.decide(observation, self._rng)
        if fallen != known.fallen and len(observation.rows) < int(mask.sum()):
            self._fall(known, observation.pod_class, mask)
            return
        if not fallen and verdicts.basis != known.basis and len(observation.rows) < int(mask.sum()):
            known.accept = None
            self._judge(known, replace(observation, rows=np.flatnonzero(mask)), mask)
            return
        known.fallen, known.basis = fallen, verdicts.basis
        self._put(known, observation.rows, verdicts)

    def _fall(self, known: Ranking, seen: PodClass, mask: BoolArray) -> None:
        """All rows are the fallback's."""
        rows = np.flatnonzero(mask)
        known.fallen, known.accept = True, None
        self._put(known, rows, self.guard.fall_back(Observation(self.table, seen, rows, known.norms), self._rng))

    def _put(self, known: Ranking, rows: IntArray, verdicts: Verdicts) -> None:
        known.score[rows] = verdicts.score
        if verdicts.accept is None and known.accept is None:
            return
        if known.accept is None:
            known.accept = np.ones(len(known.score), np.bool_)
        known.accept[rows] = True if verdicts.accept is None else verdicts.accept
        if known.accept.all():
            known.accept = None


def usable(verdicts: Verdicts, candidates: int) -> bool:
    """Whether a policy's answer has the right shape and only finite scores."""
    return fault_of(verdicts, candidates) is None
