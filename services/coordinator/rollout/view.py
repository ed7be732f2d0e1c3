"""A rollout as people see it: who promotes, by which rule, how far it is, and what the windows said. Pure.

It decides nothing: the rules told here are those of ``policy.rollout``, from the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from services.coordinator.rollout.sampling import Sampling
from services.coordinator.rollout.window import OpenWindow, Skipped
from shared.policy.rollout.judging import RolloutSettings, RolloutWindow
from shared.policy.rollout.outcome import NEUTRAL
from shared.policy.rollout.rollout import PointerRollout, deciding_goal, promotion_of
from shared.wire.records import PolicyConduct, PolicyWindow


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What changes the pointer next. ``then``: the step it leads to, such as ``canary 10 %`` or ``withdrawn``.
    ``automatic``: it does so by itself; else it says only whether the windows speak for it. ``needed``: such windows,
    of which there are ``so_far``. ``in_s``: seconds until it can hold at the earliest, 0 when it holds by now;
    ``at``: that time."""

    kind: Literal["promote", "withdraw"]
    then: str
    automatic: bool
    rule: str
    needed: int
    so_far: int
    in_s: float
    at: str = ""


class LastWindow(PolicyConduct, frozen=True, kw_only=True):
    """The last window in which candidate and active policy were asked about the same decisions. ``value``: by ``goal``,
    which decides; ``neutral_value``: by the neutral one, null where it told no nodes apart."""

    goal: str
    value: float
    active_value: float
    neutral_value: float | None
    active_neutral_value: float | None
    samples: int
    agreed: int
    verdict: str
    why: str


class Sampled(msgspec.Struct, frozen=True, kw_only=True):
    """What a rollout can learn from, over the window that is open and the one before. ``offered``: pods in the cycles
    that were looked at; ``choosing``: those of them that several nodes were open to, ``share`` of all, null where none
    was offered. ``lost``: cycles of the open window that gave no sample, by reason; ``why``: what keeps the open window
    from its samples, "" while nothing does."""

    offered: int = 0
    choosing: int = 0
    share: float | None = None
    lost: dict[str, int] = msgspec.field(default_factory=dict)
    why: str = ""


class RolloutView(msgspec.Struct, frozen=True, kw_only=True):
    """How the candidate does. ``promotion``: manual or auto; ``goal``: by which both are judged. ``good``, ``bad``:
    windows of the present step; ``samples`` of the window that is open, which closes with ``min_samples`` after
    ``window_s`` (``closes_in_s``) at the earliest. ``rules`` is empty without a candidate."""

    promotion: str = "manual"
    goal: str = NEUTRAL
    windows: int = 0
    good: int = 0
    bad: int = 0
    samples: int = 0
    min_samples: int = 0
    window_s: float = 0.0
    closes_in_s: float = 0.0
    sampling: Sampled = Sampled()
    rules: list[Rule] = msgspec.field(default_factory=list)
    failures: dict[str, int] = msgspec.field(default_factory=dict)
    last_window: LastWindow | None = None


def view_of(
    rollout: PointerRollout, open_: OpenWindow, now: float, *, windows: int, last: PolicyWindow | None,
    failures: Mapping[str, int], sampling: Sampling,
) -> RolloutView:  # fmt: skip
    """The present step, and the last window."""
    settings, pointer = rollout.settings, rollout.pointer
    closes_in_s = max(0.0, open_.opened + settings.window_s - now)
    return RolloutView(
        promotion=promotion_of(pointer, settings).value,
        goal=deciding_goal(pointer, settings),
        windows=windows,
        good=rollout.row.good,
        bad=rollout.row.bad,
        samples=len(open_.samples),
        min_samples=settings.min_samples,
        window_s=settings.window_s,
        sampling=_sampled(sampling, wanted=rollout.windows_wanted() and len(open_.samples) < settings.min_samples),
        closes_in_s=closes_in_s if rollout.windows_wanted() else 0.0,
        rules=_rules(rollout, closes_in_s) if rollout.windows_wanted() else [],
        failures=dict(failures),
        last_window=_last(last) if last is not None else None,
    )


WHY = {
    Skipped.ONE_NODE: "in {} of {} cycles no pod had a choice of nodes (one was open to each, or kept for it)",
    Skipped.FULL: "in {} of {} cycles the offer had no room for another class",
    Skipped.UNHEARD: "in {} of {} cycles half of the agents or more did not judge by both policies (weights not loaded "
    "yet, or silent)",
    Skipped.NO_NODE: "in {} of {} cycles a policy named no node that still took the pod",
    Skipped.UNDEFINED: "in {} of {} cycles the goal had no finite value on some node (a division by zero)",
    Skipped.INDIFFERENT: "in {} of {} cycles the goal told no node from another",
}
"""Why a window stays empty, for people: cycles without a sample, and all that were looked at."""


def _sampled(sampling: Sampling, *, wanted: bool) -> Sampled:
    now, before = sampling.tally, sampling.before
    offered, choosing = now.offered + before.offered, now.choosing + before.choosing
    why = ""
    if wanted and not now.offered:
        why = "no pod was offered since the window opened"
    elif wanted and now.lost:
        commonest, count = now.lost.most_common(1)[0]
        why = WHY[commonest].format(count, now.cycles)
    return Sampled(
        offered=offered,
        choosing=choosing,
        share=choosing / offered if offered else None,
        lost={reason.value: count for reason, count in now.lost.items()},
        why=why,
    )


def conduct_of(window: RolloutWindow) -> PolicyConduct:
    """What both did beside choosing."""
    mine, theirs = window.candidate, window.active
    return PolicyConduct(
        p99_ms=mine.p99_ms,
        decisions=mine.decisions,
        fallbacks=mine.fallbacks,
        placements=mine.placements,
        rejected=mine.rejected,
        active_p99_ms=theirs.p99_ms,
        active_decisions=theirs.decisions,
        active_fallbacks=theirs.fallbacks,
        active_placements=theirs.placements,
        active_rejected=theirs.rejected,
        waited_s=mine.waited_s,
        evictions=mine.evictions,
        active_waited_s=theirs.waited_s,
        active_evictions=theirs.evictions,
        hot=window.hot,
        hot_before=window.hot_before,
    )


def _rules(rollout: PointerRollout, closes_in_s: float) -> list[Rule]:
    settings, found = rollout.settings, []
    step = rollout.next
    if step is not None:
        stage, percent = step
        missing = settings.good_windows - rollout.row.good
        found.append(
            Rule(
                kind="promote",
                then=f"{stage.value} {percent} %" if percent else stage.value,
                automatic=rollout.automatic,
                rule=f"{settings.good_windows} good windows in a row: {_good(settings)}",
                needed=settings.good_windows,
                so_far=min(rollout.row.good, settings.good_windows),
                in_s=closes_in_s + (missing - 1) * settings.window_s if missing > 0 else 0.0,
            )
        )
    missing = settings.bad_windows - rollout.row.bad
    found.append(
        Rule(
            kind="withdraw",
            then="withdrawn",
            automatic=True,
            rule=f"{settings.bad_windows} bad windows without a good one between: {_bad(settings)}; or at once by NaN, "
            "a wrong shape, an exception or a wrong digest",
            needed=settings.bad_windows,
            so_far=rollout.row.bad,
            in_s=closes_in_s + max(0, missing - 1) * settings.window_s,
        )
    )
    return found


def _good(settings: RolloutSettings) -> str:
    return (
        "value, fallbacks and refused placements no worse than the active policy's by more than "
        f"{settings.margin:.0%}, p99 of a decision at most {settings.p99_ms:g} ms or the active one's"
    )


def _bad(settings: RolloutSettings) -> str:
    return f"worse than that, in value by more than {settings.noise:g} standard errors beyond the {settings.margin:.0%}"


def _last(window: PolicyWindow) -> LastWindow | None:
    if window.conduct is None or not window.values:
        return None
    deciding = window.values[0]
    neutral = next((value for value in window.values if value.goal == NEUTRAL), None)
    conduct = {name: getattr(window.conduct, name) for name in PolicyConduct.__struct_fields__}
    return LastWindow(
        **conduct,
        goal=deciding.goal,
        value=deciding.candidate if deciding.candidate is not None else 0.0,
        active_value=deciding.active if deciding.active is not None else 0.0,
        neutral_value=neutral.candidate if neutral is not None else None,
        active_neutral_value=neutral.active if neutral is not None else None,
        samples=window.samples,
        agreed=window.agreed,
        verdict=window.verdict,
        why=window.why,
    )
