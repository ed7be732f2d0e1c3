"""Whether somebody leaves still for pods that are nominated: those wait until then, and are not tried meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from services.coordinator.core.state import CoordinatorState
from services.coordinator.preemption.made_room import MadeRoom
from shared.model.pod import Pod
from shared.scheduling.cycle.filtering import refusal_at
from shared.scheduling.framework import Code
from shared.scheduling.numa.inside import LATE_S


class Departures:
    """One term's. ``made``: what room is made, or kept, by the nominated pod's uid, as ``Nominations`` has it."""

    def __init__(self, state: CoordinatorState, made: dict[str, MadeRoom]) -> None:
        self._state = state
        self._made = made
        self._before_until: float | None = None
        """From the first look on, whom leaders before asked to leave may be in objects of zones for so long."""

    def waits(self, pod: Pod) -> bool:
        """Whether somebody is already leaving for the pod, or the others of its group that are nominated with it: on
        its nominated node, or asked to in this term.

        Any pod of lower priority counts that is terminating there: the API server's eviction replaces the reason
        by which kube-scheduler knows its own victims.
        """
        known, entry = self._made.get(pod.uid), self._state.queue.entries.get(pod.uid)
        if entry is not None and entry.group is not None:
            if known is None:  # nominated by a leader before
                return self.waits_together([e.pod for e in entry.group.members.values() if e.pod.nominated_node])
            return self._may_go(pod) and (self.stands(known) or self.leaves(pod, pod.nominated_node))
        node = known.pods[pod.uid].nominated_node if known is not None else pod.nominated_node
        if not node or self._hopeless(pod, node):
            return False
        return (known is not None and self.stands(known)) or self.leaves(pod, node)

    def all_left(self, uid: str) -> bool:
        """Whether everybody has left who was to leave for the pod and those that are nominated with it."""
        known = self._made.get(uid)
        return known is not None and known.evicting and not self.stands(known)

    def waits_together(self, pods: Sequence[Pod]) -> bool:
        """The same of the nominated members of a pod group that go together: whether somebody leaves for any of them,
        while every one still may go where it is to go."""
        if not all(self._may_go(pod) for pod in pods):
            return False
        known = next((self._made[pod.uid] for pod in pods if pod.uid in self._made), None)
        return (known is not None and self.stands(known)) or any(self.leaves(pod, pod.nominated_node) for pod in pods)

    def _may_go(self, pod: Pod) -> bool:
        """Whether the nominated node is there and not closed to the pod."""
        row = self._state.cluster.table.row_of.get(pod.nominated_node)
        return row is not None and bool(self._state.feasibility.static_verdict(pod.pod_class).mask[row])

    def leaves(self, pod: Pod, node: str) -> bool:
        """Whether somebody of lower priority is being deleted on the node; of a pod that was nominated by a leader
        before, also whether somebody left whom the object of its zones counts still."""
        if pod.uid not in self._made and pod.pod_class.needs is not None and self._state.zones.left(node):
            if self._before_until is None:
                self._before_until = self._state.now + LATE_S
            if self._state.now < self._before_until:
                return True
        return any(
            other.terminating and other.priority < pod.priority for other in self._state.cluster.index.pods_on(node)
        )

    def stands(self, known: MadeRoom) -> bool:
        """Whether room may come yet: some victim is where it was or, where zones matter to those that wait, the object
        of its node counts it still. Those that are gone are not looked at again."""
        if known.patient and known.group:
            return True
        index = self._state.cluster.index
        aligned = any(pod.pod_class.needs is not None for pod in known.pods.values())
        while known.left:
            uid = next(iter(known.left))
            node = known.victims[uid][1]
            if uid in index.uids_on(node) or (aligned and uid in self._state.zones.left(node)):
                return True
            del known.left[uid]
        return False

    def _hopeless(self, pod: Pod, node: str) -> bool:
        """Whether the node would not take the pod even when it were empty: cordoned since, tainted, gone."""
        row = self._state.cluster.table.row_of.get(node)
        if row is None:
            return True
        found = refusal_at(self._state.feasibility, self._state.constraints.prefiltered(pod), row)
        return found is not None and found.code is Code.UNRESOLVABLE

    def standing(self, made_room: MadeRoom) -> list[str]:
        """Uids of the victims that still are where they were."""
        index = self._state.cluster.index
        return [uid for uid, (_, node) in made_room.victims.items() if uid in index.uids_on(node)]
