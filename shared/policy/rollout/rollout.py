"""How a new policy comes to decide, and how it goes again by itself: a pure state machine over the policy pointer.

    publish      gate passed      promoted             ... at each step           promoted
    CANDIDATE ----------> SHADOW ---------------> CANARY 1 -> 10 -> 50 -> 100 % ----------------> ACTIVE
        |                   |                        |                                              |
        +-- gate failed     +---- 3 bad windows, or a hard failure once: candidate withdrawn        |
                                                      hard failure of the active: previous again <--+

An operator promotes, step by step; with the promotion ``auto`` 3 good windows do. A *window* compares candidate and
active on the same decisions. Worse than the active by more than ``margin`` in any of value, fallbacks, rejected
placements, or too slow: a bad window; worse in value by no more than chance explains, or worse only than at another
time: an unsure one, which neither promotes nor withdraws. A hard failure (NaN, wrong shape, exception, wrong digest)
needs no window. Every change is one ``PointerChange`` with a reason, to be written by compare-and-swap.

The steps and their rules (R1 to R5) are those of ``shared/decide/stages.py``. Here R1: the active policy changes only
to the candidate at 100 %, to the previous one, or by an operator; R3: windows count for one (candidate, stage, percent,
goal, rehearsals' word); R4: by uid (of a pod group: its key); R5: unless the promotion is ``auto``.

No I/O, no clock, and no KPI is read here: whoever holds it closes windows (``now`` is theirs).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from shared.decide.canary import in_canary
from shared.decide.guard import Failure
from shared.decide.stages import RolloutStep, Stage, WindowRow, forced, left_out, next_step, step_to
from shared.errors import ConfigError
from shared.policy.domain import PLACEMENT
from shared.policy.observation import Policy
from shared.policy.rollout.judging import Promotion, RolloutSettings, RolloutWindow, judge
from shared.policy.rollout.outcome import CARD, NEUTRAL, known_goal
from shared.wire.records import PolicyPointer, PolicyRef, Rehearsed

BUILT_IN = PolicyRef("kube-default", 1)
"""What decides when nothing else is left: it has no weights and cannot fail to load."""

HARD = frozenset({Failure.NAN, Failure.SHAPE, Failure.EXCEPTION, Failure.DIGEST, Failure.RELEASE})
"""Failures that no loaded machine explains. A timeout counts in the window instead."""

UNLOADED = frozenset({Failure.DIGEST, Failure.RELEASE})
"""Failures of an agent that goes on by what it has."""

HISTORY_LIMIT = 200
"""Records of changes kept in etcd."""

AUTOMATIC = "rollout"
"""Who made a change that the evaluation made by itself (``PolicyPointer.by``)."""


@dataclass(frozen=True, slots=True)
class PointerChange:
    """A pointer to write in place of ``before``."""

    before: PolicyPointer
    after: PolicyPointer


def first_pointer(active: PolicyRef, *, number: int = 0) -> PolicyPointer:
    """The pointer of a mesh that has none, or none any more: then ``number`` is that of the last change before."""
    return PolicyPointer(active=active, number=number)


def publish(pointer: PolicyPointer, ref: PolicyRef, *, by: str, made_for: str = "") -> PointerChange:
    """A new candidate, in place of one that has not come beyond shadow; ``made_for``: the goal that it is for.
    ``ConfigError``: one is in the canary."""
    if pointer.stage == Stage.CANARY and pointer.candidate is not None:
        raise ConfigError(
            f"policy: {pointer.candidate.title} is in the canary; wait until it is active, or roll it back first"
        )
    if ref == pointer.active:
        raise ConfigError(f"policy: {ref.title} with these weights is active already; publish another version")
    return _change(
        pointer, f"{ref.title} published", by, candidate=ref, stage=Stage.CANDIDATE, percent=0, promotion="", goal="",
        made_for=made_for, proposed_by=by,
    )  # fmt: skip


def to_stage(
    pointer: PolicyPointer, stage: Stage, percent: int, *, reason: str, by: str, forced: bool = False
) -> PointerChange:
    """Move the candidate; ``forced``: without the windows that would speak for it. ``ConfigError``: there is none, or
    the percentage does not belong to the stage."""
    if pointer.candidate is None:
        raise ConfigError("policy: there is no candidate; publish or activate one first")
    if (stage is Stage.CANARY) != (1 <= percent <= 100) or (stage is not Stage.CANARY and percent):
        raise ConfigError(f"policy: {percent} % does not belong to stage {stage}; a canary takes 1 to 100 %")
    if stage is Stage.ACTIVE:
        return _change(
            pointer, reason, by, active=pointer.candidate, previous=pointer.active, candidate=None, stage=stage,
            percent=0, forced=forced,
        )  # fmt: skip
    return _change(pointer, reason, by, stage=stage, percent=percent, forced=forced)


def promote(
    pointer: PolicyPointer, *, to: Stage | None = None, percent: int | None = None, reason: str, by: str,
    lacking: str = "", force: bool = False,
) -> PointerChange:  # fmt: skip
    """Take the candidate further: one step, or at once to the stage ``to``; ``percent``: the share of a canary, by
    default the next step's. ``lacking``: what it lacks of windows that speak for it; then it is refused, or, with
    ``force``, recorded as forced; so is a step that leaves out its canary. To shadow, where windows begin, it needs
    none.

    ``ConfigError``: there is no candidate, or that is no step forward; ``TooFewWindows``."""
    if pointer.candidate is None:
        raise ConfigError("policy: there is no candidate to promote; activate one first")
    title = pointer.candidate.title
    step = step_to(pointer.stage, pointer.percent, PLACEMENT.shares, title=title, to=to, share=percent)
    if not lacking and (skips := left_out(pointer.stage, pointer.percent, step, PLACEMENT.shares, title=title)):
        lacking = f"policy: {skips}, or force it (--force)"
    unproven = forced(step, lacking, force=force)
    return to_stage(pointer, *step, reason=reason, by=by, forced=unproven)


def promotion_of(pointer: PolicyPointer, settings: RolloutSettings) -> Promotion:
    """Who promotes this candidate; by hand where a word is not known."""
    return Promotion.AUTO if (pointer.promotion or settings.promotion) == Promotion.AUTO else Promotion.MANUAL


def deciding_goal(pointer: PolicyPointer, settings: RolloutSettings) -> str:
    """The goal by which this candidate's windows are judged: the operator's, else that of the settings, which is what
    the candidate is for unless they name another, else the neutral one."""
    goal = pointer.goal or (pointer.made_for if settings.goal == CARD else settings.goal)
    return goal if known_goal(goal) else NEUTRAL


def roll_back(pointer: PolicyPointer, *, reason: str, by: str) -> PointerChange:
    """Withdraw the candidate; where there is none, the previous policy decides again.

    ``ConfigError``: neither a candidate nor a previous policy, and the built-in heuristic decides already.
    """
    if pointer.candidate is not None:
        return _change(pointer, reason, by, candidate=None, stage=Stage.ACTIVE, percent=0)
    return _dethrone(pointer, reason, by)


def rehearse(pointer: PolicyPointer, found: Sequence[Rehearsed], *, reason: str, by: str) -> PointerChange:
    """What rehearsals say from now on, of all policies that the pointer names; no policy changes."""
    return _change(pointer, reason, by, rehearsed=tuple(found))


def rehearsed_of(pointer: PolicyPointer, ref: PolicyRef) -> Rehearsed | None:
    """What a rehearsal said of these weights; None: nothing that holds."""
    return next((one for one in pointer.rehearsed if ref.sha256 and one.sha256 == ref.sha256), None)


def apply_rehearsal(policy: Policy | None, ref: PolicyRef, pointer: PolicyPointer) -> None:
    """Let ``policy``, which is that of ``ref``, place by what a rehearsal said of it; by itself where none did."""
    place_by = getattr(policy, "place_by", None)
    if place_by is not None:
        said = rehearsed_of(pointer, ref)
        place_by(ref.name if said is None else said.places)


def candidate_for(subject: str, pointer: PolicyPointer) -> bool:
    """Whether the candidate decides for the pod of this uid, or for the pod group of this key (R4)."""
    if pointer.stage != Stage.CANARY or pointer.candidate is None:
        return False
    return in_canary(subject, pointer.candidate.sha256 or pointer.candidate.title, pointer.percent)


@dataclass(slots=True)
class PointerRollout:
    """Counts windows for one pointer and says what changes."""

    settings: RolloutSettings
    pointer: PolicyPointer
    by: str = AUTOMATIC
    row: WindowRow = field(default_factory=WindowRow)
    """Of the step that the pointer is at."""

    def seen(self, pointer: PolicyPointer) -> None:
        """The pointer as the store has it now."""
        before, self.pointer = self.pointer, pointer
        if step_of(before) != step_of(pointer):
            self.forget()

    def lacking(self) -> str:
        """What the candidate lacks of windows that speak for its next step; "" for nothing."""
        candidate = self.pointer.candidate
        return "" if candidate is None else self.row.lacking(candidate.title, self.settings.good_windows)

    @property
    def next(self) -> RolloutStep | None:
        """Where the candidate comes when windows promote it; None: there is none."""
        if self.pointer.candidate is None:
            return None
        return next_step(self.pointer.stage, self.pointer.percent, self.settings.percents)

    def windows_wanted(self) -> bool:
        """Whether there is anything to compare."""
        return self.pointer.candidate is not None and self.pointer.stage in (Stage.SHADOW, Stage.CANARY)

    @property
    def automatic(self) -> bool:
        """Whether good windows promote."""
        return promotion_of(self.pointer, self.settings) is Promotion.AUTO

    def closed(self, window: RolloutWindow) -> PointerChange | None:
        """A window has ended."""
        if not self.windows_wanted() or window.samples < self.settings.min_samples:
            return None
        row, settings = self.row, self.settings
        row.add(*judge(window, settings))
        if row.bad >= settings.bad_windows:
            told = f"worse in {row.bad} windows in a row: {'; '.join(row.reasons)}"
            return roll_back(self.pointer, reason=told, by=self.by)
        step = self.next
        if step is None or not self.automatic or row.good < settings.good_windows:
            return None
        return to_stage(self.pointer, *step, reason=f"{row.good} windows not worse", by=self.by)

    def failed(self, failures: Iterable[tuple[PolicyRef, Failure]], *, others: bool = False) -> PointerChange | None:
        """Policies failed at agents; a hard failure takes the policy away at once. ``others``: agents judge by the
        active policy that have not refused to load it: amid an upgrade it stays, and who cannot load it goes on by
        what it has. Once nobody can, it is taken away, so that what the pointer names is what decides."""
        for ref, failure in failures:
            if failure not in HARD:
                continue
            reason = f"{ref.title} failed: {failure}"
            if ref == self.pointer.candidate:
                return roll_back(self.pointer, reason=reason, by=self.by)
            if failure in UNLOADED and others:
                continue
            # a heuristic's own faults are for its guard; one that agents do not have is no policy
            if ref == self.pointer.active and (ref.sha256 or failure in UNLOADED):
                return _dethrone(self.pointer, reason, self.by)
        return None

    def forget(self) -> None:
        """Count windows from none (R3)."""
        self.row = WindowRow()


def step_of(pointer: PolicyPointer) -> tuple[object, ...]:
    """What a row of windows is counted for (R3)."""
    return pointer.candidate, pointer.stage, pointer.percent, pointer.goal, pointer.made_for, pointer.rehearsed


def _dethrone(pointer: PolicyPointer, reason: str, by: str) -> PointerChange:
    """The previous policy decides again; the built-in heuristic where there is none. A candidate goes too: it was
    compared with what is gone."""
    successor = pointer.previous or BUILT_IN
    if successor == pointer.active:
        if pointer.active == BUILT_IN:
            raise ConfigError("policy: nothing to roll back to; activate another policy instead")
        successor = BUILT_IN
    return _change(pointer, reason, by, active=successor, previous=None, candidate=None, stage=Stage.ACTIVE, percent=0)


def _change(pointer: PolicyPointer, reason: str, by: str, **fields: object) -> PointerChange:
    fields = {"forced": False, **fields}
    after = msgspec.structs.replace(pointer, number=pointer.number + 1, reason=reason, by=by, **fields)
    if after.candidate is None:
        after = msgspec.structs.replace(after, promotion="", goal="", made_for="", proposed_by="")
    named = [ref.sha256 for ref in (after.active, after.candidate) if ref is not None]
    after = msgspec.structs.replace(after, rehearsed=tuple(one for one in after.rehearsed if one.sha256 in named))
    return PointerChange(pointer, after)
