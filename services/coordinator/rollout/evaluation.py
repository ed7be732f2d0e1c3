"""The rollout as the leading coordinator runs it: evidence in, changes of the policy pointer out. Pure.

    samples, agents' reports, plan results --> window --closed--> Rollout (policy/rollout.py) --> WritePointer --> etcd
                                               |   failures told by agents ----^                    |
                                               +--> KeepWindow (for people)    pointer seen <-------+

Only the leader does this, and its write compares its term, so a deposed one changes nothing. A write that is not seen
is asked for again; one that lost against another change is forgotten, since that change is seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from services.coordinator.agents.views import AgentView
from services.coordinator.core.instructions import KeepWindow, WritePointer
from services.coordinator.core.state import NEVER, CoordinatorState
from services.coordinator.rollout.sampling import Sampling
from services.coordinator.rollout.variants import Variants
from services.coordinator.rollout.view import RolloutView, conduct_of, view_of
from services.coordinator.rollout.window import HarmSeen, OpenWindow, VariantBook, running_hot
from shared.decide.guard import Failure
from shared.decide.stages import Stage
from shared.errors import ConfigError
from shared.policy.rollout.judging import RolloutSettings
from shared.policy.rollout.rollout import UNLOADED, PointerChange, PointerRollout, deciding_goal, step_of
from shared.scheduling.profiles import own_policy
from shared.wire.messages import Decisions, EvictionOutcome, EvictionReason, Outcome, Plan, PlanResult
from shared.wire.records import PolicyPointer, PolicyRef, PolicyWindow

WRITE_RETRY_S, LOOK_AGAIN_S = 2.0, 0.5


class RolloutEvaluation:
    """Collects the window and keeps the machine."""

    def __init__(
        self, state: CoordinatorState, variants: Variants, sampling: Sampling, agents: Mapping[str, AgentView]
    ) -> None:
        self._state = state
        self._agents = agents
        self._refusing: set[str] = set()
        """Agents whose last answer said that they could not load the active policy."""
        self._variants = variants
        self._sampling = sampling
        self._rollout: PointerRollout | None = None
        self._written: tuple[PointerChange, float] | None = None
        self._harm = HarmSeen()
        self.failures: Counter[str] = Counter()
        self.windows = 0
        self.last: PolicyWindow | None = None
        """The last one in which a candidate was compared."""
        self._restart()

    def seen(self, pointer: PolicyPointer) -> None:
        """The pointer as etcd has it."""
        before = self._variants.pointer
        self._variants.follow(pointer)
        if self._rollout is None:
            self._rollout = PointerRollout(self.settings, pointer)
        else:
            self._rollout.seen(pointer)
        self._written = None
        self._state.agenda.evaluation = self._state.now
        if before is not None and before.active != pointer.active:
            self._harm = HarmSeen()
            self._refusing.clear()
        if before is None or before.active != pointer.active or step_of(before) != step_of(pointer):
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
        """How much proof a step needs from now on, also for the window that is open; by another goal it starts anew."""
        rollout = self._rollout
        if rollout is None:
            return
        before, rollout.settings = deciding_goal(rollout.pointer, rollout.settings), settings
        if deciding_goal(rollout.pointer, settings) != before:
            rollout.forget()
            self._restart()

    def heard(self, agent: str, decisions: Decisions) -> None:
        """One agent's answer: how its policies did, and what they did wrong."""
        if self._rollout is None:
            return
        for report in decisions.lanes:
            book = None if report.own else self._book(report.policy)
            if book is not None:
                book.judged(report.groups, len(report.fallen), report.spent_us)
        self._refusing.discard(agent)
        if decisions.failures:
            self._failed(self._rollout, agent, decisions)

    def answered(self, plan: Plan, answer: PlanResult, waited_s: Sequence[float]) -> None:
        """The binder's answer to a plan: what it refused on the chosen node counts against who chose, and who had to
        leave against whose share the pod is that they left for. ``waited_s``: per placement, how long its pod was
        pending since it was first seen, however often it was tried."""
        placements, results = plan.placements, answer.results
        accounts = self._state.cache.accounts
        for placement in placements:  # what pods asked for that are being bound, or were seen bound before the answer
            if (account := accounts.get(placement.uid)) is not None:
                self._sampling.valuing.arrivals.placed(account.pod_class.requests)
        if not self._variants.has_candidate:
            return
        result_of = {result.unit: result for result in results}
        for placement, waited in zip(placements, waited_s, strict=True):
            if self._chosen_by_profile(placement.uid):
                continue
            book = self._book(f"{placement.policy}@{placement.policy_version}")
            if book is None:
                continue
            result = result_of.get(placement.unit)
            rejected = result is not None and (result.conflicts > 0 or result.outcome == Outcome.CONFLICT)
            book.placed(placement.node, waited, rejected=rejected)
        left = {result.uid for result in answer.evictions if result.outcome == EvictionOutcome.EVICTED}
        for eviction in plan.evictions:
            entry = self._state.queue.entries.get(eviction.preemptor)
            if eviction.uid in left and eviction.reason == EvictionReason.PREEMPTION and entry is not None:
                if own_policy(entry.pod.pod_class):
                    continue
                mine = self._variants.takes(entry.pod)
                (self._open.candidate if mine else self._open.active).evictions += 1

    def _chosen_by_profile(self, uid: str) -> bool:
        """Whether the policy that placed the pod is its profile's: no part of a roll-out."""
        account, entry = self._state.cache.accounts.get(uid), self._state.queue.entries.get(uid)
        pod_class = account.pod_class if account is not None else entry.pod.pod_class if entry is not None else None
        return pod_class is not None and own_policy(pod_class) != ""

    def step(self) -> None:
        """Take the cycles' samples; close the window when it is due; ask again for a change that was not seen."""
        state, rollout = self._state, self._rollout
        self._open.samples.extend(self._sampling.samples)
        self._sampling.samples.clear()
        if self._written is not None:
            unseen, at = self._written
            if state.now >= at + WRITE_RETRY_S:
                self._write(unseen)
        elif rollout is not None and state.now >= self._open.opened + self.settings.window_s:
            if not rollout.windows_wanted():
                self._close_alone(rollout)
            elif len(self._open.samples) >= self.settings.min_samples:
                self._close(rollout)
        state.agenda.evaluation = self.wake_at()

    def _close(self, rollout: PointerRollout) -> None:
        goal, values = self._variants.goal, self._open.values(self._variants.goal)
        self._look_for_harm(rollout)
        window, before = self._open.closed(goal, self._harm), rollout.pointer
        self._restart()
        change = rollout.closed(window)
        verdict, why = rollout.row.last
        self.windows += 1
        self.last = PolicyWindow(
            number=self.windows, time="", active=before.active.title, candidate=_title(before.candidate),
            stage=before.stage, percent=before.percent, values=values, samples=window.samples, agreed=window.agreed,
            verdict=verdict.value, why=why, conduct=conduct_of(window),
        )  # fmt: skip
        self._state.out.append(KeepWindow(self.last))
        self._state.log(
            "policy_window", candidate=self.last.candidate, goal=goal, value=round(window.candidate.value, 4),
            active_value=round(window.active.value, 4), samples=window.samples, agreed=window.agreed,
            verdict=verdict.value, good=rollout.row.good, bad=rollout.row.bad,
        )  # fmt: skip
        if change is not None:
            self._write(change)

    def _close_alone(self, rollout: PointerRollout) -> None:
        """Nothing is compared: what the active policy's choices were worth is kept all the same."""
        self._look_for_harm(rollout)
        count, values = len(self._open.samples), self._open.values(self._variants.goal)
        self._restart()
        if count:
            alone = PolicyWindow(number=0, time="", active=rollout.pointer.active.title, values=values, samples=count)
            self._state.out.append(KeepWindow(alone))

    def _look_for_harm(self, rollout: PointerRollout) -> None:
        least = self.settings.min_share_of
        used, table = self._variants.used, self._state.cache.table
        hot = running_hot(used, table, least)
        self._harm.mine_hot = running_hot(used, table, least, self._open.candidate.nodes)
        self._harm.theirs_hot = running_hot(used, table, least, self._open.active.nodes)
        self._harm.look(self._open.active.kpi(), hot, least=least, places=rollout.pointer.stage == Stage.CANARY)

    def wake_at(self) -> float:
        """When a change is to be written again, or the window is over; looked at again soon where it lacks samples."""
        if self._written is not None:
            return self._written[1] + WRITE_RETRY_S
        if self._rollout is None:
            return NEVER
        return max(self._open.opened + self.settings.window_s, self._state.now + LOOK_AGAIN_S)

    def lacking(self, number: int | None = None) -> str:
        """What the candidate lacks of windows that speak for its next step, and why, for people; "" for nothing.
        ``number``: of the pointer that is meant, where that is not what is counted for yet."""
        if self._rollout is None or number not in (None, self._rollout.pointer.number):
            return "policy: no window was counted at this step yet; wait for them, or force it (--force)"
        if not (told := self._rollout.lacking()):
            return ""
        view = self.view()
        empty = f"; {view.sampling.why}" if view is not None and view.sampling.why else ""
        return f"policy: {told}{empty}; wait for them ('conclave policy show'), or force it (--force)"

    def view(self) -> RolloutView | None:
        """What people look at; None before the first pointer was seen."""
        if self._rollout is None:
            return None
        return view_of(
            self._rollout, self._open, self._state.now, windows=self.windows, last=self.last, failures=self.failures,
            sampling=self._sampling,
        )  # fmt: skip

    def figures(self) -> dict[str, Any]:
        """The pointer, the windows of the present stage and the last one, for ``/v1/status``."""
        pointer, view = self._variants.pointer, self.view()
        if pointer is None or view is None:
            return {}
        told: dict[str, Any] = msgspec.to_builtins(view)
        return {
            "active": pointer.active.title,
            "candidate": _title(pointer.candidate),
            "stage": pointer.stage,
            "percent": pointer.percent,
            "reason": pointer.reason,
            **told,
        }

    def _failed(self, rollout: PointerRollout, agent: str, decisions: Decisions) -> None:
        known = {(ref.title, ref.sha256): ref for ref in self._refs(rollout.pointer)}
        found: list[tuple[PolicyRef, Failure]] = []
        for told in decisions.failures:
            ref = known.get((told.policy, told.sha256)) if not told.own else None
            if ref is not None and told.failure in Failure.__members__.values():
                found.append((ref, Failure(told.failure)))
                self.failures[f"{told.policy} {told.failure}"] = max(
                    self.failures[f"{told.policy} {told.failure}"], told.count
                )
        if any(ref == rollout.pointer.active and failure in UNLOADED for ref, failure in found):
            self._refusing.add(agent)
        if self._written is not None:
            return
        try:
            change = rollout.failed(found, others=self._others_judge())
        except ConfigError:
            return
        if change is not None:
            self._state.log("policy_failed", level="error", reason=change.after.reason)
            self._write(change)

    def _others_judge(self) -> bool:
        """Whether any agent that answers for nodes has not refused the active policy."""
        asked = (name for name, view in self._agents.items() if view.sent and not view.suspect)
        return any(name not in self._refusing for name in asked)

    def _book(self, title: str) -> VariantBook | None:
        """Of the policy that did it; None for one that is not compared (any more): agents change over one by one."""
        pointer = self._variants.pointer
        if pointer is None:
            return None
        if pointer.candidate is not None and title == pointer.candidate.title:
            return self._open.candidate
        return self._open.active if title == pointer.active.title else None

    @staticmethod
    def _refs(pointer: PolicyPointer) -> list[PolicyRef]:
        return [pointer.active] if pointer.candidate is None else [pointer.active, pointer.candidate]

    def _write(self, change: PointerChange) -> None:
        self._written = (change, self._state.now)
        self._state.agenda.evaluation = min(self._state.agenda.evaluation, self._state.now + WRITE_RETRY_S)
        self._state.out.append(WritePointer(change))

    def _restart(self) -> None:
        self._open = OpenWindow(self._state.now)
        self._sampling.reopen()


def _title(ref: PolicyRef | None) -> str:
    return ref.title if ref is not None else ""
