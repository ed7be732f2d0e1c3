"""Who divides the GPUs now: the policy of the settings behind its guard, and beside it a candidate that is rolled out.

observe --> the teacher --> (shadow, active: the candidate, shown the same; canary: its lane, the rest of the GPUs)
        --> both compared (``shared/jobs/online``) --> what the stage says is carried out; maybe ``WriteRollout``
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from services.jobs.core.observing import Seen
from services.jobs.core.state import State
from shared.errors import ConfigError
from shared.jobs.bounds import Allowed, allow
from shared.jobs.guard import Answer, JobsGuard
from shared.jobs.observation import Observation
from shared.jobs.online.lanes import joined, of_lane
from shared.jobs.online.stages import Judge, Rollout, Stage, back, in_canary, same_step
from shared.jobs.online.worth import compared


class Decided(Struct, frozen=True):
    """``rollout``: what is to be written of the candidate; None: nothing."""

    allowed: Allowed
    problem: str
    rollout: Rollout | None


class Deciding:
    """``make``: a policy by name behind a guard; ``ConfigError``: there is none, or it cannot be had here."""

    def __init__(
        self, teacher: JobsGuard, *, make: Callable[[str], JobsGuard] | None = None, judge: Callable[[], Judge] = Judge
    ) -> None:
        self.teacher = teacher
        self.candidate: JobsGuard | None = None
        self.rollout = Rollout()
        self.revision = 0
        """Of the record in etcd that ``rollout`` was read from."""
        self.problem = ""
        """What the policy that decides did wrong last; "" since it has answered well again."""
        self.judge = judge()
        self._new_judge = judge
        self._make = make if make is not None else _none
        self._refused = ""
        self._gone: tuple[Rollout, Rollout] | None = None
        """The rollout that this term took back last, and what became of it."""

    def read(self, rollout: Rollout, revision: int) -> Rollout | None:
        """The record was read. One that was taken back stays so: what of it is read is from before, or a window's
        figures that came to etcd first. Returned: what is then to be written over it."""
        if self._gone is None or not rollout.on or not same_step(rollout, self._gone[0]):
            self._follow(rollout, revision)
            return None
        self._follow(self._gone[1], revision)
        return self._gone[1]

    def became(self, rollout: Rollout) -> None:
        """What is being written holds at once, also while etcd does not answer."""
        if self.rollout.on and not rollout.on:
            self._gone = (self.rollout, rollout)
        self._follow(rollout, self.revision)

    def _follow(self, rollout: Rollout, revision: int) -> None:
        """Another candidate or stage is judged anew."""
        before, self.rollout, self.revision = self.rollout, rollout, revision
        if same_step(before, rollout):
            return
        self.judge, self._refused = self._new_judge(), ""
        if not rollout.on:
            self.candidate = None
        elif self.candidate is None or before.candidate != rollout.candidate:
            try:
                self.candidate = self._make(rollout.candidate)
            except ConfigError as error:
                self.candidate, self._refused = None, str(error)
            except Exception as error:  # noqa: BLE001  whatever is wrong with it: the next leader would make it too
                told = f"{rollout.candidate}: {type(error).__name__}: {error}"[:256]
                self.candidate, self._refused = None, told

    def decide(self, state: State, seen: Seen, now: float) -> Decided:
        """What is carried out. Where a policy fails, everything stays as it was decided last."""
        answer = _ask(self.teacher, seen, seen.observation)
        candidate, stage = self.candidate, self.rollout.stage
        if not self.rollout.on or candidate is None:
            self.problem = answer.problem
            written = back(self.rollout, self._refused) if self._refused and self.rollout.on else None
            return Decided(answer.allowed, answer.problem, written)
        lane = seen.ours
        if stage is Stage.CANARY:
            lane = frozenset(key for key in seen.ours if self._in_canary(state, key))
        shown = of_lane(seen.observation, answer.allowed, lane) if stage is Stage.CANARY else seen.observation
        told = _ask(candidate, seen, shown, lane)
        changes = joined(answer.allowed, told.allowed, lane)
        again = allow(seen.observation, changes.changes, may_stop=seen.may_stop)
        both = Allowed(again.changes, {**changes.refused, **again.refused})
        # an answer that failed leaves all as it is, which is what is compared then
        gap = compared(seen.observation, answer.allowed, both, seen.ours) if answer.by else None
        written = self.judge.look(self.rollout, now, gap, told.problem if candidate.resting else "")
        if stage is Stage.SHADOW:
            self.problem = answer.problem
            return Decided(answer.allowed, answer.problem, written)
        self.problem = told.problem or answer.problem
        if written is not None and not written.on:
            return Decided(answer.allowed, self.problem, written)  # it went back: its last wish is not carried out
        return Decided(both, self.problem, written)

    def _in_canary(self, state: State, key: str) -> bool:
        return in_canary(state.jobs[key].job.uid, self.rollout.percent)


def _ask(guard: JobsGuard, seen: Seen, shown: Observation, lane: frozenset[str] | None = None) -> Answer:
    return guard.decide(shown, ours=seen.ours if lane is None else lane, may_stop=seen.may_stop)


def _none(name: str) -> JobsGuard:
    raise ConfigError(f"policy: {name!r} is not known here")
