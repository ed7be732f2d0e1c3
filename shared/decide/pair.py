"""The policy of a domain's settings, and a candidate that is tried beside it, as the record says. Pure.

Whoever decides asks both, and ``judge`` what the rollout becomes; who decides for which subject is ``candidate_for``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from shared.decide.canary import in_canary
from shared.decide.judging import Judge
from shared.decide.rollout import Rollout, same_step
from shared.decide.stages import Stage
from shared.errors import ConfigError

Guarded = TypeVar("Guarded")
"""A policy behind the domain's guard."""


class PolicyPair(Generic[Guarded]):
    """``make``: a policy by name behind a guard; ``ConfigError``: there is none, or it cannot be had here."""

    def __init__(
        self, teacher: Guarded, *, make: Callable[[str], Guarded], judge: Callable[[], Judge]
    ) -> None:  # fmt: skip
        self.teacher = teacher
        self.candidate: Guarded | None = None
        self.rollout = Rollout()
        self.revision = 0
        """Of the record in etcd that ``rollout`` was read from."""
        self.refused = ""
        """Why the candidate cannot be had here."""
        self.judge = judge()
        self._new_judge = judge
        self._make = make
        self._gone: tuple[Rollout, Rollout] | None = None
        """The rollout that this term took back last, and what became of it."""

    def read(self, rollout: Rollout, revision: int) -> Rollout | None:
        """The record was read. One that was taken back stays so: what of it is read is from before, or a window's
        figures that came to etcd first. Returned: what is then to be written over it."""
        # By step and not by equality: a good window of before may have been written over what we took back from (R2).
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

    def candidate_for(self, subject: str) -> bool:
        """Whether the candidate decides for this subject, where it can be had (R2, R4)."""
        match self.rollout.stage:
            case Stage.ACTIVE:
                return self.candidate is not None
            case Stage.CANARY:
                return self.candidate is not None and in_canary(subject, self.rollout.candidate, self.rollout.percent)
        return False

    def _follow(self, rollout: Rollout, revision: int) -> None:
        """Another candidate or step is judged anew (R3)."""
        before, self.rollout, self.revision = self.rollout, rollout, revision
        # Only its figures differ: another judge would forget what the candidate has cost since the step began.
        if same_step(before, rollout):
            return
        self.judge, self.refused = self._new_judge(), ""
        if not rollout.on:
            self.candidate = None
        # Not made again for its next step: it would lose what it remembers, and the guard what it has counted.
        elif self.candidate is None or before.candidate != rollout.candidate:
            try:
                self.candidate = self._make(rollout.candidate)
            except ConfigError as error:
                self.candidate, self.refused = None, str(error)
            except Exception as error:  # noqa: BLE001  whatever is wrong with it: the next leader would make it too
                told = f"{rollout.candidate}: {type(error).__name__}: {error}"[:256]
                self.candidate, self.refused = None, told
