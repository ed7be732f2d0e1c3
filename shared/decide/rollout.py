"""A candidate beside the policy of a domain's settings: the record in etcd, and how it changes. Pure.

    none --begin--> shadow --promote--> canary (a share of the subjects) --promote--> active
                     \\__________________\\___________________________________\\--worse, or back--> none

People begin and promote through the coordinator; whoever decides takes it back by itself (``judging``). Placement's
record is the policy pointer, which agents follow; its steps are the same (``stages``).
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from shared.decide.domain import Domain
from shared.decide.registry import PolicyRegistry
from shared.decide.stages import Stage, WindowRow, forced, left_out, next_step
from shared.errors import ConfigError, Conflict, InvalidValue

MOST_PERCENT = 99


class Rollout(Struct, frozen=True, kw_only=True):
    """What is in etcd about the candidate, under ``Keys.rollout``."""

    stage: Stage = Stage.NONE
    candidate: str = ""
    percent: int = 10
    """Of the subjects, in the canary."""
    by: str = ""
    reason: str = ""
    since: str = ""
    """When the stage began, RFC 3339."""
    good: int = 0
    """Good windows at this step, one after the other."""
    ratio: float = 0.0
    """The candidate's worth by its teacher's over the last window; 0.0: none was complete."""
    sd: float = 0.0
    """Of the ratio, from what is not known."""
    forced: bool = False
    """Whether it came to this step without the good windows that it asks for."""

    @property
    def on(self) -> bool:
        """Whether there is a candidate."""
        return self.stage is not Stage.NONE


def same_step(one: Rollout, other: Rollout) -> bool:
    """Whether it is the same step of the same candidate, whatever its figures."""
    return (one.candidate, one.stage, one.since) == (other.candidate, other.stage, other.since)


def begin(held: Rollout, name: str, *, policies: PolicyRegistry, now: str, by: str, reason: str) -> Rollout:
    """Begin with a candidate, in shadow; to say it again changes nothing. Refused: ``InvalidValue``, there is none of
    this name; ``Conflict``, another is tried."""
    try:
        policies.entry(name)
    except ConfigError as error:
        raise InvalidValue(str(error)) from None
    if held.on and held.candidate == name:
        return held
    if held.on:
        raise Conflict(f"policy: {held.candidate} is rolled out, in {held.stage}; take it back first ('policy back')")
    return Rollout(stage=Stage.SHADOW, candidate=name, by=by, reason=reason, since=now)


def promoted(
    held: Rollout, *, domain: Domain, percent: int | None, force: bool, now: str, by: str, reason: str, name: str = ""
) -> Rollout:  # fmt: skip
    """The next step: to the domain's next share, after the last one to all; ``percent``: to this share, which must be
    larger than the present one: asked for twice, it must not hand over all. ``name``: of the candidate that is meant,
    where somebody named it. ``force``: also without good windows, and recorded. Refused: ``Conflict`` where there is no
    such step or candidate, ``InvalidValue``, ``TooFewWindows``."""
    if not held.on or held.stage is Stage.ACTIVE:
        told = f"{held.candidate} is active already" if held.on else "no policy is rolled out; try one first"
        raise Conflict(f"stage: {told}")
    if percent is not None and not 1 <= percent <= MOST_PERCENT:
        raise InvalidValue(f"percent: {percent} is not from 1 to {MOST_PERCENT}")
    if name not in ("", held.candidate):
        raise Conflict(f"policy: {name} is not the candidate for {domain.name}; {held.candidate} is")
    share = held.percent if held.stage is Stage.CANARY else 0
    # <=: beyond the last share comes ACTIVE, so one that is no larger would hand over all subjects.
    if percent is not None and percent <= share:
        raise Conflict(
            f"percent: {held.candidate} is in the canary at {share} % already; name a larger one, or leave it out to "
            "go to the next step"
        )
    step = next_step(held.stage, share, domain.shares if percent is None else (percent,))
    lacks = WindowRow(good=held.good).lacking(held.candidate, domain.good_windows)
    told = f"stage: {lacks}; wait for them, or force it (--force)" if lacks else ""
    if not lacks and (skips := left_out(held.stage, share, step, domain.shares, title=held.candidate)):
        told = f"stage: {skips}, or force it (--force)"
    unproven = forced(step, told, force=force)
    return replace(
        held, stage=step.stage, percent=step.percent or held.percent, good=0, by=by, reason=reason, since=now,
        forced=unproven,
    )  # fmt: skip


def taken_back(held: Rollout, *, now: str, by: str, reason: str) -> Rollout:
    """Only the policy of the settings decides. To say it again changes nothing."""
    return replace(held, stage=Stage.NONE, good=0, by=by, reason=reason, since=now, forced=False) if held.on else held


def gone(held: Rollout, domain: Domain, reason: str) -> Rollout:
    """Taken back by whoever decides; the candidate's name stays for those who ask what became of it."""
    return replace(held, stage=Stage.NONE, good=0, reason=reason, by=domain.service, forced=False)
