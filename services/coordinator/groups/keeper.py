"""Keeps the members of every pod group where they belong in the scheduling queue.

    what is seen of groups and members (``pod_groups.py``) --touched--> step --standing--> gated | joined | each alone

Once per batch of events, and after each cycle. A group in flight is looked at when it is back: until then newcomers
wait. Members of a gang whose minimum is bound, and of groups that are no gang, are lone pods in all but name.
"""

from __future__ import annotations

from services.coordinator.core.due import Due
from services.coordinator.core.state import CoordinatorState
from services.coordinator.groups.breaking import Breaker
from services.coordinator.preemption.groups import GroupPreemptor
from services.coordinator.status.groups import GroupReporter
from shared.model.units.pod_group import MAX_MEMBERS
from shared.scheduling.groups.quorum import TOO_FEW
from shared.scheduling.places import Place
from shared.scheduling.pod_groups import ON_THEIR_WAY, GroupMembers, GroupStanding, Touch

TOLD_AFTER_S, TOLD_AT_LATEST_S = 5.0, 30.0
"""Members of a group that is not complete are told so once no member has come for so long: most groups are complete
within a second, large ones as soon as all of it is created. One that never ceases to grow is told after the second."""


class GroupKeeper:
    """One term's."""

    def __init__(
        self, state: CoordinatorState, reporter: GroupReporter, breaker: Breaker, preemptor: GroupPreemptor
    ) -> None:
        self._state = state
        self._reporter = reporter
        self._breaker = breaker
        self._preemptor = preemptor
        self._due = Due()
        self._excuses = Due()
        self._measured = -1
        """Which nodes the totals are of that groups were told, as ``totals_version`` counts."""

    def step(self) -> None:
        """Look at the groups of which something changed, and tell those that have waited for long enough."""
        state = self._state
        if state.groups.demanding and state.totals_version != self._measured:
            self._measured = state.totals_version
            state.groups.measure(state.cache.table.totals())
        for key in self._excuses.take(state.now):
            self._excuse(key)
        if state.groups.touched:
            for key, touch in state.groups.take_touched().items():
                state.to_leave[key] = None
                members = state.groups.members.get(key)
                if members is not None:
                    if touch.recounted:
                        self._count_anew(key, members, touch)
                    self._look(key, members, touch)
                else:
                    self._reporter.unusable(key)
                self._breaker.look(key, members)
                self._preemptor.follow(key, members)
        for key in self._due.take(state.now):
            self._tell(key)
        self._breaker.step()

    def wake_at(self) -> float | None:
        """When somebody is to be told that its group is not complete, or a group's time is over."""
        times = (self._due.next_at(), self._excuses.next_at(), self._breaker.wake_at())
        return min((at for at in times if at is not None), default=None)

    def _count_anew(self, key: str, members: GroupMembers, touch: Touch) -> None:
        """Queues count the members otherwise than before; where the group names another one, they wait there too."""
        state, queue = self._state, self._state.queue
        queue.labelled |= bool(members.pending and state.groups.label(key))
        if (turns := queue.turns) is None:
            return
        turns.dirty.update(dict.fromkeys(state.cluster.members.get(key, ())))
        turns.nominated.update((uid, None) for uid in members.pending if uid in state.cluster.nominated_to)
        if touch.requeued:
            queue.change_queue(key, members.pending, state.now)

    def _look(self, key: str, members: GroupMembers, touch: Touch) -> None:
        state, queue = self._state, self._state.queue
        queued = queue.groups.get(key)
        if queued is not None and queued.place is Place.IN_FLIGHT:
            members.standing, members.why = GroupStanding.GATED, ON_THEIR_WAY  # all are looked at when it is back
            return
        standing, why = state.groups.standing(key)
        changed = (standing, why) != (members.standing, members.why)
        members.standing, members.why = standing, why
        if standing is GroupStanding.TOGETHER:
            short = queued is None or len(queued.members) < state.groups.lacking(key)  # those left out are needed now
            uids = list(members.pending if changed or short else touch.uids)
            room = MAX_MEMBERS - (len(queued.members) if queued is not None else 0)
            joining = [uid for uid in uids if uid in members.pending and uid not in members.away][:room]
            priority = state.groups.priority(key)
            if joining or touch.helped or (queued is not None and queued.priority != priority):
                ahead = bool(members.bound)  # it runs in part: what it waits for is the place of a member it had
                queue.join(key, joining, priority, state.now, touch.event, ahead=ahead)
            return
        if queued is not None:
            queue.disband(key, state.now, touch.event)
        uids = list(members.pending if changed or queued is not None else touch.uids)
        if standing is GroupStanding.ALONE:
            for uid in uids:
                queue.ungate(uid, state.now, touch.event)
            if changed:
                self._reporter.complete(key)
            return
        for uid in uids:
            queue.gate(uid, state.now)
        if changed:
            members.since = state.now
        if touch.helped:
            members.moved = state.now
        if uids:
            self._due.later(key, state.now + TOLD_AFTER_S)
        self._excuse_later(key, members)

    def _excuse_later(self, key: str, members: GroupMembers) -> None:
        """A gang that lacks members, of which some have ended: it is looked at again when nobody comes for a while."""
        if not (members.pending and (members.succeeded or members.failed)) or members.why != TOO_FEW:
            return
        if (at := self._excused_at(key, members)) is not None:
            self._excuses.later(key, max(at, self._state.now))

    def _excused_at(self, key: str, members: GroupMembers) -> float | None:
        """When ended members may stand for those that are missing; None: there are too few of them."""
        missing, since = self._state.groups.missing(key), max(members.since, members.moved)
        if members.succeeded >= missing:
            return since + TOLD_AFTER_S
        if members.succeeded + len(members.failed) >= missing:
            return since + self._state.timeout_s(self._state.groups.group(key))
        return None

    def _excuse(self, key: str) -> None:
        """Nobody came for so long: who is there goes without those that have run. A member that failed may be made
        anew after a pause, so it is waited for longer."""
        state, members = self._state, self._state.groups.members.get(key)
        if members is None or members.standing is not GroupStanding.GATED or members.why != TOO_FEW:
            return
        at = self._excused_at(key, members)
        if at is not None and at > state.now:
            self._excuses.later(key, at)
        elif at is not None:
            state.groups.excuse(key, members.succeeded + len(members.failed))
            state.log("gang_excused", group=key, missing=state.groups.missing(key))

    def _tell(self, key: str) -> None:
        """The members that are gated still, for the reason for which they were so long ago."""
        members, now = self._state.groups.members.get(key), self._state.now
        if members is None or members.standing is not GroupStanding.GATED:
            return
        due = members.since + TOLD_AFTER_S
        due = max(due, min(members.moved + TOLD_AFTER_S, members.since + TOLD_AT_LATEST_S))
        if now < due:
            self._due.later(key, due)
            return
        self._reporter.waits(key, members, members.why)
        self._due.later(key, now + max(TOLD_AFTER_S, self._state.settings.notice_repeat_s))
