"""How a new policy comes to decide, and how it goes again by itself: a pure state machine over the policy pointer.

    publish      gate passed      3 good windows       ... at each step           3 good windows
    CANDIDATE ----------> SHADOW ---------------> CANARY 1 -> 10 -> 50 -> 100 % ----------------> ACTIVE
        |                   |                        |                                              |
        +-- gate failed     +---- 3 worse windows, or a hard failure once: candidate withdrawn      |
                                                      hard failure of the active: previous again <--+

A *window* compares candidate and active on the same decisions. Worse than the active by more than ``margin`` in any of
value, fallbacks, rejected placements, or too slow: a bad window. A hard failure (NaN, wrong shape, exception, wrong
digest) needs no window. Every change is one ``Change`` with a reason, to be written by compare-and-swap.

Rules, checked by the tests:
R1 The active policy changes only to the candidate at 100 %, to the previous one, or by an operator.
R2 What was withdrawn decides for no pod any more: no candidate, 0 %.
R3 Windows count for one (candidate, stage, percent) only; a new leader starts at none.
R4 A pod is in the canary at p % whenever it is at any lower percentage; which pods, depends on uid and candidate alone.

Refuses to do: I/O, clocks, reading KPIs off anything; whoever holds it closes windows (``now`` is theirs).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from shared.errors import ConfigError
from shared.policy.guard import Failure
from shared.wire.records import PolicyPointer, PolicyRef

BUILT_IN = PolicyRef("kube-default", 1)
"""What decides when nothing else is left: it has no weights and cannot fail to load."""

HARD = frozenset({Failure.NAN, Failure.SHAPE, Failure.EXCEPTION, Failure.DIGEST})
"""Failures that no loaded machine explains. A timeout counts in the window instead."""

HISTORY_LIMIT = 200
"""Records of changes kept in etcd."""


class Stage(StrEnum):
    """Where the candidate is; ACTIVE: there is none."""

    CANDIDATE = "candidate"
    """Published, not yet through the gate on the twin."""
    SHADOW = "shadow"
    """Decides beside the active policy; nothing of it counts."""
    CANARY = "canary"
    """Decides for ``percent`` of the pods."""
    ACTIVE = "active"


@dataclass(frozen=True, slots=True)
class RolloutSettings:
    """How much proof a step needs."""

    window_s: float = 30.0
    """Length of a window; it goes on until it has ``min_samples`` too."""
    min_samples: int = 20
    """Decisions that both policies were asked about."""
    good_windows: int = 3
    """Windows not worse, without a worse one between, per step."""
    bad_windows: int = 3
    """Worse windows in a row that end the rollout."""
    margin: float = 0.02
    """Relative for the value, absolute for shares (targets.md: worse by more than 2 %)."""
    p99_ms: float = 20.0
    """Slowest decision (p99) a candidate may have, unless the active one is as slow."""
    min_share_of: int = 10
    """Shares (fallbacks, rejected) of fewer cases than this say nothing."""
    percents: tuple[int, ...] = (1, 10, 50, 100)


@dataclass(frozen=True, slots=True)
class Kpi:
    """One policy's figures of one window.

    ``value``: mean value of its choices on the decisions both were asked about, higher is better. ``decisions`` and
    ``fallbacks``: groups it judged and those the heuristic had to. ``placements`` and ``rejected``: pods placed by it
    and those the binder refused on the chosen node. ``p99_ms``: of its decisions.
    """

    value: float = 0.0
    decisions: int = 0
    fallbacks: int = 0
    placements: int = 0
    rejected: int = 0
    p99_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Window:
    """``samples``: decisions that both were asked about; ``agreed``: on which they chose the same node."""

    candidate: Kpi
    active: Kpi
    samples: int
    agreed: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """A pointer to write in place of ``before``."""

    before: PolicyPointer
    after: PolicyPointer


def first_pointer(active: PolicyRef, *, number: int = 0) -> PolicyPointer:
    """The pointer of a mesh that has none, or none any more: then ``number`` is that of the last change before."""
    return PolicyPointer(active=active, number=number)


def publish(pointer: PolicyPointer, ref: PolicyRef, *, by: str) -> Change:
    """A new candidate, in place of one that has not come beyond shadow. ``ConfigError``: one is in the canary."""
    if pointer.stage == Stage.CANARY and pointer.candidate is not None:
        raise ConfigError(
            f"policy: {pointer.candidate.title} is in the canary; wait until it is active, or roll it back first"
        )
    if ref == pointer.active:
        raise ConfigError(f"policy: {ref.title} with these weights is active already; publish another version")
    return _change(pointer, f"{ref.title} published", by, candidate=ref, stage=Stage.CANDIDATE, percent=0)


def to_stage(pointer: PolicyPointer, stage: Stage, percent: int, *, reason: str, by: str) -> Change:
    """Move the candidate. ``ConfigError``: there is none, or the percentage does not belong to the stage."""
    if pointer.candidate is None:
        raise ConfigError("policy: there is no candidate; publish or activate one first")
    if (stage is Stage.CANARY) != (1 <= percent <= 100) or (stage is not Stage.CANARY and percent):
        raise ConfigError(f"policy: {percent} % does not belong to stage {stage}; a canary takes 1 to 100 %")
    if stage is Stage.ACTIVE:
        return _change(
            pointer, reason, by, active=pointer.candidate, previous=pointer.active, candidate=None, stage=stage,
            percent=0,
        )  # fmt: skip
    return _change(pointer, reason, by, stage=stage, percent=percent)


def roll_back(pointer: PolicyPointer, *, reason: str, by: str) -> Change:
    """Withdraw the candidate; where there is none, the previous policy decides again.

    ``ConfigError``: neither a candidate nor a previous policy, and the built-in heuristic decides already.
    """
    if pointer.candidate is not None:
        return _change(pointer, reason, by, candidate=None, stage=Stage.ACTIVE, percent=0)
    return _dethrone(pointer, reason, by)


def in_canary(uid: str, pointer: PolicyPointer) -> bool:
    """Whether the candidate decides for this pod (R4)."""
    if pointer.stage != Stage.CANARY or pointer.candidate is None:
        return False
    salt = pointer.candidate.sha256 or pointer.candidate.title
    return zlib.crc32(f"{salt}:{uid}".encode()) % 10_000 < pointer.percent * 100


def worse(window: Window, settings: RolloutSettings) -> str:
    """In what the candidate was worse than the active policy by more than the margin; "" when in nothing."""
    mine, theirs, margin = window.candidate, window.active, settings.margin
    if not mine.value >= theirs.value - margin * abs(theirs.value):  # also when it is NaN
        return f"value {mine.value:.4g} against {theirs.value:.4g}"
    for name, part, whole, their_part, their_whole in (
        ("fallbacks", mine.fallbacks, mine.decisions, theirs.fallbacks, theirs.decisions),
        ("rejected", mine.rejected, mine.placements, theirs.rejected, theirs.placements),
    ):
        if whole < settings.min_share_of:
            continue
        share, their_share = part / whole, their_part / their_whole if their_whole else 0.0
        if share > their_share + margin:
            return f"{name} {share:.1%} against {their_share:.1%}"
    if mine.p99_ms > settings.p99_ms and mine.p99_ms > theirs.p99_ms * (1 + margin):
        return f"p99 of a decision {mine.p99_ms:.1f} ms, at most {settings.p99_ms:g} allowed"
    return ""


@dataclass(slots=True)
class Rollout:
    """Counts windows for one pointer and says what changes."""

    settings: RolloutSettings
    pointer: PolicyPointer
    by: str = "rollout"
    good: int = 0
    bad: int = 0
    reasons: list[str] = field(default_factory=list)
    """Why the windows of the present row were bad."""

    def seen(self, pointer: PolicyPointer) -> None:
        """The pointer as the store has it now."""
        before, self.pointer = self.pointer, pointer
        if (before.candidate, before.stage, before.percent) != (pointer.candidate, pointer.stage, pointer.percent):
            self._forget()

    def windows_wanted(self) -> bool:
        """Whether there is anything to compare."""
        return self.pointer.candidate is not None and self.pointer.stage in (Stage.SHADOW, Stage.CANARY)

    def closed(self, window: Window) -> Change | None:
        """A window has ended."""
        if not self.windows_wanted() or window.samples < self.settings.min_samples:
            return None
        reason = worse(window, self.settings)
        if reason:
            self.good, self.bad = 0, self.bad + 1
            self.reasons.append(reason)
            if self.bad < self.settings.bad_windows:
                return None
            told = f"worse in {self.bad} windows in a row: {'; '.join(self.reasons)}"
            return roll_back(self.pointer, reason=told, by=self.by)
        self.good, self.bad, self.reasons = self.good + 1, 0, []
        return self._advance() if self.good >= self.settings.good_windows else None

    def failed(self, failures: Iterable[tuple[PolicyRef, Failure]]) -> Change | None:
        """Policies failed at agents; a hard failure takes the policy away at once."""
        for ref, failure in failures:
            if failure not in HARD:
                continue
            reason = f"{ref.title} failed: {failure}"
            if ref == self.pointer.candidate:
                return roll_back(self.pointer, reason=reason, by=self.by)
            # a heuristic's own faults are for its guard; one that agents do not have is no policy
            if ref == self.pointer.active and (ref.sha256 or failure is Failure.DIGEST):
                return _dethrone(self.pointer, reason, self.by)
        return None

    def _advance(self) -> Change:
        pointer, steps = self.pointer, self.settings.percents
        reason = f"{self.good} windows not worse"
        further: Sequence[int] = [step for step in steps if step > pointer.percent]
        if pointer.stage == Stage.CANARY and not further:
            return to_stage(pointer, Stage.ACTIVE, 0, reason=reason, by=self.by)
        return to_stage(pointer, Stage.CANARY, further[0], reason=reason, by=self.by)

    def _forget(self) -> None:
        self.good, self.bad, self.reasons = 0, 0, []


def _dethrone(pointer: PolicyPointer, reason: str, by: str) -> Change:
    """The previous policy decides again; the built-in heuristic where there is none. A candidate goes too: it was
    compared with what is gone."""
    successor = pointer.previous or BUILT_IN
    if successor == pointer.active:
        if pointer.active == BUILT_IN:
            raise ConfigError("policy: nothing to roll back to; activate another policy instead")
        successor = BUILT_IN
    return _change(pointer, reason, by, active=successor, previous=None, candidate=None, stage=Stage.ACTIVE, percent=0)


def _change(pointer: PolicyPointer, reason: str, by: str, **fields: object) -> Change:
    after = msgspec.structs.replace(pointer, number=pointer.number + 1, reason=reason, by=by, **fields)
    return Change(pointer, after)
