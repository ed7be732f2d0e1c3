"""Keeps the members of every pod group where they belong in the scheduling queue.

    what is seen of groups and members (``pod_groups.py``) --touched--> step --standing--> gated | joined | each alone

Once per batch of events, and after each cycle. A group in flight is looked at when it is back: until then newcomers
wait. Members of a gang whose minimum is bound, and of groups that are no gang, are lone pods in all but name.
"""

from __future__ import annotations

import heapq

from services.coordinator.core.state import State
from services.coordinator.groups.breaking import Breaker
from services.coordinator.status.groups import GroupReporter
from shared.model.pod_group import MAX_MEMBERS
from shared.scheduling.places import Place
from shared.scheduling.pod_groups import ON_THEIR_WAY, Members, Standing, Touch

TOLD_AFTER_S = 5.0
"""Members of a group that is not complete are told so after so long: most groups are complete within a second."""


class GroupKeeper:
    """One term's."""

    def __init__(self, state: State, reporter: GroupReporter, breaker: Breaker) -> None:
        self._state = state
        self._reporter = reporter
        self._breaker = breaker
        self._due: list[tuple[float, str]] = []
        self._due_at: dict[str, float] = {}
        self._measured = -1
        """Which nodes the totals are of that groups were told, as ``nodes_version`` counts."""

    def step(self) -> None:
        """Look at the groups of which something changed, and tell those that have waited for long enough."""
        state = self._state
        if state.groups.demanding and state.nodes_version != self._measured:
            self._measured = state.nodes_version
            state.groups.measure(state.cache.table.totals())
        if state.groups.touched:
            for key, touch in state.groups.take_touched().items():
                members = state.groups.members.get(key)
                if members is not None:
                    self._look(key, members, touch)
                else:
                    self._reporter.unusable(key)
                self._breaker.look(key, members)
        while self._due and self._due[0][0] <= state.now:
            at, key = heapq.heappop(self._due)
            if self._due_at.get(key) == at:
                del self._due_at[key]
                self._tell(key)
        self._breaker.step()

    def wake_at(self) -> float | None:
        """When somebody is to be told that its group is not complete, or a group's time is over."""
        times = [self._due[0][0]] if self._due else []
        over = self._breaker.wake_at()
        return min(times if over is None else [*times, over], default=None)

    def _look(self, key: str, members: Members, touch: Touch) -> None:
        state, queue = self._state, self._state.queue
        queued = queue.groups.get(key)
        if queued is not None and queued.place is Place.IN_FLIGHT:
            members.standing, members.why = Standing.GATED, ON_THEIR_WAY  # all are looked at when it is back
            return
        standing, why = state.groups.standing(key)
        changed = (standing, why) != (members.standing, members.why)
        short = queued is None or len(queued.members) < state.groups.lacking(key)  # those left out are needed now
        uids = list(members.pending if changed or short else touch.uids)
        members.standing, members.why = standing, why
        if standing is Standing.TOGETHER:
            room = MAX_MEMBERS - (len(queued.members) if queued is not None else 0)
            joining = [uid for uid in uids if uid in members.pending and uid not in members.away][:room]
            priority = state.groups.priority(key)
            if joining or touch.helped or (queued is not None and queued.priority != priority):
                queue.join(key, joining, priority, state.now, touch.event)
            return
        if queued is not None:
            queue.disband(key, state.now, touch.event)
        if standing is Standing.ALONE:
            for uid in uids:
                queue.ungate(uid, state.now, touch.event)
            if changed:
                self._reporter.complete(key)
            return
        for uid in uids:
            queue.gate(uid, state.now)
        if changed:
            members.since = state.now
        if uids:
            self._later(key, state.now + TOLD_AFTER_S)

    def _tell(self, key: str) -> None:
        """The members that are gated still, for the reason for which they were so long ago."""
        members, now = self._state.groups.members.get(key), self._state.now
        if members is None or members.standing is not Standing.GATED:
            return
        if now < members.since + TOLD_AFTER_S:
            self._later(key, members.since + TOLD_AFTER_S)
            return
        self._reporter.waits(key, members, members.why)
        self._later(key, now + self._state.settings.notice_repeat_s)

    def _later(self, key: str, at: float) -> None:
        """At that time, or when it is to be told anyway."""
        if at < self._due_at.get(key, at + 1):
            self._due_at[key] = at
            heapq.heappush(self._due, (at, key))
