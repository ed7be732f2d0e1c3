"""What one window says of a candidate policy: its figures beside the active one's, and the verdict. Pure.

Both were asked about the same decisions, so their values are compared pair by pair: the standard error of the mean
difference says what chance alone explains. Shares and times have no pairs and are compared as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shared.decide.stages import WindowVerdict
from shared.policy.domain import PLACEMENT
from shared.policy.rollout.outcome import CARD, NEUTRAL


class Promotion(StrEnum):
    """Who takes a candidate to its next step."""

    MANUAL = "manual"
    """An operator."""
    AUTO = "auto"
    """Good windows."""


HOT = 0.9
"""Measured share of cpu or memory above which a node runs hot: pods there slow each other down, or are killed."""


@dataclass(frozen=True, slots=True)
class RolloutSettings:
    """How much proof a step needs, and what holds for a candidate of which nothing else was said."""

    window_s: float = 30.0
    """Length of a window; it goes on until it has ``min_samples`` too."""
    min_samples: int = 20
    """Decisions that both policies were asked about."""
    good_windows: int = PLACEMENT.good_windows
    """Windows not worse, without a worse one between, per step."""
    bad_windows: int = 3
    """Worse windows in a row that end the rollout."""
    margin: float = 0.02
    """Relative for the value, absolute for shares (targets.md: worse by more than 2 %)."""
    p99_ms: float = 20.0
    """Slowest decision (p99) a candidate may have, unless the active one is as slow."""
    min_share_of: int = 10
    """Shares (fallbacks, rejected, evictions, nodes that run hot) and waits of fewer cases than this say nothing."""
    harm: float = 0.1
    """Harm that is borne whatever the goal: so much longer waits (relative, beyond ``harm_wait_s``), so many more
    evictions per placement, so much more of the nodes running hot; infinite switches the bound off."""
    harm_wait_s: float = 5.0
    """Pods may wait so much longer by chance."""
    noise: float = 2.5
    """Standard errors by which a value must be worse beyond the margin to count as bad. A candidate that waits for its
    operator goes through thousands of windows a day: with 2.5, one that is as good as the active policy has three bad
    ones without a good one between about once in a million windows."""
    percents: tuple[int, ...] = PLACEMENT.shares
    promotion: str = Promotion.MANUAL
    """Who promotes a candidate of which its operator said nothing."""
    goal: str = CARD
    """By which a candidate is judged of which its operator said nothing; ``card``: the goal that it is for."""


@dataclass(frozen=True, slots=True)
class Kpi:
    """One policy's figures of one window.

    ``value``: mean value of its choices by the goal that decides, on the decisions both were asked about; higher is
    better. ``decisions`` and ``fallbacks``: groups it judged and those the heuristic had to. ``placements`` and
    ``rejected``: pods placed by it and those the binder refused on the chosen node. ``p99_ms``: of its decisions.
    ``waited_s``: mean time that the pods it placed had been pending; ``evictions``: pods that were made to leave for
    pods of its share.
    """

    value: float = 0.0
    decisions: int = 0
    fallbacks: int = 0
    placements: int = 0
    rejected: int = 0
    p99_ms: float = 0.0
    waited_s: float = 0.0
    evictions: int = 0


@dataclass(frozen=True, slots=True)
class RolloutWindow:
    """``samples``: decisions that both were asked about; ``agreed``: on which they chose the same node. ``goal``: by
    which both values are measured; ``error``: standard error of their difference over the samples. ``before``: what
    the active policy did in its last window with placements enough, where it has too few in this one; ``hot``: share of
    the measured nodes that use more than ``HOT`` of their cpu or memory, ``hot_before``: before the candidate placed
    any pod; ``mine_hot``, ``theirs_hot``: of the nodes on which each placed pods in this window; None: not known."""

    candidate: Kpi
    active: Kpi
    samples: int
    agreed: int = 0
    goal: str = NEUTRAL
    error: float = 0.0
    before: Kpi | None = None
    hot: float | None = None
    hot_before: float | None = None
    mine_hot: float | None = None
    theirs_hot: float | None = None


def judge(window: RolloutWindow, settings: RolloutSettings) -> tuple[WindowVerdict, str]:
    """The verdict, and in what the candidate was worse than the active policy; "" when in nothing.

    Unsure: worse in value, by no more than chance explains; or pods bear more than at another time, which has other
    causes too."""
    mine, theirs = window.candidate, window.active
    behind = theirs.value - settings.margin * abs(theirs.value) - mine.value
    told = f"value {mine.value:.4g} against {theirs.value:.4g} by the goal {window.goal}"
    if not behind <= settings.noise * window.error:  # also when it is NaN
        return WindowVerdict.BAD, told
    if reason := _harm(window, settings):
        return WindowVerdict.BAD, reason
    if behind <= 0:
        told = _suspected(window, settings)
    return (WindowVerdict.UNSURE, told) if told else (WindowVerdict.GOOD, "")


def _harm(window: RolloutWindow, settings: RolloutSettings) -> str:
    """What the candidate does worse that is no matter of taste."""
    mine, theirs, margin = window.candidate, window.active, settings.margin
    for name, part, whole, their_part, their_whole in (
        ("fallbacks", mine.fallbacks, mine.decisions, theirs.fallbacks, theirs.decisions),
        ("rejected", mine.rejected, mine.placements, theirs.rejected, theirs.placements),
    ):
        if whole < settings.min_share_of:
            continue
        share, their_share = part / whole, their_part / their_whole if their_whole else 0.0
        if share > their_share + margin:
            return f"{name} {share:.1%} against {their_share:.1%}"
    if reason := _pods_harmed(mine, theirs, settings):
        return reason
    hot, their_hot = window.mine_hot, window.theirs_hot
    if hot is not None and their_hot is not None and hot > their_hot + settings.harm:
        return f"{hot:.0%} of the measured nodes that it placed pods on run hot against {their_hot:.0%}"
    if mine.p99_ms > settings.p99_ms and mine.p99_ms > theirs.p99_ms * (1 + margin):
        return f"p99 of a decision {mine.p99_ms:.1f} ms, at most {settings.p99_ms:g} allowed"
    return ""


def _pods_harmed(mine: Kpi, theirs: Kpi, settings: RolloutSettings) -> str:
    """What pods bear by the candidate, whatever its goal: longer waits, evictions."""
    least = settings.min_share_of
    if mine.placements < least or theirs.placements < least:
        return ""
    if mine.waited_s > theirs.waited_s * (1 + settings.harm) + settings.harm_wait_s:
        return f"pods were pending for {mine.waited_s:.1f} s against {theirs.waited_s:.1f} s"
    per_pod, their_per_pod = mine.evictions / mine.placements, theirs.evictions / theirs.placements
    if per_pod > their_per_pod + settings.harm:
        return f"evictions {per_pod:.2f} per pod placed against {their_per_pod:.2f}"
    return ""


def _suspected(window: RolloutWindow, settings: RolloutSettings) -> str:
    """What pods bear more than before the candidate: by it, or by the hour and what came meanwhile."""
    mine, before = window.candidate, window.before
    if window.active.placements >= settings.min_share_of:
        before = None  # that window is compared with
    if before is not None and (reason := _pods_harmed(mine, before, settings)):
        return f"{reason} in an earlier window"
    hot, hot_before = window.hot, window.hot_before
    if hot is not None and hot_before is not None and mine.placements and hot > hot_before + settings.harm:
        return f"{hot:.0%} of the measured nodes run hot against {hot_before:.0%} before it placed pods"
    return ""
