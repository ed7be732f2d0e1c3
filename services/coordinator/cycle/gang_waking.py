"""Which parked pod groups are woken: none before there may be room for all that it lacks.

    a node's room --counted towards what groups of one kind lack--> enough for one? --judged on all nodes--> woken

Gangs of one kind wait together, and are woken as they came. Who brings the changes: ``requeueing.py``.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from services.coordinator.core.state import CoordinatorState
from services.coordinator.cycle.constraints import unnominated
from services.coordinator.preemption.groups import GroupPreemptor
from services.coordinator.preemption.nominations import Nominations
from shared.model.constraints import fitted
from shared.model.pod import Pod
from shared.model.resources import PODS
from shared.scheduling.cycle.constraints import Guidance
from shared.scheduling.cycle.room import room_for
from shared.scheduling.parked_groups import ParkedGroup, Room
from shared.scheduling.places import ClusterEvent, OwnEvent
from shared.scheduling.state.node_table import BoolArray

JUDGED_IN_FULL = 15
"""Looks that one group on all nodes counts for."""

WAITS = 4
"""The same for a gang for which victims still leave."""

YIELDED_TO = 8
"""Nodes kept for nominated pods that a group judged on all nodes is tried on in one unit of work."""

LOOKED_UP = 64
"""Groups that are only noted, or looked up, in the time of one look."""

WOKEN_AT_ONCE = 16
"""Members of a group that one change wakes at most where the room is not counted; the next follow them."""


class GangWaker:
    """Wakes parked pod groups, in one term."""

    def __init__(self, state: CoordinatorState, nominations: Nominations, preemptor: GroupPreemptor) -> None:
        self._state = state
        self._nominations = nominations
        self._preemptor = preemptor

    def gather(self, group: ParkedGroup, row: int, free: Room) -> bool:
        """Count a node's room towards what groups of the kind lack. True: there may be enough for one."""
        if not self._state.feasibility.static_verdict(group.pod.pod_class).mask[row]:
            return False
        places = places_left(self._state, group.pod, row, free, {})
        if places > 0:
            group.gained += 1
            group.lack -= places
        self._preemptor.look_again(group)
        return places > 0 and group.lack <= 0

    def wake(self, group: ParkedGroup, event: ClusterEvent | OwnEvent) -> tuple[list[str], int]:
        """Wake the pod groups, as they came, for which there may be room on all nodes together; not those that were
        tried since room was last gained. Uids of the members that stand for those, and the work that it was."""
        pod = group.pod
        if pod.nominated_node and self._nominations.departures.waits(pod) and not self._room_elsewhere(pod):
            return [], WAITS  # it is looked at again when more room comes free, and when the last victim has left
        state, pod = self._state, unnominated(group.pod)  # room on all nodes counts, not on one that is kept alone
        if event is not OwnEvent.WOKEN:
            group.gained += 1
        guidance = state.constraints.judge(pod) if state.constraints.template(pod) is not None else None
        if guidance is not None and guidance.rejection is not None:
            return [], JUDGED_IN_FULL
        left = room_for(state.cache.table, pod.pod_class, taking_nodes(state, pod, guidance))
        able = [uid for uid, need in group.needs.items() if need <= left and group.gained > group.tried[uid]]
        work = JUDGED_IN_FULL + len(group.needs) // LOOKED_UP + len(state.cluster.nominated) // YIELDED_TO
        queues: dict[str, list[str]] = {}
        for uid in sorted(able, key=group.members.__getitem__):
            queues.setdefault(self.line(state.queue.entries[uid].pod), []).append(uid)
        woken, spare = list[str](), 0 if queues else left
        for uids in queues.values():
            room = left
            for uid in uids[:WOKEN_AT_ONCE]:
                need = group.needs.get(uid)  # None: it was woken with another member, by this loop
                if need is not None and need <= room and state.queue.wake(uid, state.now, event):
                    room -= need
                    woken.append(uid)
            spare = max(spare, room)
        state.stats.woken += len(woken)
        # At least one place more: with none to wait for, each change would have the group judged on all nodes again.
        group.lack = max(1, min(group.needs.values(), default=1) - spare)
        return woken, work

    def wake_otherwise(self, group: ParkedGroup) -> tuple[list[str], int]:
        """Wake the pod groups, as they came, of which a member of this kind would say otherwise than when it was
        tried: that one more node helps where none does any more, or the reverse. As ``wake``."""
        state, queue, work = self._state, self._state.queue, len(group.judged) // 4
        now = state.constraints.reasons(queue.entries[uid].pod for uid in group.judged)
        changed = (uid for uid, judged in group.judged.items() if now.get(uid, judged) != judged)
        first = heapq.nsmallest(WOKEN_AT_ONCE, changed, key=group.members.__getitem__)
        return [uid for uid in first if queue.wake(uid, state.now)], work

    def line(self, pod: Pod) -> str:
        """Whose room it is: with Queue objects each queue is offered all of it, as the queues' order says who goes."""
        turns = self._state.queue.turns
        return turns.queue_of(pod) if turns is not None else ""

    def _room_elsewhere(self, pod: Pod) -> bool:
        """Whether all of a gang for which victims leave may fit before they have: there are as many places as it lacks
        beside one for everybody else who is nominated."""
        state = self._state
        made_room = self._nominations.made.get(pod.uid)
        others = len(state.cluster.nominated_to) - (len(made_room.pods) if made_room is not None else 0)
        places = room_for(state.cache.table, pod.pod_class, taking_nodes(state, pod, None))
        return places - others >= state.groups.lacking(pod.group)


def places_left(state: CoordinatorState, pod: Pod, row: int, free: Room, taken: Mapping[str, int]) -> int:
    """For how many such pods the row has room, by amounts. ``taken``: what others of that room will take."""
    table, places = state.cache.table, free(PODS) - taken.get(PODS, 0)
    for name, amount in fitted(pod.pod_class):
        if name in pod.pod_class.by_class:
            column = table.column_of.get(name)
            if column is None or not table.allocatable[column, row]:
                continue  # devices are given for it
        places = min(places, (free(name) - taken.get(name, 0)) // amount)
    return places


def taking_nodes(state: CoordinatorState, pod: Pod, guidance: Guidance | None) -> BoolArray:
    """``[rows]``: the nodes that take the pod now."""
    mask = guidance.mask if guidance is not None else None
    return state.feasibility.of(pod.pod_class).mask if mask is None else mask
