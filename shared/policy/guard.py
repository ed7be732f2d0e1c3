"""One policy behind a guard: whatever it does wrong, a decision still comes out, by the heuristic, at once (I12).

    WILLING --good answer--> WILLING
       |  exception, NaN, wrong shape: this decision by the heuristic; after ``patience`` in a row --> RESTING
       |  later than ``deadline_s``: this decision stands; ``patience`` deadlines late in a row    --> RESTING
    RESTING --``rest`` decisions by the heuristic--> WILLING (one try)

Policies are synchronous numpy code, so a slow answer cannot be cut short; it can only be the last one for a while.
The clock is handed in and should count the thread's own CPU time: a loaded machine is not the policy's fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from shared.model.constraints import PodClass
from shared.policy.heuristics import KubeDefault
from shared.policy.observation import Observation, Policy, Rng, Verdicts, context_of
from shared.scheduling.state.node_table import IntArray, NodeTable


class Failure(StrEnum):
    """What a policy did wrong. The values are in messages, metrics and the rollout's history."""

    NAN = "nan"
    """A score that is not finite."""
    SHAPE = "shape"
    """Not one score (or verdict) per candidate."""
    EXCEPTION = "exception"
    TIMEOUT = "timeout"
    DIGEST = "digest"
    """Its weights could not be had or were refused: digest, schema, policy, shape."""
    RELEASE = "release"
    """Its weights are made for the inputs of another release. Releases that do not know the word pass over it."""


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """When a policy is no longer asked."""

    deadline_s: float = 0.05
    """CPU time beyond which an answer is late. 1,000 nodes are to take 20 ms at most (p99)."""
    patience: int = 3
    """Failed answers in a row after which the policy rests: each costs an answer of its own. A late one counts for as
    many as it took deadlines: one hiccup (a machine that loses its core, a collector's pass) is no reason to rest."""
    rest: int = 100
    """Decisions by the heuristic before a resting policy is tried again."""


def no_clock() -> float:
    """A clock that stands still: nothing is ever late."""
    return 0.0


class Guard:
    """A policy and its fallback. ``failures`` counts by kind since this policy was put behind the guard."""

    def __init__(
        self,
        policy: Policy,
        fallback: Policy | None = None,
        *,
        clock: Callable[[], float] = no_clock,
        settings: GuardSettings | None = None,
    ) -> None:
        self.policy = policy
        self.fallback = fallback or KubeDefault()
        self.failures: Counter[Failure] = Counter()
        self.fallbacks = 0
        """Decisions made by the fallback."""
        self._clock = clock
        self._settings = settings or GuardSettings()
        self._bad_in_a_row = 0
        self._resting = 0

    @property
    def willing(self) -> bool:
        """Whether the next decision is the policy's to try."""
        return self._resting == 0

    def decide(self, observation: Observation, rng: Rng) -> tuple[Verdicts, bool]:
        """Verdicts that can be used, and whether they are the fallback's."""
        if self._resting:
            self._resting -= 1
            return self.fall_back(observation, rng), True
        verdicts = self._ask(observation, rng)
        if verdicts is None:
            return self.fall_back(observation, rng), True
        return verdicts, False

    def context(self, table: NodeTable) -> Hashable:
        """What the policy compares rows of the table with (``context_of``); None where it fails to say."""
        if not hasattr(self.policy, "context") or self._resting:
            return None
        found, started = None, self._clock()
        try:
            with np.errstate(all="ignore"):
                found = context_of(self.policy, table)
                hash(found)  # what cannot be kept cannot be compared either
        except Exception:  # noqa: BLE001  as in _ask
            found = None
            self._bad(Failure.EXCEPTION, 1)
        if late := int((self._clock() - started) / self._settings.deadline_s):
            self._bad(Failure.TIMEOUT, late)
        return found

    def prepare(self, table: NodeTable, asked: Sequence[tuple[PodClass, IntArray]]) -> None:
        """Tell a policy that wants to know (it has a ``prepare``) what it is asked for next; only time may come of it,
        so what goes wrong is counted and otherwise seen when it is asked."""
        prepare = getattr(self.policy, "prepare", None)
        if prepare is None or self._resting:
            return
        started = self._clock()
        try:
            with np.errstate(all="ignore"):
                prepare(table, asked)
        except Exception:  # noqa: BLE001  as in _ask
            self._bad(Failure.EXCEPTION, 1)
        if late := int((self._clock() - started) / self._settings.deadline_s):
            self._bad(Failure.TIMEOUT, late)

    def fall_back(self, observation: Observation, rng: Rng) -> Verdicts:
        """The heuristic's verdicts, counted."""
        self.fallbacks += 1
        return self.fallback.decide(observation, rng)

    def _ask(self, observation: Observation, rng: Rng) -> Verdicts | None:
        started = self._clock()
        try:
            with np.errstate(all="ignore"):
                verdicts = self.policy.decide(observation, rng)
                failure = fault_of(verdicts, len(observation.rows))
        except Exception:  # noqa: BLE001  whatever a policy raises, a decision is wanted now; it is counted and told
            verdicts, failure = None, Failure.EXCEPTION
        late = int((self._clock() - started) / self._settings.deadline_s)
        if failure is not None:
            self._bad(failure, 1)
            return None
        if late:
            self._bad(Failure.TIMEOUT, late)
        else:
            self._bad_in_a_row = 0
        return verdicts

    def _bad(self, failure: Failure, times: int) -> None:
        self.failures[failure] += 1
        self._bad_in_a_row += times
        if self._bad_in_a_row >= self._settings.patience:
            self._resting = self._settings.rest
            self._bad_in_a_row = max(0, self._settings.patience - 1)


def fault_of(verdicts: Verdicts, candidates: int) -> Failure | None:
    """What is wrong with an answer for so many candidates; None: nothing."""
    shape_ok = verdicts.score.shape == (candidates,) and (
        verdicts.accept is None or verdicts.accept.shape == (candidates,)
    )
    if not shape_ok:
        return Failure.SHAPE
    return None if bool(np.isfinite(verdicts.score).all()) else Failure.NAN
