"""The policies an agent decides by: the active one, beside it the candidate that is being rolled out, and those that
profiles name for their pods.

Each lane has its guard and its ranker over the same nodes. Changing a policy happens between two decisions and costs
nothing there: whoever brings it has loaded it before. Which lane judges which units the coordinator says, by class.

Not its job: choosing pods for the canary, comparing the two, loading weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from shared.decide.guard import Failure, GuardLimits
from shared.errors import ConfigError
from shared.model.constraints import PodClass
from shared.policy.guard import PlacementGuard
from shared.policy.heuristics import KubeDefault
from shared.policy.observation import Policy, Rng, Supplies, ToldDemand, supply
from shared.policy.ranking import Ranker
from shared.policy.registry import make_policy, ref_of
from shared.policy.rollout.rollout import apply_rehearsal
from shared.policy.usage.utilisation import UtilisationStore
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.profile import DEFAULT, PluginSet
from shared.scheduling.state.node_table import NodeTable
from shared.wire.messages import LaneReport, PolicyFailure
from shared.wire.records import PolicyPointer, PolicyRef

MOST_OWN = 32
"""Policies that profiles name; of more the oldest begins anew."""

MAX_FALLEN = 64
"""Classes told by number that fell back in one answer."""


class Lane:
    """One policy with its guard and ranker, and what it did since the last report."""

    def __init__(
        self, ref: PolicyRef, guard: PlacementGuard, ranker: Ranker, *, candidate: bool, own: str = ""
    ) -> None:
        self.ref = ref
        self.own = own
        """The policy that profiles name; "": the mesh's own choice."""
        self.lacks = False
        """Whether kube-default stands in for that policy, which is not to be had here."""
        self.guard = guard
        self.ranker = ranker
        self._candidate = candidate
        self._groups = 0
        self._spent_s = 0.0
        self._fallen: list[int] = []

    def judged(self, class_id: int, pod_class: PodClass, spent_s: float) -> None:
        """One group has been ranked."""
        self._groups += 1
        self._spent_s += spent_s
        if self.ranker.fell_back(pod_class) and len(self._fallen) < MAX_FALLEN:
            self._fallen.append(class_id)

    @property
    def failed(self) -> bool:
        """Whether anything fell back since the last report."""
        return bool(self._fallen)

    @property
    def busy(self) -> bool:
        """Whether it judged anything since the last report."""
        return self._groups > 0

    def report(self) -> LaneReport:
        """What was done since the last call."""
        report = LaneReport(
            self.ref.title, self._candidate, self._groups, max(0, round(self._spent_s * 1e6)), self._fallen,
            self.own,
        )  # fmt: skip
        self._groups, self._spent_s, self._fallen = 0, 0.0, []
        return report


class Lanes:
    """The active lane and, while there is one, the candidate's."""

    def __init__(
        self, ref: PolicyRef, policy: Policy, rng: Rng, *, clock: Callable[[], float], limits: GuardLimits,
        speed: float = 1.0, profile: PluginSet = DEFAULT,
    ) -> None:  # fmt: skip
        self._rng = rng
        self._clock = clock
        self._limits = limits
        self._refused: dict[PolicyRef, Counter[Failure]] = {}
        self._fallbacks_before = 0
        self._left_out_before: Counter[str] = Counter()
        self._table = NodeTable()
        self._profile = profile
        self.store = UtilisationStore(speed=speed)
        """What our nodes were last measured to use, what stands there, and the cluster's means."""
        self.demand = ToldDemand()
        """What all pods ask for, as the coordinator tells it."""
        self.feasibility = FeasibilityCache(self._table, profile=profile)
        self.number = 0
        """Of the policy pointer that these lanes follow in every point; 0: of none."""
        self.active = self._lane(ref, policy, candidate=False)
        self.candidate: Lane | None = None
        self._own: dict[str, Lane] = {}
        """By the name of a policy that profiles name."""

    @property
    def _all(self) -> list[Lane]:
        lanes = [self.active, *self._own.values()]
        return lanes if self.candidate is None else [*lanes, self.candidate]

    @property
    def fallbacks(self) -> int:
        """Decisions that the heuristic made instead of any policy, since the start."""
        return self._fallbacks_before + sum(lane.guard.fallbacks for lane in self._all)

    def rank(self, table: NodeTable) -> None:
        """Rank the nodes of another table from now on; guards and their counts stay."""
        self._table, self.feasibility = table, FeasibilityCache(table, profile=self._profile)
        for lane in self._all:
            lane.ranker = self._ranker(lane.guard)

    def see_cluster(self, summary: NDArray[np.float64] | None) -> None:
        """Means over all nodes, of which this agent sees only its own; None: nobody tells them."""
        self.store.cluster = summary

    def use(self, ref: PolicyRef, policy: Policy) -> None:
        """Another active policy. The candidate that has just become active keeps its guard."""
        if ref == self.active.ref:
            return
        if self.candidate is not None and ref == self.candidate.ref:
            guard = self.candidate.guard
            self._end(self.active)
            self.active = Lane(ref, guard, self._ranker(guard), candidate=False)
            self.candidate = None
            return
        self._end(self.active)
        self.active = self._lane(ref, policy, candidate=False)

    def try_out(self, ref: PolicyRef, policy: Policy) -> None:
        """A candidate beside the active policy, in place of any other."""
        if self.candidate is not None and ref == self.candidate.ref:
            return
        self.withdraw()
        self.candidate = self._lane(ref, policy, candidate=True)

    def withdraw(self) -> None:
        """No candidate any more."""
        if self.candidate is not None:
            self._end(self.candidate)
            self.candidate = None

    def apply_rehearsals(self, pointer: PolicyPointer) -> None:
        """Let each policy place by what rehearsals said of it; where they say nothing, by itself."""
        for lane in (self.active, self.candidate):
            if lane is not None:
                apply_rehearsal(lane.guard.policy, lane.ref, pointer)

    def refuse(self, ref: PolicyRef, failure: Failure) -> None:
        """A policy could not be loaded; told until another pointer comes (``forgive``)."""
        self._refused.setdefault(ref, Counter())[failure] += 1

    def forgive(self) -> None:
        """The pointer has changed: what could not be loaded before is no longer asked for."""
        self._refused.clear()

    def of(self, *, candidate: bool) -> Lane:
        """The lane for a class; the active one where the candidate is not here (yet, or any more)."""
        return self.candidate if candidate and self.candidate is not None else self.active

    def own(self, policy: str) -> Lane:
        """The lane of classes whose profile names this policy. Where it is not to be had here, which is told,
        kube-default stands in for it."""
        lane = self._own.get(policy)
        if lane is None:
            if len(self._own) >= MOST_OWN:
                self._end(self._own.pop(next(iter(self._own))))
            lacks = False
            try:
                made, ref = make_policy(policy), ref_of(policy)
            except ConfigError:
                made, ref, lacks = KubeDefault(), PolicyRef(KubeDefault.name, KubeDefault.version), True
            lane = self._own[policy] = self._lane(ref, made, candidate=False, own=policy)
            lane.lacks = lacks
        return lane

    def reports(self, pointer: int) -> list[LaneReport]:
        """What the lanes did since the last call: the active one's, and the others' where they judged.

        Nothing where it goes without saying: no candidate, nothing fell back, and the coordinator's ``pointer`` is the
        one followed here. That keeps an answer as small as it can be nearly always.
        """
        told = [lane.report() for lane in self._own.values() if lane.busy] if self._own else []
        if pointer and pointer == self.number and self.candidate is None and not self.active.failed:
            self.active.report()
            return told
        reports = [self.active.report(), *told]
        if self.candidate is not None and self.candidate.busy:
            reports.append(self.candidate.report())
        return reports

    def failures(self) -> list[PolicyFailure]:
        """Everything that went wrong with the policies that are here or could not be loaded; last what did with those
        that profiles name, which is told apart: it is no part of a roll-out."""
        known: dict[PolicyRef, Counter[Failure]] = {}
        for lane in (self.active, self.candidate):
            if lane is not None:
                known.setdefault(lane.ref, Counter()).update(lane.guard.failures)
        told = [
            PolicyFailure(ref.title, ref.sha256, failure.value, count)
            for ref, counts in [*known.items(), *self._refused.items()]
            for failure, count in counts.items()
        ]
        for name, lane in self._own.items():
            if lane.lacks:
                told.append(PolicyFailure(PolicyRef(name, 0).title, "", Failure.DIGEST.value, 1, name))
            counted = lane.guard.failures.items()
            told += [PolicyFailure(lane.ref.title, lane.ref.sha256, why.value, count, name) for why, count in counted]
        return told[:16]

    def members_left_out(self) -> dict[str, int]:
        """By ``member failure``: how often a member of a mixture was left out of a decision, since the start."""
        found = Counter(self._left_out_before)
        for lane in self._all:
            found.update(_left_out(lane))
        return dict(found)

    def _lane(self, ref: PolicyRef, policy: Policy, *, candidate: bool, own: str = "") -> Lane:
        profile = self._profile
        supplies = Supplies(
            self.store, profile.scores, self._clock, profile.gpu_shares, profile.power, profile.load_parts, self.demand
        )
        supply(policy, supplies)
        guard = PlacementGuard(policy, KubeDefault(self._profile.scores), clock=self._clock, limits=self._limits)
        return Lane(ref, guard, self._ranker(guard), candidate=candidate, own=own)

    def _ranker(self, guard: PlacementGuard) -> Ranker:
        return Ranker(self._table, self.feasibility, guard, self._rng)

    def _end(self, lane: Lane) -> None:
        self._left_out_before.update(_left_out(lane))
        self._fallbacks_before += lane.guard.fallbacks


def _left_out(lane: Lane) -> Counter[str]:
    left_out: Mapping[tuple[str, Failure], int] = getattr(lane.guard.policy, "left_out", {})
    return Counter({f"{name} {why.value}": count for (name, why), count in left_out.items()})
