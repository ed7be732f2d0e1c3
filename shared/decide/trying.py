"""The policy of a domain's settings, and a candidate that is tried beside it, as the record says. Pure.

Whoever decides asks both, and ``judge`` what the trial becomes; who decides for which subject is ``candidate_for``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from shared.decide.canary import in_canary
from shared.decide.judging import Judge
from shared.decide.stages import Stage
from shared.decide.trial import Trial, same_step
from shared.errors import ConfigError

Guarded = TypeVar("Guarded")
"""A policy behind the domain's guard."""


class Trying(Generic[Guarded]):
    """``make``: a policy by name behind a guard; ``ConfigError``: there is none, or it cannot be had here."""

    def __init__(
        self, teacher: Guarded, *, make: Callable[[str], Guarded], judge: Callable[[], Judge]
    ) -> None:  # fmt: skip
        self.teacher = teacher
        self.candidate: Guarded | None = None
        self.trial = Trial()
        self.revision = 0
        """Of the record in etcd that ``trial`` was read from."""
        self.refused = ""
        """Why the candidate cannot be had here."""
        self.judge = judge()
        self._new_judge = judge
        self._make = make
        self._gone: tuple[Trial, Trial] | None = None
        """The trial that this term took back last, and what became of it."""

    def read(self, trial: Trial, revision: int) -> Trial | None:
        """The record was read. One that was taken back stays so: what of it is read is from before, or a window's
        figures that came to etcd first. Returned: what is then to be written over it."""
        if self._gone is None or not trial.on or not same_step(trial, self._gone[0]):
            self._follow(trial, revision)
            return None
        self._follow(self._gone[1], revision)
        return self._gone[1]

    def became(self, trial: Trial) -> None:
        """What is being written holds at once, also while etcd does not answer."""
        if self.trial.on and not trial.on:
            self._gone = (self.trial, trial)
        self._follow(trial, self.revision)

    def candidate_for(self, subject: str) -> bool:
        """Whether the candidate decides for this subject, where it can be had (R2, R4)."""
        match self.trial.stage:
            case Stage.ACTIVE:
                return self.candidate is not None
            case Stage.CANARY:
                return self.candidate is not None and in_canary(subject, self.trial.candidate, self.trial.percent)
        return False

    def _follow(self, trial: Trial, revision: int) -> None:
        """Another candidate or step is judged anew (R3)."""
        before, self.trial, self.revision = self.trial, trial, revision
        if same_step(before, trial):
            return
        self.judge, self.refused = self._new_judge(), ""
        if not trial.on:
            self.candidate = None
        elif self.candidate is None or before.candidate != trial.candidate:
            try:
                self.candidate = self._make(trial.candidate)
            except ConfigError as error:
                self.candidate, self.refused = None, str(error)
            except Exception as error:  # noqa: BLE001  whatever is wrong with it: the next leader would make it too
                told = f"{trial.candidate}: {type(error).__name__}: {error}"[:256]
                self.candidate, self.refused = None, told
