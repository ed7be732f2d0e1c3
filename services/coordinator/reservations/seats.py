"""Pods for which room is kept go there first, and nobody is asked: ReservationFirst.

    taken off the queue --room kept for it, where all rules let it stand--> assumed in the reservation's place, planned
                        --none--> as any other pod
    a pod group --room kept for as many members as it lacks--> all of those at once, as one gang
                --for fewer--> none of it is taken: the group goes as any other, and the rooms wait
    room came, or came back --> those for whom it is kept, and whom it may hold, are woken

The reserve pod is lifted, the pod judged on its node as everything else stands, and counted there instead; what does
not work out is undone at once. No agent could answer for that: to agents the room is taken.

Lifting costs as much as a change of the node, so it is done where the amounts are enough, a few times a pod, and not
again for its class while the node stays as it is. What is left untried wakes those who wait once more.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from heapq import nsmallest

from services.coordinator.core.decisions import PastDecision
from services.coordinator.core.state import CoordinatorState
from services.coordinator.cycle.constraints import unnominated
from services.coordinator.cycle.failures import ConflictTracker
from shared.model.pod import Pod
from shared.model.units.unit import Unit
from shared.scheduling.places import OwnEvent
from shared.scheduling.state.room.reserved_room import keys_of, owned_by, serves
from shared.wire.messages import Placement

POLICY = "reservation"
"""As people are told who chose the node."""

MOST_LIFTED = 4
"""Reservations that one pod is judged in at one time."""

LIFTING = 10
"""Of a turn's work: one judged; ``LOOKS`` that are only looked at cost one."""

LOOKS = 20

MOST_REFUSALS = 20_000
"""That are remembered; then all are forgotten, which costs a judgement each."""

FORGET_S = 30.0
"""A refusal by more than the node is remembered so long at most."""

RETRY_EVERY_S = 1.0
"""A pass over those that are parked is made so often at most."""

MOST_WOKEN = 64
"""Pods at a time: room for one is not to wake ten thousand."""


class ReservedSeats:
    """One term's."""

    def __init__(self, state: CoordinatorState, conflicts: ConflictTracker) -> None:
        self._state = state
        self._conflicts = conflicts
        self._refused: dict[tuple[Hashable, str], tuple[int, int, float]] = {}
        self.retry_at = 0.0
        """When parked pods may be looked through again."""

    def seat(self, unit: Unit, template: Hashable | None) -> tuple[Placement | None, int]:
        """Assume the unit in room that is kept for it, and what of the turn's work that took. None: there is none, or
        it must not stand there. ``template``: as the constraints tell; None: its class and the node alone decide."""
        reserve, work = self._assumed(unit, template)
        return self._placement(unit, reserve) if reserve is not None else None, work

    def seat_together(self, key: str, units: Sequence[Unit]) -> tuple[list[Placement], int]:
        """Assume at least so many members as pod group ``key`` lacks, each in room that is kept for it, and what that
        took; []: there is less room, or they must not stand there, and nobody is assumed. A group that must stay
        within a domain takes none: rooms are not chosen by domain."""
        state = self._state
        group, kept_for = state.groups.as_it_stands(key), state.cluster.reserved.kept_for
        lacking = max(1, state.groups.lacking(key))
        free = group is None or group.topology is None or not group.topology.required
        able = [unit for unit in units if kept_for(unit.pod)] if free else []
        if len(able) < lacking:
            return [], 0
        seated, spent = list[tuple[Unit, Pod]](), 0
        for unit in able:
            reserve, work = self._assumed(unit, state.constraints.template(unit.pod))
            spent += work
            if reserve is not None:
                seated.append((unit, reserve))
        if len(seated) >= lacking:
            return [self._placement(unit, reserve) for unit, reserve in seated], spent
        for unit, _ in reversed(seated):
            state.cluster.leave_room(unit.pod.uid, offers=False)
            state.cluster.forget(unit.pod.uid)
            if unit.pod.nominated_node:  # assuming it withdrew that; its victims leave for it still
                state.cluster.nominate(unit.pod)
        return [], spent

    def _assumed(self, unit: Unit, template: Hashable | None) -> tuple[Pod | None, int]:
        """The reserve pod in whose stead the unit is assumed."""
        state, pod = self._state, unit.pod
        cluster = state.cluster
        kept = cluster.reserved.kept_for(pod)
        if not kept:
            return None, 0
        key, lifted = template or (pod.pod_class, pod.priority), 0
        for reserve in kept:
            node = reserve.node_name
            row = cluster.table.row_of.get(node)
            if row is None or node in state.drained or self._conflicts.avoids(pod.uid, node):
                continue
            if not self._may_hold(reserve, pod, row, key, guided=template is not None):
                continue
            if lifted >= MOST_LIFTED:
                cluster.reserved.offered[reserve.uid] = None  # it is looked at later
                break
            counts_as = cluster.take_room(reserve.uid, pod)
            if counts_as is None:
                continue
            lifted += 1
            if why := state.constraints.rejecting_at(unnominated(pod), row):
                cluster.leave_room(pod.uid, offers=False)
                if len(self._refused) >= MOST_REFUSALS:
                    self._refused.clear()
                self._refused[key, reserve.uid] = self._stamp(node, row, guided=template is not None)
                state.log(
                    "reservation_unfit", level="debug", pod_uid=pod.uid, reservation=reserve.key, node=node,
                    plugin=why,
                )  # fmt: skip
                continue
            cluster.assume(pod, node, state.now, counts_as=counts_as)
            return reserve, lifted * LIFTING + len(kept) // LOOKS
        return None, lifted * LIFTING + len(kept) // LOOKS

    def _may_hold(self, reserve: Pod, pod: Pod, row: int, key: Hashable, *, guided: bool) -> bool:
        """Whether the node has the amounts with the kept room lifted, and did not refuse the like as it stands."""
        if self._refused.get((key, reserve.uid)) == self._stamp(reserve.node_name, row, guided=guided):
            return False
        if pod.extended:
            return True  # a device class may stand for what the node does not offer
        table, account = self._state.cluster.table, self._state.cache.accounts.get(reserve.uid)
        lifted = dict(account.pod_class.requests) if account is not None else {}
        for name, amount in pod.pod_class.requests:
            column = table.column_of.get(name)
            if column is not None:
                free = table.allocatable[column, row] - table.requested[column, row] + lifted.get(name, 0)
                if amount > free:
                    return False
        return True

    def _stamp(self, node: str, row: int, *, guided: bool) -> tuple[int, int, float]:
        """Changes with whatever may let the node take who was refused; of ``guided`` ones more than the node decides,
        so that for them it does in time."""
        cluster = self._state.cluster
        generation = int(cluster.table.generation[row])
        return generation, cluster.renominated_at(node), self._state.now // FORGET_S if guided else 0.0

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

    def wake_at(self) -> float | None:
        """When parked pods are to be looked through."""
        return self.retry_at if self._state.cluster.reserved.offered else None

    def wake(self) -> None:
        """Pods that are parked, and for which room is kept since the last look: one pass over them, however much of it
        there is. They wait for the end of their backoff."""
        state, reserved = self._state, self._state.cluster.reserved
        offered, reserved.offered = reserved.offered, {}
        kept = [reserved.standing[uid] for uid in offered if uid in reserved.standing]
        by_owner: dict[tuple[str, str, str], list[Pod]] = {}
        for reserve in kept:
            if reserved.free(reserve) and reserve.node_name in state.cluster.table.row_of:
                for key in keys_of(reserve):
                    by_owner.setdefault(key, []).append(reserve)
        if not by_owner or not state.queue.waiting.groups:
            return
        self.retry_at = state.now + RETRY_EVERY_S
        entries, named = state.queue.entries, any(kind == "pod" for _, kind, _ in by_owner)
        known: dict[Hashable, bool] = {}
        able: list[tuple[int, int, str]] = []
        for uid in state.queue.waiting.uids():
            pod = entries[uid].pod
            for one in self._represented(pod):
                alike = (one.namespace, one.owner, id(one.labels), one.pod_class, one.priority, named and one.name)
                if alike not in known:
                    known[alike] = self._helped(one, by_owner)
                if known[alike]:
                    able.append((-pod.priority, len(able), uid))
                    break
        for _, _, uid in nsmallest(MOST_WOKEN, able):
            self._conflicts.parked(uid)
            state.stats.woken += state.queue.wake(uid, state.now, OwnEvent.WOKEN)
        if len(able) > MOST_WOKEN:
            reserved.offered |= offered

    def _represented(self, pod: Pod) -> Iterable[Pod]:
        """Whom a parked pod stands for: of a group that waits as a whole one member does for all."""
        if self._state.queue.entries[pod.uid].group is None:
            return (pod,)
        return self._state.groups.members[pod.group].pending.values()

    def _helped(self, pod: Pod, by_owner: dict[tuple[str, str, str], list[Pod]]) -> bool:
        row_of = self._state.cluster.table.row_of
        return any(
            reserve.reserves is not None
            and serves(reserve.reserves, pod)
            and self._may_hold(reserve, pod, row_of[reserve.node_name], (pod.pod_class, pod.priority), guided=False)
            for key in owned_by(pod)
            for reserve in by_owner.get((pod.namespace, *key), ())
        )
