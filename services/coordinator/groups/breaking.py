"""What becomes of gangs that hold something and do not come about: broken ones, and those with nodes kept for them.

    some members run, fewer than the minimum, none on its way --timeout--> keep: they stay | evict: all wait
    members are nominated to nodes ------------------------------timeout--> the nominations end

Decided from what the API server shows, so a successor decides the same, at most one timeout later. Members that have
succeeded count as having run: a gang whose members finish one by one is not broken.
"""

from __future__ import annotations

import heapq

from msgspec.structs import replace

from services.coordinator.binding.plans import Ledger
from services.coordinator.core.instructions import EmitEvent
from services.coordinator.core.state import State
from services.coordinator.status.reporter import StatusReporter
from shared.model.pod_group import Broken, PodGroup, group_title
from shared.scheduling.pod_groups import Members
from shared.wire.messages import Eviction, EvictionOutcome, EvictionResult

EVICT_AGAIN_S = 30.0
"""Pause before members are asked to leave again, where a disruption budget did not let them."""


class Breaker:
    """``since``: by group, since when it has held something in vain."""

    def __init__(self, state: State, ledger: Ledger, reporter: StatusReporter) -> None:
        self._state = state
        self._ledger = ledger
        self._reporter = reporter
        self.since: dict[str, float] = {}
        self._due: list[tuple[float, str]] = []
        self._due_at: dict[str, float] = {}

    def look(self, key: str, members: Members | None) -> None:
        """Something changed in the group, or (None) it has no members any more."""
        group = self._state.groups.group(key)
        if group is None or members is None or not (self._broken(key, members) or self._reserves(members)):
            self.since.pop(key, None)
            return
        since = self.since.setdefault(key, self._state.now)
        self._later(key, since + self._timeout_s(group))

    def step(self) -> None:
        """Those whose time is over."""
        while self._due and self._due[0][0] <= self._state.now:
            at, key = heapq.heappop(self._due)
            if self._due_at.get(key) != at:
                continue  # it is looked at sooner
            del self._due_at[key]
            group, members = self._state.groups.group(key), self._state.groups.members.get(key)
            if group is None or members is None or key not in self.since:
                self.since.pop(key, None)
                continue
            ends = self.since[key] + self._timeout_s(group)
            if ends > self._state.now:
                self._later(key, ends)
                continue
            self._release(members)
            if group.broken is Broken.EVICT and not group.deleting and self._broken(key, members):
                self._evict(group, members)
                self.since[key] = at + EVICT_AGAIN_S - self._timeout_s(group)
                self._later(key, at + EVICT_AGAIN_S)
            else:
                del self.since[key]

    def wake_at(self) -> float | None:
        """When a group's time is over."""
        return self._due[0][0] if self._due else None

    def _later(self, key: str, at: float) -> None:
        """At that time, or when it is looked at anyway: one time per group."""
        if at < self._due_at.get(key, at + 1):
            self._due_at[key] = at
            heapq.heappush(self._due, (at, key))

    def _timeout_s(self, group: PodGroup) -> float:
        return self._state.settings.gang_timeout_s if group.timeout_s is None else group.timeout_s

    def _broken(self, key: str, members: Members) -> bool:
        ran = len(members.bound) + len(members.done)
        return bool(members.bound) and not members.away and ran < self._state.groups.minimum(key)

    def _reserves(self, members: Members) -> bool:
        nominated = self._state.cluster.nominated_to
        return bool(nominated) and not nominated.keys().isdisjoint(members.pending)

    def _release(self, members: Members) -> None:
        """No node is kept for members that wait any more."""
        state = self._state
        for uid in [uid for uid in members.pending if uid in state.cluster.nominated_to]:
            entry = state.queue.entries.get(uid)
            state.cluster.withdraw_nomination(uid)
            if entry is not None:
                self._reporter.clear_nomination(entry.pod)
                state.queue.renominate(uid, replace(entry.pod, nominated_node=""))

    def _evict(self, group: PodGroup, members: Members) -> None:
        """Members that run are asked to leave, as their disruption budgets allow."""
        accounts, index = self._state.cache.accounts, self._state.cluster.index
        evictions = []
        for uid, node in members.bound.items():
            account, pod = accounts.get(uid), index.get(uid)
            if account is not None and account.assumed_at is None and pod is not None and not pod.terminating:
                evictions.append(Eviction(uid, pod.namespace, pod.name, group.key, node))
        self._state.log("gang_broken", level="warning", group=group.key, evicted=len(evictions))
        if evictions:
            self._ledger.evict(evictions)


def evicted_with_group(state: State, eviction: Eviction, result: EvictionResult) -> bool:
    """What became of a member that was to leave since its gang is broken. False: the eviction was for a pod."""
    if ":" not in eviction.preemptor:
        return False
    if result.outcome == EvictionOutcome.EVICTED:
        title = group_title(eviction.preemptor)
        note = f"Evicted since pod group {title} runs fewer members than its minCount and did not complete in time"
        state.out.append(
            EmitEvent(eviction.uid, eviction.namespace, eviction.name, "", "Normal", "GangBroken", "Evicting", note)
        )
    elif result.outcome != EvictionOutcome.GONE:
        facts = {"pod_uid": eviction.uid, "group": eviction.preemptor, "reason": result.reason}
        state.log("eviction_failed", level="warning", **facts)
    return True
