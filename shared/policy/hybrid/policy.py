"""The policy that a mixture is: the members' scores on one scale, weighted, and what becomes of a member that fails.

**One scale.** A member's score is put on 0..100 by a fixed map of that member alone, as kube-scheduler's scores have a
fixed range each: never by the least and greatest of the candidates at hand. Those are another set at each agent and in
each decision, so a score over them would not compare with another agent's, nor with that of a row judged before. A
member that says its bounds is mapped straight (kube-default: its points over the most that it can give this class,
by the cluster's maxima: where no taint and no preference counts, 200 and not 700); of any other
``low`` and ``high``, the usual range of its scores, become 5 and 95, and what is beyond goes on towards 0 and 100
without reaching them, so that a member alone ranks as it would by itself. The sum is given in kube-default's points,
since spread and affinity are added to it in those.

**Failures.** A member that raises, answers another shape or NaN, or is late is left out of that decision: its weight
goes to the others. Each stands behind a guard of its own. Scores without
it do not compare with scores with it, so verdicts say by whom they are (``basis``). If none is left, the guard decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from functools import partial

import numpy as np
from msgspec import Struct

from shared.decide.guard import Failure, Guard, GuardLimits
from shared.errors import ConfigError
from shared.model.constraints import Norms
from shared.policy.guard import judged
from shared.policy.heuristics import KubeDefault, telling
from shared.policy.hybrid.mixture import NAME, Floats, Mixture, MixtureMember
from shared.policy.observation import (
    Need,
    Needs,
    Observation,
    Policy,
    Rng,
    Supplies,
    Verdicts,
    context_of,
    needs_of,
    supply,
)
from shared.policy.observation import agents_agree as agree
from shared.policy.observation import rows_apart as apart
from shared.scheduling.state.node_table import BoolArray, NodeTable

EDGE = 5.0
"""Of the scale, at either end: for scores beyond a member's usual range."""
FULL = 100.0


MEMBER = GuardLimits(deadline_s=0.025, patience=3, rest=100, late_stands=False)
"""Half the deadline of the whole, so that one slow member rests before all of the mixture does."""


class WeighedMember(Struct, frozen=True):
    """A member's part in one decision. ``weight``: its share in it, 0 where it was left out; ``raw`` and ``score`` (on
    0..100) float64 ``[candidates]``, None where it was not asked or failed; ``refuses``: nodes that it refuses."""

    policy: str
    role: str
    weight: float
    raw: Floats | None
    score: Floats | None
    refuses: BoolArray | None
    failure: str = ""


class Total(Struct, frozen=True):
    """``score`` float64 ``[candidates]``, 0..100; ``accept`` None: all."""

    score: Floats
    accept: BoolArray | None

    def best(self, *, but: int = -1) -> int | None:
        """The candidate that is taken, of equals the first; None: there is no other than ``but``."""
        taken = np.ones(len(self.score), np.bool_) if self.accept is None else self.accept
        keys = [(not taken[place], -self.score[place], place) for place in range(len(self.score)) if place != but]
        return min(keys)[-1] if keys else None


def scaled(raw: Floats, low: float, high: float) -> Floats:
    """Scores of a member whose usual ones are ``low`` to ``high`` on 0..100, in the same order."""
    at = (raw - low) / (high - low)
    inside = EDGE + (FULL - 2 * EDGE) * np.clip(at, 0.0, 1.0)
    beyond = np.maximum(at - 1.0, 0.0) + np.minimum(at, 0.0)
    slope = (FULL - 2 * EDGE) / EDGE
    tail: Floats = inside + EDGE * slope * beyond / (1.0 + slope * np.abs(beyond))
    return tail


class Hybrid:
    """Decides by a mixture. ``members``: the policies, in the mixture's order."""

    name = NAME

    def __init__(
        self, mixture: Mixture, members: Sequence[Policy], *, version: int = 1, limits: GuardLimits = MEMBER
    ) -> None:
        if [member.name for member in members] != [member.policy for member in mixture.members]:
            raise ConfigError(f"policy: {NAME} was handed other policies than its mixture names; load it again")
        self.version = version
        self.mixture = mixture
        self.members = tuple(members)
        self.row_local = all(member.row_local for member in members)
        self.rows_apart = all(apart(member) for member in members)
        self.agents_agree = all(agree(member) for member in members)
        self.needs: Needs = frozenset({Need.CLOCK}).union(*(needs_of(member) for member in members))
        self._guards = [Guard(partial(judged, member), limits) for member in members]

    @property
    def left_out(self) -> Counter[tuple[str, Failure]]:
        """How often a member was left out of a decision since it was made, and why."""
        guards = zip(self.members, self._guards, strict=True)
        return Counter({(one.name, why): count for one, guard in guards for why, count in guard.failures.items()})

    def supply(self, supplies: Supplies) -> None:
        """Take the clock, and hand on what members need."""
        for member, guard in zip(self.members, self._guards, strict=True):
            guard.clock = supplies.clock
            supply(member, supplies)

    def context(self, table: NodeTable) -> tuple[Hashable, ...]:
        """What each member compares rows with."""
        return tuple(context_of(member, table) for member in self.members)

    def decide(self, observation: Observation, rng: Rng) -> Verdicts:
        """The weighted sum in kube-default's points. Raises ``ArithmeticError`` where no member is left that counts."""
        parts = self._ask(observation, rng)
        if not any(part.weight for part in parts):
            raise ArithmeticError("no member of the mixture gave scores that can be used")
        told = self.sum_of(parts, len(observation.rows))
        basis = sum(1 << place for place, part in enumerate(parts) if not part.failure)
        return Verdicts(told.score * telling(observation.norms), told.accept, basis)

    @staticmethod
    def sum_of(parts: Sequence[WeighedMember], candidates: int) -> Total:
        """What the parts come to."""
        score = np.zeros(candidates)
        accept: BoolArray | None = None
        for part in parts:
            if part.score is not None:
                score += part.weight * part.score
            if part.refuses is not None and part.role == "decides":
                accept = ~part.refuses if accept is None else accept & ~part.refuses
        return Total(score, accept)

    def parts(self, observation: Observation, rng: Rng) -> tuple[str, list[WeighedMember]]:
        """(class of the pod, each member's part), to explain a decision; the same as ``decide`` adds up."""
        row = self.mixture.class_of(observation.pod_class)
        return self.mixture.class_name(row), self._ask(observation, rng)

    def _ask(self, observation: Observation, rng: Rng) -> list[WeighedMember]:
        weights = self.mixture.weights[self.mixture.class_of(observation.pod_class)]
        found = [self._part(place, float(weight), observation, rng) for place, weight in enumerate(weights)]
        heard = sum(part.weight for part in found if part.score is not None)
        return [
            WeighedMember(part.policy, part.role, part.weight / heard, part.raw, part.score, part.refuses)
            if part.score is not None and heard > 0
            else WeighedMember(part.policy, part.role, 0.0, None, None, part.refuses, part.failure)
            for part in found
        ]

    def _part(self, place: int, weight: float, observation: Observation, rng: Rng) -> WeighedMember:
        told, policy, guard = self.mixture.members[place], self.members[place], self._guards[place]
        nothing = WeighedMember(told.policy, told.role, weight, None, None, None)
        if weight == 0.0 and told.role != "decides":
            return nothing
        verdicts = guard.ask(observation, rng)
        if verdicts is None:
            return WeighedMember(told.policy, told.role, weight, None, None, None, guard.failure or "rests")
        raw = np.asarray(verdicts.score, np.float64)
        refuses = None if verdicts.accept is None else ~verdicts.accept
        if weight == 0.0:
            return WeighedMember(told.policy, told.role, 0.0, None, None, refuses)
        return WeighedMember(
            told.policy, told.role, weight, raw, self._on_scale(told, policy, raw, observation.norms), refuses
        )

    def _on_scale(self, told: MixtureMember, policy: Policy, raw: Floats, norms: Norms) -> Floats:
        if told.low < told.high:
            return scaled(raw, told.low, told.high)
        low, high = policy.bounds_of(norms) if isinstance(policy, KubeDefault) else bounds_of(policy) or (0.0, FULL)
        straight: Floats = FULL * (raw - low) / (high - low)
        return straight


def bounds_of(policy: Policy) -> tuple[float, float] | None:
    """(least, greatest) score that the policy says it gives; None: it says nothing."""
    bounds: tuple[float, float] | None = getattr(policy, "bounds", None)
    return bounds
