"""A policy for training jobs behind a guard: whatever it does wrong, jobs go on, and those that wait start. Pure.

    WILLING --good answer--> WILLING
       |  exception, no decision: what was decided last stands;  ``patience`` of these in a row --> RESTING
       |  later than ``deadline_s``: this decision stands; ``patience`` deadlines late in a row --> RESTING
    RESTING --``rest`` decisions by the fallback--> WILLING (one try)

As ``shared/policy/guard.py``: a policy is synchronous code, so a slow answer cannot be cut short; it can only be the
last one for a while. The clock is handed in and should count the thread's own CPU time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from msgspec import Struct

from shared.jobs.bounds import Allowed, allow
from shared.jobs.observation import Allocation, Observation, Policy
from shared.jobs.policies.elastic import Elastic


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """When a policy is no longer asked."""

    deadline_s: float = 1.0
    """CPU time beyond which an answer is late; 2,000 jobs are to take 1 s at most."""
    patience: int = 3
    """Failed answers in a row after which the policy rests. A late one counts for as many as it took deadlines."""
    rest: int = 20
    """Decisions by the fallback before a resting policy is tried again."""


class Answer(Struct, frozen=True):
    """``allowed``: what is carried out, and why not the rest. ``problem``: what the policy did wrong, "" for nothing.
    ``by``: who decided; "" where what was decided last stands."""

    allowed: Allowed
    by: str
    problem: str = ""


def no_clock() -> float:
    """A clock that stands still: nothing is ever late."""
    return 0.0


class Guard:
    """A policy and its fallback."""

    def __init__(
        self,
        policy: Policy,
        fallback: Policy | None = None,
        *,
        clock: Callable[[], float] = no_clock,
        settings: GuardSettings | None = None,
    ) -> None:
        self.policy = policy
        self.failures = 0
        """Answers that failed or came late, since it is behind this guard."""
        self._fallback = fallback if fallback is not None else Elastic()
        self._clock = clock
        self._settings = settings if settings is not None else GuardSettings()
        self._bad_in_a_row = 0
        self._resting = 0
        self._problem = ""

    @property
    def name(self) -> str:
        """The policy's."""
        return self.policy.name

    @property
    def resting(self) -> bool:
        """Whether the fallback decides."""
        return self._resting > 0

    def decide(self, seen: Observation, *, ours: Collection[str], may_stop: Collection[str]) -> Answer:
        """``ours``: jobs that may be changed; ``may_stop``: those that may be taken to 0 while they run."""
        if self._resting:
            self._resting -= 1
            told = f"{self._problem}; {self._fallback.name} decides, {self._resting} times more"
            return Answer(_allowed(self._fallback, seen, ours, may_stop), self._fallback.name, told)
        began = self._clock()
        try:
            allowed = _allowed(self.policy, seen, ours, may_stop)
        except Exception as error:  # noqa: BLE001  a policy may be anybody's: what it raises must not stop the jobs
            self._bad(1, f"{self.name}: {type(error).__name__}: {error}"[:256])
            return Answer(Allowed({}, {}), "", self._problem)
        took_s, deadline_s = self._clock() - began, self._settings.deadline_s
        if took_s < deadline_s:
            self._bad_in_a_row, self._problem = 0, ""
            return Answer(allowed, self.name)
        self._bad(int(took_s / deadline_s), f"{self.name}: took {took_s:.1f} s; {deadline_s:g} s are allowed")
        return Answer(allowed, self.name, self._problem)

    def _bad(self, times: int, problem: str) -> None:
        self.failures += 1
        self._problem = problem
        self._bad_in_a_row += times
        if self._bad_in_a_row >= self._settings.patience:
            self._resting = self._settings.rest
            self._bad_in_a_row = max(0, self._settings.patience - 1)


def _allowed(policy: Policy, seen: Observation, ours: Collection[str], may_stop: Collection[str]) -> Allowed:
    decision = policy.decide(seen)
    if not isinstance(decision, Mapping) or not all(isinstance(one, Allocation) for one in decision.values()):
        raise TypeError("its answer is no mapping of jobs to allocations")
    return allow(seen, {name: wish for name, wish in decision.items() if name in ours}, may_stop=may_stop)
