"""A policy for training jobs behind the guard of ``shared/decide``: where it fails, what was decided last stands; while
it rests, ``elastic`` decides, so that those that wait start. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from msgspec import Struct

from shared.decide.guard import Failure, Faulty, Guard, GuardLimits, no_clock
from shared.jobs.bounds import Allowed, allow
from shared.jobs.domain import JOBS
from shared.jobs.observation import JobAllocation, JobsObservation, Policy
from shared.jobs.policies.elastic import Elastic


class GuardedAnswer(Struct, frozen=True):
    """``allowed``: what is carried out, and why not the rest. ``problem``: what the policy did wrong, "" for nothing.
    ``by``: who decided; "" where what was decided last stands."""

    allowed: Allowed
    by: str
    problem: str = ""


class JobsGuard:
    """A policy and its fallback."""

    def __init__(
        self,
        policy: Policy,
        fallback: Policy | None = None,
        *,
        clock: Callable[[], float] = no_clock,
        limits: GuardLimits = JOBS.limits,
    ) -> None:
        self.policy = policy
        self._fallback = fallback if fallback is not None else Elastic()
        self._guard = Guard(self._allowed, limits, clock=clock)

    @property
    def name(self) -> str:
        """The policy's."""
        return self.policy.name

    @property
    def resting(self) -> bool:
        """Whether the fallback decides."""
        return self._guard.resting > 0

    def decide(self, seen: JobsObservation, *, ours: Collection[str], may_stop: Collection[str]) -> GuardedAnswer:
        """``ours``: jobs that may be changed; ``may_stop``: those that may be taken to 0 while they run."""
        rests = self.resting
        allowed = self._guard.ask(seen, ours, may_stop)
        problem = f"{self.name}: {self._guard.problem}" if self._guard.problem else ""
        if rests:
            told = f"{problem}; {self._fallback.name} decides, {self._guard.resting} times more"
            return GuardedAnswer(allowed_of(self._fallback, seen, ours, may_stop), self._fallback.name, told)
        return (
            GuardedAnswer(Allowed({}, {}), "", problem)
            if allowed is None
            else GuardedAnswer(allowed, self.name, problem)
        )

    def _allowed(self, seen: JobsObservation, ours: Collection[str], may_stop: Collection[str]) -> Allowed:
        return allowed_of(self.policy, seen, ours, may_stop)


def allowed_of(policy: Policy, seen: JobsObservation, ours: Collection[str], may_stop: Collection[str]) -> Allowed:
    """What is carried out of the policy's wishes. ``Faulty``: its answer is none."""
    decision = policy.decide(seen)
    if not isinstance(decision, Mapping) or not all(isinstance(one, JobAllocation) for one in decision.values()):
        raise Faulty(Failure.SHAPE, "its answer is no mapping of jobs to allocations")
    return allow(seen, {name: wish for name, wish in decision.items() if name in ours}, may_stop=may_stop)
