"""A candidate is compared with its teacher over a sliding window, and goes back as soon as it costs too much. Pure.

While there is a candidate both decide each time, the worth of both is compared, and what the candidate falls short is
added up over the window. It goes back as soon as that is more than ``MOST_WORSE`` of what the teacher would bring in a
whole window: so over no window has it cost more than this and one decision. A window is good where it falls no shorter
than that also if what is not known is wrong by one standard deviation against it.
"""

from __future__ import annotations

from collections import deque

from msgspec import Struct
from msgspec.structs import replace

from shared.decide.domain import Domain
from shared.decide.rollout import Rollout, gone
from shared.decide.stages import WindowRow, WindowVerdict

MOST_WORSE = 0.05
WINDOW_S = 1800.0
MOST_GAP_S = 120.0
"""A comparison counts until the next one, but no longer: who did not decide for hours was not worse for hours."""


class Gap(Struct, frozen=True):
    """A teacher's worth, and what the other's is more (negative: less), with the standard deviation of that."""

    teacher: float
    more: float
    sd: float


class _Span(Struct, frozen=True, gc=False):
    began: float
    seconds: float
    gap: Gap


class SlidingWindow:
    """The comparisons of the last ``length_s`` seconds."""

    def __init__(self, length_s: float = WINDOW_S, most_gap_s: float = MOST_GAP_S) -> None:
        self.length_s, self._most_gap_s = length_s, most_gap_s
        self._spans: deque[_Span] = deque()
        self._last: tuple[float, Gap] | None = None
        self._since: float | None = None

    def add(self, now: float, gap: Gap) -> None:
        """A comparison; it counts until the next."""
        if self._last is not None:
            began, before = self._last
            self._spans.append(_Span(began, min(self._most_gap_s, max(0.0, now - began)), before))
        if self._since is None:
            self._since = now
        self._last = (now, gap)
        while self._spans and self._spans[0].began < now - self.length_s:
            self._spans.popleft()

    def whole(self, now: float) -> bool:
        """Whether so much time has passed that a window is full."""
        return self._since is not None and now - self._since >= self.length_s

    def begin_anew(self, now: float) -> None:
        """Another window begins; what was compared still counts against the candidate."""
        self._since = now

    @property
    def short(self) -> float:
        """How much the candidate fell short of its teacher, as a share of what that brings in a whole window."""
        teacher, more, _ = self._sums()
        return -more / self._full(teacher) if teacher > 0.0 else 0.0

    @property
    def ratio(self) -> tuple[float, float]:
        """(the candidate's worth by the teacher's, its standard deviation); (1, 0) where nothing was compared."""
        teacher, more, sd = self._sums()
        return (1.0 + more / teacher, sd / teacher) if teacher > 0.0 else (1.0, 0.0)

    def _sums(self) -> tuple[float, float, float]:
        teacher = sum(one.gap.teacher * one.seconds for one in self._spans)
        more = sum(one.gap.more * one.seconds for one in self._spans)
        # what is wrong with a job's speed is wrong all the time: errors add up, they do not cancel out
        return teacher, more, sum(one.gap.sd * one.seconds for one in self._spans)

    def _full(self, teacher: float) -> float:
        seconds = sum(one.seconds for one in self._spans)
        return teacher / seconds * self.length_s if seconds else 1.0


class Judge:
    """Judges one candidate at one step. ``most_worse``: see the module; infinite switches the safeguard off.
    ``most_gap_s``: so long a comparison counts at most; more than there is between two decisions."""

    def __init__(
        self, domain: Domain, *, length_s: float = WINDOW_S, most_worse: float = MOST_WORSE,
        most_gap_s: float = MOST_GAP_S,
    ) -> None:  # fmt: skip
        self.window = SlidingWindow(length_s, most_gap_s)
        self._domain = domain
        self._most_worse = most_worse

    def look(self, rollout: Rollout, now: float, gap: Gap | None, trouble: str) -> Rollout | None:
        """What the rollout becomes; None: what it is. ``gap``: None where nothing was compared; ``trouble``: what the
        candidate failed with so often that it rests."""
        # Before anything is compared: a candidate that rests decides as what stands in does, and would look as good.
        if trouble:
            return gone(rollout, self._domain, f"it failed: {trouble}")
        if gap is not None:
            self.window.add(now, gap)
        ratio, sd = self.window.ratio
        # Asked at each decision, not at the end of a window: a bad one is gone within minutes (ADR 0038). The deviation
        # has no say here: what is not known delays going on, never going back.
        if self.window.short > self._most_worse:
            told = f"{(1.0 - ratio):.1%} worse than its teacher (sd {sd:.1%}), {self.window.short:.1%} of a window"
            return replace(gone(rollout, self._domain, told), ratio=ratio, sd=sd)
        if not self.window.whole(now):
            return None
        self.window.begin_anew(now)
        row = WindowRow(good=rollout.good)
        row.add(WindowVerdict.GOOD if ratio - sd >= 1.0 - self._most_worse else WindowVerdict.UNSURE)
        return replace(rollout, good=row.good, ratio=round(ratio, 6), sd=round(sd, 6))
