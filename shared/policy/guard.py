"""A policy that ranks nodes behind the guard of ``shared/decide``: kube-default stands in for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from shared.decide.guard import Failure, Faulty, Guard, GuardLimits, no_clock
from shared.model.constraints import PodClass
from shared.policy.domain import PLACEMENT
from shared.policy.heuristics import KubeDefault
from shared.policy.observation import Observation, Policy, Rng, Verdicts, context_of
from shared.scheduling.state.node_table import IntArray, NodeTable


class PlacementGuard:
    """A policy and its fallback."""

    def __init__(
        self,
        policy: Policy,
        fallback: Policy | None = None,
        *,
        clock: Callable[[], float] = no_clock,
        limits: GuardLimits = PLACEMENT.limits,
    ) -> None:
        self.policy = policy
        self.fallback = fallback or KubeDefault()
        self.fallbacks = 0
        """Decisions made by the fallback."""
        self._guard = Guard(self._judged, limits, clock=clock)

    @property
    def failures(self) -> Counter[Failure]:
        """By kind since this policy was put behind the guard."""
        return self._guard.failures

    @property
    def willing(self) -> bool:
        """Whether the next decision is the policy's to try."""
        return self._guard.resting == 0

    def decide(self, observation: Observation, rng: Rng) -> tuple[Verdicts, bool]:
        """Verdicts that can be used, and whether they are the fallback's."""
        verdicts = self._guard.ask(observation, rng)
        if verdicts is None:
            return self.fall_back(observation, rng), True
        return verdicts, False

    def context(self, table: NodeTable) -> Hashable:
        """What the policy compares rows of the table with (``context_of``); None where it fails to say."""
        if not hasattr(self.policy, "context"):
            return None
        found: list[Hashable] = []

        def look() -> None:
            with np.errstate(all="ignore"):
                context = context_of(self.policy, table)
                hash(context)  # what cannot be kept cannot be compared either
                found.append(context)

        self._guard.attempt(look)
        return found[0] if found else None

    def prepare(self, table: NodeTable, asked: Sequence[tuple[PodClass, IntArray]]) -> None:
        """Tell a policy that wants to know (it has a ``prepare``) what it is asked for next; only time may come of it,
        so what goes wrong is counted and otherwise seen when it is asked."""
        prepare = getattr(self.policy, "prepare", None)
        if prepare is not None:
            self._guard.attempt(lambda: _quietly(prepare, table, asked))

    def fall_back(self, observation: Observation, rng: Rng) -> Verdicts:
        """The heuristic's verdicts, counted."""
        self.fallbacks += 1
        return self.fallback.decide(observation, rng)

    def _judged(self, observation: Observation, rng: Rng) -> Verdicts:
        with np.errstate(all="ignore"):
            return judged(self.policy, observation, rng)


def _quietly(prepare: Callable[..., object], table: NodeTable, asked: Sequence[tuple[PodClass, IntArray]]) -> None:
    with np.errstate(all="ignore"):
        prepare(table, asked)


def judged(policy: Policy, observation: Observation, rng: Rng) -> Verdicts:
    """The policy's verdicts. ``Faulty`` where they cannot be used."""
    verdicts = policy.decide(observation, rng)
    if (failure := fault_of(verdicts, len(observation.rows))) is not None:
        raise Faulty(failure)
    return verdicts


def fault_of(verdicts: Verdicts, candidates: int) -> Failure | None:
    """What is wrong with an answer for so many candidates; None: nothing."""
    shape_ok = verdicts.score.shape == (candidates,) and (
        verdicts.accept is None or verdicts.accept.shape == (candidates,)
    )
    if not shape_ok:
        return Failure.SHAPE
    return None if bool(np.isfinite(verdicts.score).all()) else Failure.NAN
