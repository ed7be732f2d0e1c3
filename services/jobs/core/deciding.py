"""Who divides the GPUs now: the policy of the settings behind its guard, and beside it a candidate that is tried.

observe --> the teacher --> (shadow, active: the candidate, shown the same; canary: its lane, the rest of the GPUs)
        --> both compared (``shared/jobs/online``) --> what the stage says is carried out; maybe ``WriteRollout``
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from services.jobs.core.observing import ObservedJobs
from services.jobs.core.state import JobsState
from shared.decide.judging import Judge
from shared.decide.pair import PolicyPair
from shared.decide.rollout import Rollout, gone
from shared.decide.stages import Stage
from shared.errors import ConfigError
from shared.jobs.bounds import Allowed, allow
from shared.jobs.domain import JOBS
from shared.jobs.guard import GuardedAnswer, JobsGuard
from shared.jobs.observation import JobsObservation
from shared.jobs.online.lanes import joined, of_lane
from shared.jobs.online.worth import compared


class JobsDecision(Struct, frozen=True):
    """``rollout``: what is to be written of the candidate; None: nothing."""

    allowed: Allowed
    problem: str
    rollout: Rollout | None


def _none(name: str) -> JobsGuard:
    raise ConfigError(f"policy: {name!r} is not known here")


class Deciding:
    """``make``: a policy by name behind a guard; ``ConfigError``: there is none, or it cannot be had here."""

    def __init__(
        self,
        teacher: JobsGuard,
        *,
        make: Callable[[str], JobsGuard] = _none,
        judge: Callable[[], Judge] = lambda: Judge(JOBS),
    ) -> None:
        self.pair = PolicyPair(teacher, make=make, judge=judge)
        self.problem = ""
        """What the policy that decides did wrong last; "" since it has answered well again."""

    def decide(self, state: JobsState, seen: ObservedJobs, now: float) -> JobsDecision:
        """What is carried out. Where a policy fails, everything stays as it was decided last."""
        pair = self.pair
        answer = _ask(pair.teacher, seen, seen.observation)
        candidate, rollout = pair.candidate, pair.rollout
        if not rollout.on or candidate is None:
            self.problem = answer.problem
            written = gone(rollout, JOBS, pair.refused) if pair.refused and rollout.on else None
            return JobsDecision(answer.allowed, answer.problem, written)
        lane = seen.ours
        if rollout.stage is Stage.CANARY:
            lane = frozenset(key for key in seen.ours if pair.candidate_for(state.jobs[key].job.uid))
        shown = of_lane(seen.observation, answer.allowed, lane) if rollout.stage is Stage.CANARY else seen.observation
        told = _ask(candidate, seen, shown, lane)
        changes = joined(answer.allowed, told.allowed, lane)
        again = allow(seen.observation, changes.changes, may_stop=seen.may_stop)
        both = Allowed(again.changes, {**changes.refused, **again.refused})
        # an answer that failed leaves all as it is, which is what is compared then
        gap = compared(seen.observation, answer.allowed, both, seen.ours) if answer.by else None
        written = pair.judge.look(rollout, now, gap, told.problem if candidate.resting else "")
        if rollout.stage not in (Stage.CANARY, Stage.ACTIVE):
            self.problem = answer.problem
            return JobsDecision(answer.allowed, answer.problem, written)
        self.problem = told.problem or answer.problem
        if written is not None and not written.on:
            return JobsDecision(answer.allowed, self.problem, written)  # it went back: its last wish is not carried out
        return JobsDecision(both, self.problem, written)


def _ask(
    guard: JobsGuard, seen: ObservedJobs, shown: JobsObservation, lane: frozenset[str] | None = None
) -> GuardedAnswer:
    return guard.decide(shown, ours=seen.ours if lane is None else lane, may_stop=seen.may_stop)
