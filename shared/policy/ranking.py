"""From verdicts to slots: the best few nodes an agent offers for the units of one class.

For one unit the slots are its best candidates. For many units of the same class they are an exact greedy: slot j is
the best node once slots 0..j-1 are taken, so that the coordinator can merge the slots of several agents in order.
A policy that fails (exception, NaN, wrong shape, too late) is replaced by the fallback at once and counted (I12, see
``guard.py``). A class is ranked by one of the two alone: their scores do not compare.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shared.model.constraints import NO_NORMS, Norms, PodClass, gpu_milli_of
from shared.policy.guard import Guard, fault_of
from shared.policy.observation import Observation, Policy, Rng, Verdicts
from shared.scheduling.cycle.feasibility import FeasibilityCache, class_limit
from shared.scheduling.state.node_table import BoolArray, IntArray, NodeTable

INFEASIBLE = -np.inf


@dataclass(frozen=True, slots=True)
class Slot:
    """One place for one unit: a feasible row, its score and verdict, and the generation it was judged at."""

    row: int
    score: float
    accept: bool
    generation: int


@dataclass(slots=True)
class Ranking:
    """Scores of one class over all rows; ``INFEASIBLE`` where a filter rejects. ``accept`` None: all of them.
    ``fallen``: by the fallback."""

    score: NDArray[np.float64]
    accept: BoolArray | None
    norms: Norms
    seen: int
    static_seen: int
    fallen: bool = False


class Ranker:
    """Ranks the nodes of one table by one policy."""

    def __init__(self, table: NodeTable, feasibility: FeasibilityCache, policy: Policy | Guard, rng: Rng) -> None:
        self.table = table
        self.feasibility = feasibility
        self.guard = policy if isinstance(policy, Guard) else Guard(policy)
        self._rng = rng
        self._classes: OrderedDict[PodClass, Ranking] = OrderedDict()

    @property
    def fallbacks(self) -> int:
        """Decisions made by the fallback instead."""
        return self.guard.fallbacks

    def use(self, policy: Policy | Guard) -> None:
        """Decide by another policy from the next call on."""
        self.guard = policy if isinstance(policy, Guard) else Guard(policy)
        self._classes.clear()

    def fell_back(self, pod_class: PodClass) -> bool:
        """Whether the last ranking of the class (as it was ``seen``) is the fallback's."""
        known = self._classes.get(pod_class)
        return known is not None and known.fallen

    def slots(
        self, pod_class: PodClass, count: int, *, extra: int, norms: Norms = NO_NORMS, seen: PodClass | None = None
    ) -> list[Slot]:
        """Up to ``count + extra`` slots, best first; accepted ones before rejected ones; ties fall at random.

        ``seen``: the class as the policy sees it (with its workload); what is feasible is kept by ``pod_class``.
        """
        wanted = count + extra
        ranking = self._ranking(pod_class, norms, seen)
        if count == 1:
            return self._best(ranking, wanted)
        taken: list[Slot] = []
        devices: list[tuple[int, ...]] = []
        milli = gpu_milli_of(pod_class)
        try:
            while len(taken) < wanted:
                best = self._best(ranking, 1)
                if not best:
                    break
                slot = best[0]
                picked = self.table.pick_devices(slot.row, milli)
                taken.append(slot)
                devices.append(picked)
                self._use(slot, pod_class, picked, sign=1)
                ranking = self._ranking(pod_class, norms, seen)
        finally:
            for slot, picked in zip(taken, devices, strict=True):
                self._use(slot, pod_class, picked, sign=-1)
        return taken

    def guided(
        self, pod_class: PodClass, wanted: int, allowed: IntArray, added: NDArray[np.float64], *, norms: Norms,
        seen: PodClass | None = None,
    ) -> list[Slot]:  # fmt: skip
        """Up to ``wanted`` different rows of ``allowed``, best first, by the policy's score plus ``added [rows]``."""
        ranking = self._ranking(pod_class, norms, seen)
        score = np.full(len(ranking.score), INFEASIBLE)
        score[allowed] = ranking.score[allowed] + added[allowed]
        return self._best(replace(ranking, score=score), wanted)

    def _use(self, slot: Slot, pod_class: PodClass, devices: tuple[int, ...], *, sign: int) -> None:
        self.table.add_usage(slot.row, pod_class, devices, sign=sign)
        self.table.generation[slot.row] = slot.generation

    def _best(self, ranking: Ranking, wanted: int) -> list[Slot]:
        """The best rows, one slot each: all accepted ones before any rejected one."""
        table = self.table
        slots: list[Slot] = []
        for accepted in (True, False):
            if ranking.accept is None:
                if not accepted:
                    break
                scores = ranking.score.copy()
            else:
                scores = np.where(ranking.accept == accepted, ranking.score, INFEASIBLE)
            while len(slots) < wanted and len(scores):
                top = scores.max()
                if top == INFEASIBLE:
                    break
                ties = np.flatnonzero(scores == top)
                row = int(ties[0] if len(ties) == 1 else ties[int(self._rng.random() * len(ties))])
                slots.append(Slot(row, float(top), accepted, int(table.generation[row])))
                scores[row] = INFEASIBLE
            if len(slots) >= wanted:
                break
        return slots

    def _ranking(self, pod_class: PodClass, norms: Norms, seen: PodClass | None) -> Ranking:
        table = self.table
        mask = self.feasibility.of(pod_class).mask
        seen = pod_class if seen is None else seen
        known = self._classes.get(seen)
        fresh = (
            known is None
            or not self.guard.policy.row_local
            or known.norms != norms
            or known.static_seen < table.static_stamp
            or len(known.score) != table.rows
            or (known.fallen and self.guard.willing)
        )
        if known is None or fresh:
            known = Ranking(np.full(table.rows, INFEASIBLE), None, norms, table.clock, table.clock)
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
            self._judge(known, Observation(table, seen, rows, norms), mask)
        return known

    def _judge(self, known: Ranking, observation: Observation, mask: BoolArray) -> None:
        """Put verdicts into the ranking; over all its rows where policy and fallback would mix."""
        verdicts, fallen = self.guard.decide(observation, self._rng)
        rows, feasible = observation.rows, np.flatnonzero(mask)
        if fallen != known.fallen and len(rows) < len(feasible):
            rows = feasible
            whole = replace(observation, rows=rows)
            verdicts, fallen = self.guard.fall_back(whole, self._rng), True
            known.accept = None
        known.fallen = fallen
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
