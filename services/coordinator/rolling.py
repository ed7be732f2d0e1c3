"""The rollout as the leading coordinator runs it: evidence in, changes of the policy pointer out. Pure.

    samples, lane reports, plan results --> window --closed--> Rollout (policy/rollout.py) --> WritePointer --> etcd
                                             failures told by agents ----^                          |
                                                        pointer seen in the watch <------------------+

Only the leader does this, and its write compares its term, so a deposed one changes nothing. A write that is not seen
is asked for again; one that lost against another change is forgotten, since that change is seen.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from services.coordinator.instructions import WritePointer
from services.coordinator.lanes import Lanes, Sample
from services.coordinator.state import State
from shared.errors import ConfigError
from shared.policy.guard import Failure
from shared.policy.rollout import Change, Kpi, Rollout, RolloutSettings, Window
from shared.wire.messages import Decisions, Outcome, Placement, PlacementResult
from shared.wire.records import PolicyPointer, PolicyRef

WRITE_RETRY_S = 2.0
MOST_TIMES = 4096


class LaneBook:
    """What one lane did in the present window."""

    def __init__(self) -> None:
        self.groups = self.fallen = self.placements = self.rejected = 0
        self._times_us: deque[float] = deque(maxlen=MOST_TIMES)

    def judged(self, groups: int, fallen: int, spent_us: int) -> None:
        """One agent's report."""
        self.groups += groups
        self.fallen += fallen
        if groups:
            self._times_us.append(spent_us / groups)

    def kpi(self, value: float) -> Kpi:
        """The figures; ``value``: mean of the window's samples."""
        ordered = sorted(self._times_us)
        p99_us = ordered[-(-99 * len(ordered) // 100) - 1] if ordered else 0.0
        return Kpi(value, self.groups, self.fallen, self.placements, self.rejected, p99_us / 1000)


class Rolling:
    """Collects the window and keeps the machine."""

    def __init__(self, state: State, lanes: Lanes) -> None:
        self._state = state
        self._lanes = lanes
        self._rollout: Rollout | None = None
        self._written: tuple[Change, float] | None = None
        self.failures: Counter[str] = Counter()
        self.windows = 0
        self.last: Window | None = None
        self._restart()

    def seen(self, pointer: PolicyPointer) -> None:
        """The pointer as etcd has it."""
        before = self._lanes.pointer
        self._lanes.pointer = pointer
        if self._rollout is None:
            self._rollout = Rollout(self.settings, pointer)
        else:
            self._rollout.seen(pointer)
        self._written = None
        if before is None or (before.candidate, before.stage, before.percent) != (
            pointer.candidate, pointer.stage, pointer.percent,
        ):  # fmt: skip
            self._restart()
        candidate = pointer.candidate.title if pointer.candidate is not None else ""
        self._state.log(
            "policy_pointer", policy=pointer.active.title, candidate=candidate, stage=pointer.stage,
            percent=pointer.percent, reason=pointer.reason,
        )  # fmt: skip

    @property
    def settings(self) -> RolloutSettings:
        """How much proof a step needs now."""
        return self._state.settings.rollout

    def tune(self, settings: RolloutSettings) -> None:
        """How much proof a step needs from now on, also for the window that is open."""
        if self._rollout is not None:
            self._rollout.settings = settings

    def heard(self, decisions: Decisions) -> None:
        """One agent's answer: how its policies did, and what they did wrong."""
        for report in decisions.lanes:
            book = self._book(report.policy)
            if book is not None:
                book.judged(report.groups, len(report.fallen), report.spent_us)
        if decisions.failures and self._rollout is not None:
            self._failed(self._rollout, decisions)

    def compared(self, sample: Sample) -> None:
        """Both policies were asked about one unit."""
        self._samples.append(sample)

    def answered(self, placements: Sequence[Placement], results: Sequence[PlacementResult]) -> None:
        """The binder's answer to a plan: what it refused on the chosen node counts against who chose."""
        if not self._lanes.rolling:
            return
        result_of = {result.unit: result for result in results}
        for placement in placements:
            book = self._book(f"{placement.policy}@{placement.policy_version}")
            if book is None:
                continue
            result = result_of.get(placement.unit)
            book.placements += 1
            book.rejected += result is not None and (result.conflicts > 0 or result.outcome == Outcome.CONFLICT)

    def step(self) -> None:
        """Close the window when it is due; ask again for a change that was not seen."""
        state, rollout = self._state, self._rollout
        if self._written is not None:
            unseen, at = self._written
            if state.now >= at + WRITE_RETRY_S:
                self._write(unseen)
            return
        if rollout is None or not rollout.windows_wanted() or state.now < self._opened + self.settings.window_s:
            return
        if len(self._samples) < self.settings.min_samples:
            return
        count = len(self._samples)
        window = Window(
            self._candidate.kpi(sum(sample.candidate for sample in self._samples) / count),
            self._active.kpi(sum(sample.active for sample in self._samples) / count),
            count,
            sum(sample.agreed for sample in self._samples),
        )
        self._restart()
        self.windows, self.last = self.windows + 1, window
        change = rollout.closed(window)
        state.log(
            "policy_window", candidate=rollout.pointer.candidate.title if rollout.pointer.candidate else "",
            value=round(window.candidate.value, 4), active_value=round(window.active.value, 4), samples=count,
            agreed=window.agreed, good=rollout.good, bad=rollout.bad,
        )  # fmt: skip
        if change is not None:
            self._write(change)

    def wake_at(self) -> float | None:
        """When something is due by itself."""
        if self._written is not None:
            return self._written[1] + WRITE_RETRY_S
        if self._rollout is None or not self._rollout.windows_wanted():
            return None
        return max(self._opened + self.settings.window_s, self._state.now + 0.5)

    def figures(self) -> dict[str, Any]:
        """The pointer, the windows of the present stage and the last one, for ``/v1/status``."""
        pointer, last, rollout = self._lanes.pointer, self.last, self._rollout
        if pointer is None or rollout is None:
            return {}
        figures: dict[str, Any] = {
            "active": pointer.active.title,
            "candidate": pointer.candidate.title if pointer.candidate is not None else "",
            "stage": pointer.stage,
            "percent": pointer.percent,
            "reason": pointer.reason,
            "windows": self.windows,
            "good": rollout.good,
            "bad": rollout.bad,
            "samples": len(self._samples),
            "failures": dict(self.failures),
        }
        if last is not None:
            figures["last_window"] = {
                "value": last.candidate.value,
                "active_value": last.active.value,
                "samples": last.samples,
                "agreed": last.agreed,
                "p99_ms": last.candidate.p99_ms,
                "active_p99_ms": last.active.p99_ms,
                "fallbacks": last.candidate.fallbacks,
                "rejected": last.candidate.rejected,
                "active_fallbacks": last.active.fallbacks,
                "active_rejected": last.active.rejected,
            }
        return figures

    def _failed(self, rollout: Rollout, decisions: Decisions) -> None:
        known = {(ref.title, ref.sha256): ref for ref in self._refs(rollout.pointer)}
        found: list[tuple[PolicyRef, Failure]] = []
        for told in decisions.failures:
            ref = known.get((told.policy, told.sha256))
            if ref is not None and told.failure in Failure.__members__.values():
                found.append((ref, Failure(told.failure)))
                self.failures[f"{told.policy} {told.failure}"] = max(
                    self.failures[f"{told.policy} {told.failure}"], told.count
                )
        if self._written is not None:
            return
        try:
            change = rollout.failed(found)
        except ConfigError:
            return
        if change is not None:
            self._state.log("policy_failed", level="error", reason=change.after.reason)
            self._write(change)

    def _book(self, title: str) -> LaneBook | None:
        """Of the policy that did it; None for one that is not compared (any more): agents change over one by one."""
        pointer = self._lanes.pointer
        if pointer is None:
            return None
        if pointer.candidate is not None and title == pointer.candidate.title:
            return self._candidate
        return self._active if title == pointer.active.title else None

    @staticmethod
    def _refs(pointer: PolicyPointer) -> list[PolicyRef]:
        return [pointer.active] if pointer.candidate is None else [pointer.active, pointer.candidate]

    def _write(self, change: Change) -> None:
        self._written = (change, self._state.now)
        self._state.emit(WritePointer(change))

    def _restart(self) -> None:
        self._opened = self._state.now
        self._candidate, self._active = LaneBook(), LaneBook()
        self._samples: deque[Sample] = deque(maxlen=MOST_TIMES)
