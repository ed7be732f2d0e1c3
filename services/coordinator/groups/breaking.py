"""What becomes of broken gangs: some members run, fewer than the minimum, and none is on its way.

    broken --the group's timeout--> keep: they stay | evict: they are asked to leave, and all wait

Decided from what the API server shows, so a successor decides the same, at most one timeout later. Members that have
succeeded count as having run (``PodGroups.ran``): a gang whose members finish one by one is not broken. Those that
somebody deletes as they succeed count on for this leader; for its successor they do where a Job's status tells of them.
The time is always waited for: that nobody comes to complete a gang cannot be known, since controllers make new pods for
those that are gone. While scheduling is paused nobody could come, so nobody is evicted, and the time begins anew when
it goes on.
"""

from __future__ import annotations

from services.coordinator.binding.plans import Ledger
from services.coordinator.core.due import Due
from services.coordinator.core.instructions import EmitEvent
from services.coordinator.core.state import CoordinatorState
from shared.model.units.pod_group import PodGroup, WhenGangBreaks, group_title
from shared.scheduling.pod_groups import GroupMembers
from shared.wire.messages import Eviction, EvictionOutcome, EvictionReason, EvictionResult

EVICT_AGAIN_S = 30.0
"""Pause before members are asked to leave again, where a disruption budget did not let them."""


class Breaker:
    """``since``: by group, since when it is broken."""

    def __init__(self, state: CoordinatorState, ledger: Ledger) -> None:
        self._state = state
        self._ledger = ledger
        self.since: dict[str, float] = {}
        self._due = Due()
        self._paused = False

    def look(self, key: str, members: GroupMembers | None) -> None:
        """Something changed in the group, or (None) it has no members any more."""
        group = self._state.groups.group(key)
        if group is None or members is None or not self._state.groups.broken(key):
            self.since.pop(key, None)
            return
        since = self.since.setdefault(key, self._state.now)
        self._due.later(key, since + self._state.timeout_s(group))

    def step(self) -> None:
        """Those whose time is over."""
        state = self._state
        if state.paused is not None:
            self._paused = True
            return
        if self._paused:
            self._paused, self.since = False, dict.fromkeys(self.since, state.now)
        for key in self._due.take(state.now):
            group, members = state.groups.group(key), state.groups.members.get(key)
            if group is None or members is None or key not in self.since:
                self.since.pop(key, None)
                continue
            timeout_s = state.timeout_s(group)
            ends = self.since[key] + timeout_s
            if ends > state.now:
                self._due.later(key, ends)
            elif group.broken is WhenGangBreaks.EVICT and not group.deleting:
                self._evict(group, members)
                self.since[key] = state.now + EVICT_AGAIN_S - timeout_s
                self._due.later(key, state.now + EVICT_AGAIN_S)
            else:
                del self.since[key]

    def wake_at(self) -> float | None:
        """When a group's time is over."""
        return self._due.next_at() if self._state.paused is None else None

    def _evict(self, group: PodGroup, members: GroupMembers) -> None:
        """Members that run are asked to leave, as their disruption budgets allow."""
        accounts, index = self._state.cache.accounts, self._state.cluster.index
        evictions = []
        for uid, node in members.bound.items():
            account, pod = accounts.get(uid), index.get(uid)
            if account is not None and account.assumed_at is None and pod is not None and not pod.terminating:
                evictions.append(
                    Eviction(uid, pod.namespace, pod.name, group.key, node, reason=EvictionReason.BROKEN_GANG)
                )
        self._state.log("gang_broken", level="warning", group=group.key, evicted=len(evictions))
        if evictions:
            self._ledger.evict(evictions)


def evicted_with_group(state: CoordinatorState, eviction: Eviction, result: EvictionResult) -> bool:
    """What became of a member that was to leave since its gang is broken. False: the eviction was for a pod."""
    if eviction.reason != EvictionReason.BROKEN_GANG:
        return False
    if result.outcome == EvictionOutcome.EVICTED:
        title = group_title(eviction.preemptor)
        note = f"Evicted since pod group {title} runs fewer members than its minCount and did not complete in time"
        state.out.append(
            EmitEvent(eviction.uid, eviction.namespace, eviction.name, "", "Normal", "GangBroken", "Evicting", note)
        )
    elif result.outcome != EvictionOutcome.GONE and not result.waits:
        facts = {"pod_uid": eviction.uid, "group": eviction.preemptor, "reason": result.reason}
        state.log("eviction_failed", level="warning", **facts)
    return True
