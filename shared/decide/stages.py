"""The steps by which a new policy comes to decide, and what each asks for: the same rules in every domain. Pure.

    CANDIDATE ---> SHADOW ---> CANARY, share by share ---> ACTIVE        bad windows, a failure: back, from anywhere

R1 The one that decides for all changes only to a candidate that was taken through all steps, back, or by an operator.
R2 What was taken back decides for nobody any more.
R3 Windows count for one step of one candidate only (``WindowRow``); a new leader of placement starts at none.
R4 Who is in the canary at p % is in it at any larger share (``canary``).
R5 Without a good window in a row nobody takes a candidate beyond shadow, but an operator who forces it: on record.
R6 Nor for all at once one that has decided for nobody yet, whatever it showed in shadow: there nobody bears its harm.
   ``promote`` refuses both; ``try``, where an operator names the stage, does both and records them as forced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from shared.errors import ConfigError, TooFewWindows

EVERYBODY = 100
"""Percent of a canary."""


class Stage(StrEnum):
    """Where the candidate is. The values are in etcd, metrics and answers."""

    NONE = "none"
    """There is none: it was taken back, or never was."""
    CANDIDATE = "candidate"
    """Published, not yet through the gate on the twin."""
    SHADOW = "shadow"
    """It decides beside; nothing is done for it."""
    CANARY = "canary"
    """It decides for a share of the subjects."""
    ACTIVE = "active"
    """It decides for all."""


class RolloutStep(NamedTuple):
    """``percent``: of a canary; 0 elsewhere."""

    stage: Stage
    percent: int = 0


def next_step(stage: str, percent: int, shares: Sequence[int]) -> RolloutStep:
    """Where a candidate comes when it is promoted."""
    if stage == Stage.CANDIDATE:
        return RolloutStep(Stage.SHADOW)
    # The first that is larger, not the one behind: an operator may have named a share that is none of the domain's.
    further = next((share for share in shares if share > percent), 0)
    return RolloutStep(Stage.CANARY, further) if further else RolloutStep(Stage.ACTIVE)


def step_to(
    stage: str, percent: int, shares: Sequence[int], *, title: str, to: Stage | None = None, share: int | None = None
) -> RolloutStep:
    """One step further, or at once to the stage ``to``; ``share``: of a canary, in place of the next step's.
    ``ConfigError``: that is no step forward."""
    if share is not None and to not in (None, Stage.CANARY):
        raise ConfigError(f"percent: belongs to the stage canary; leave it out with {to}")
    if to is Stage.ACTIVE:
        return RolloutStep(Stage.ACTIVE)
    if to is Stage.CANARY or share is not None:
        wanted = next((one for one in shares if one > percent), 0) if share is None else share
        if wanted <= percent:
            raise ConfigError(
                f"policy: {title} is in the canary at {percent} % already; promote it to active or to a larger "
                "percent, or activate it with a smaller one to go back"
            )
        return RolloutStep(Stage.CANARY, wanted)
    return next_step(stage, percent, shares)


def left_out(stage: str, percent: int, step: RolloutStep, shares: Sequence[int], *, title: str) -> str:
    """What a step lacks that hands all to a candidate which was in no canary, where there are canaries (R6); "" for
    nothing."""
    due = next_step(stage, percent, shares)
    for_all = step.stage is Stage.ACTIVE or (step.stage is Stage.CANARY and step.percent == EVERYBODY)
    if stage == Stage.CANARY or not for_all or step == due:
        return ""
    first = f"{due.stage} {due.percent} %" if due.percent else due.stage
    return f"{title} has decided for nobody yet, so no window says what others bear by it; promote it to {first} first"


def forced(step: RolloutStep, lacking: str, *, force: bool) -> bool:
    """Whether the step is taken without the windows that would speak for it, of which it is ``lacking`` some ("": none)
    (R5). To shadow, where windows begin, none are needed. ``TooFewWindows``: nobody forces it."""
    unproven = bool(lacking) and step.stage is not Stage.SHADOW
    if unproven and not force:
        raise TooFewWindows(lacking)
    return unproven


class WindowVerdict(StrEnum):
    """What a window says of the candidate."""

    GOOD = "good"
    UNSURE = "unsure"
    """Not shown to be as good: worse by no more than what is not known explains, or for other causes too."""
    BAD = "bad"


@dataclass(slots=True)
class WindowRow:
    """Windows of one candidate at one step, one after the other."""

    good: int = 0
    bad: int = 0
    reasons: list[str] = field(default_factory=list)
    """Why the windows of the present row were bad."""
    last: tuple[WindowVerdict, str] = (WindowVerdict.GOOD, "")
    """Of the last window, and in what it was worse."""

    def add(self, verdict: WindowVerdict, reason: str = "") -> None:
        """A window has ended."""
        self.last = verdict, reason
        match verdict:
            case WindowVerdict.GOOD:
                self.good, self.bad, self.reasons = self.good + 1, 0, []
            # It ends the good ones alone: bad ones with doubtful ones between them must still take the candidate back.
            case WindowVerdict.UNSURE:
                self.good = 0
            case WindowVerdict.BAD:
                self.good, self.bad = 0, self.bad + 1
                self.reasons.append(reason)

    def lacking(self, title: str, needed: int) -> str:
        """What the candidate lacks of windows that speak for its next step; "" for nothing."""
        if self.good >= needed:
            return ""
        worse = f", the last one {self.last[0]}: {self.last[1]}" if self.last[1] else ""
        return f"{title} has {self.good} of {needed} good windows in a row at this step{worse}"
