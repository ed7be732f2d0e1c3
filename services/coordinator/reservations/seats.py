"""Pods for which room is kept go there first, and nobody is asked: ReservationFirst.

    taken off the queue --room kept for it, where all rules let it stand--> assumed in the reservation's stead, planned
                        --none--> as any other pod
    room came, or came back --> those for whom it is kept are roused

The reserve pod is lifted, the pod judged on its node as everything else stands, and counted there instead; what does
not work out is undone at once. No agent could answer for that: to agents the room is taken.
"""

from __future__ import annotations

from services.coordinator.core.decisions import PastDecision
from services.coordinator.core.state import CoordinatorState
from services.coordinator.cycle.constraints import unnominated
from services.coordinator.cycle.failures import ConflictTracker
from shared.model.pod import Pod
from shared.model.unit import Unit
from shared.scheduling.places import ClusterEvent
from shared.scheduling.state.reserved_room import serves
from shared.wire.messages import Placement

POLICY = "reservation"
"""As people are told who chose the node."""


class ReservedSeats:
    """One term's."""

    def __init__(self, state: CoordinatorState, conflicts: ConflictTracker) -> None:
        self._state = state
        self._conflicts = conflicts

    def seat(self, unit: Unit) -> Placement | None:
        """Assume the unit in room that is kept for it. None: there is none, or it must not stand there."""
        state, pod = self._state, unit.pod
        cluster = state.cluster
        for reserve in cluster.reserved.kept_for(pod):
            node = reserve.node_name
            row = cluster.table.row_of.get(node)
            if row is None or node in state.drained or self._conflicts.avoids(pod.uid, node):
                continue
            counts_as = cluster.take_room(reserve.uid, pod)
            if counts_as is None:
                continue
            if why := state.constraints.rejecting_at(unnominated(pod), row):
                cluster.leave_room(pod.uid)
                state.log(
                    "reservation_unfit", level="debug", pod_uid=pod.uid, reservation=reserve.key, node=node,
                    plugin=why,
                )  # fmt: skip
                continue
            cluster.assume(pod, node, state.now, counts_as=counts_as)
            return self._placement(unit, reserve)
        return None

    def _placement(self, unit: Unit, reserve: Pod) -> Placement:
        state, pod, node = self._state, unit.pod, reserve.node_name
        entry = state.queue.entries[pod.uid]
        state.recent.remember(
            pod.uid,
            PastDecision(
                state.now, unit.number, node, POLICY, 0, (), pod.uid, pod.namespace, pod.name, entry.attempts + 1
            ),
        )  # fmt: skip
        state.queue.story.add(pod.uid, "takes {} on {}", reserve.key, node)
        waited_us = max(0, int((state.now - unit.since) * 1e6))
        return Placement(
            unit.number, pod.uid, pod.namespace, pod.name, pod.resource_version, node, waited_us=waited_us,
            reservation=reserve.uid,
        )  # fmt: skip

    def rouse(self) -> None:
        """Pods that are parked, and for which room is kept since the last look: one pass over them, however much of it
        there is."""
        state, reserved = self._state, self._state.cluster.reserved
        offered, reserved.offered = reserved.offered, {}
        kept = [reserved.standing[uid] for uid in offered if uid in reserved.standing]
        terms = [one.reserves for one in kept if one.reserves is not None and reserved.free(one)]
        if not terms or not state.queue.waiting.groups:
            return
        entries = state.queue.entries
        for uid in [uid for uid in state.queue.waiting.uids() if any(serves(one, entries[uid].pod) for one in terms)]:
            self._conflicts.parked(uid)
            state.stats.woken += state.queue.rouse(uid, state.now, ClusterEvent.POD_DELETED)
