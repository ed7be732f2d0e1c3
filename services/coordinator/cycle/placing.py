"""From an ended cycle to placements: units are given the answered nodes, assumed, and the rest is handed back.

    lone units: class by class --assumed--> placements | given back
    with gangs: in queue order; all members of a gang --at least what it lacks--> assumed | all forgotten, in one turn

A gang's members are tried in their order, one that does not fit is passed over; as soon as those that are left cannot
make up for it, the gang is over. What fits beyond the minimum goes along, and the rest waits with its old place.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.coordinator.agents.registry import AgentRegistry
from services.coordinator.core.decisions import PastDecision
from services.coordinator.core.state import State
from services.coordinator.cycle.assign import Choice, GuidedSeats, Mark, PlainSeats, Seats
from services.coordinator.cycle.classes import Group
from services.coordinator.cycle.failures import FailureHandler
from services.coordinator.cycle.requeueing import Requeuer
from services.coordinator.cycle.taking import Together
from services.coordinator.groups.failures import GroupFailures
from shared.model.pod import Pod
from shared.model.unit import Unit
from shared.scheduling.places import Place
from shared.scheduling.pod_groups import Standing
from shared.wire.messages import Gang, Placement


@dataclass(slots=True)
class OpenCycle:
    """The cycle whose offers are out. ``waiting``: agents that were asked and have not answered; ``missing``: how many
    own nodes and were not asked, or gave no answer of use; ``order``: the units in queue order, ``together`` of them
    pod groups."""

    groups: dict[int, Group]
    class_of: dict[int, int]
    order: list[Unit | Together]
    together: int
    waiting: set[str]
    missing: int
    started_at: float
    deadline: float
    first_offer: int
    policy: str
    """The active one as it was offered."""


class Placer:
    """One term's."""

    def __init__(
        self, state: State, registry: AgentRegistry, failures: FailureHandler, together: GroupFailures,
        requeuer: Requeuer,
    ) -> None:  # fmt: skip
        self._state = state
        self._registry = registry
        self._failures = failures
        self._together = together
        self._requeuer = requeuer

    def place(self, current: OpenCycle) -> tuple[list[tuple[Placement, Pod]], list[Gang]]:
        """What is to be planned: the placements, each assumed, and which of them stand or fall together."""
        groups = {number: group for number, group in current.groups.items() if not group.shadow}
        placements: list[tuple[Placement, Pod]] = []
        if not current.together:
            for group in groups.values():
                seats = self._seats(group)
                stand: list[Unit] = []
                for unit in group.units:
                    if self._stands(unit, group) and (not unit.pod.group or self._alone(unit)):
                        stand.append(unit)
                    else:
                        self._try_again(unit)
                left = [unit for unit in stand if not seats.take(unit)]
                self._end(seats, group, left, current, placements)
            return placements, []
        every = {number: self._seats(group) for number, group in groups.items()}
        left_of: dict[int, list[Unit]] = {number: [] for number in groups}
        gangs: list[Gang] = []
        for item in current.order:
            if isinstance(item, Together):
                self._take_together(item, current, every, gangs)
                continue
            number = current.class_of[item.number]
            if not self._stands(item, groups[number]) or not self._alone(item):
                self._try_again(item)
            elif not every[number].take(item):
                left_of[number].append(item)
        for number, group in groups.items():
            self._end(every[number], group, left_of[number], current, placements)
        return placements, gangs

    def _seats(self, group: Group) -> Seats:
        conflicts = self._failures.conflicts
        if group.guidance is None:
            return PlainSeats(self._state, conflicts, group.pod_class, group.lists)
        return GuidedSeats(self._state, conflicts, group.guidance, group.lists)

    def _end(
        self, seats: Seats, group: Group, left: list[Unit], current: OpenCycle,
        placements: list[tuple[Placement, Pod]],
    ) -> None:  # fmt: skip
        """Placements of one class, and what becomes of its lone units that got none."""
        state, choices = self._state, seats.choices()
        if left and seats.dry and group.guidance is None:
            group.known.widen()
        for choice in choices:
            placements.append((self._placement(choice), choice.unit.pod))
            self._requeuer.attempt_ended(choice.unit.pod.uid, choice.node)
        for unit in left:
            if seats.dry and choices and not (group.guidance is not None and state.constraints.waits(unit.pod)):
                state.queue.retry(unit.pod.uid, state.now, failed=False)  # it was not lost: nobody was asked
            else:
                unowned = len(self._registry.ownership.unowned)
                self._failures.give_back(unit, group, missing=current.missing, unowned=unowned)

    # --- members of a pod group ---------------------------------------------------------------------------------

    def _take_together(self, item: Together, current: OpenCycle, every: dict[int, Seats], gangs: list[Gang]) -> None:
        """Place at least so many members as the group lacks by now, or none."""
        state = self._state
        if state.groups.standing(item.key)[0] is Standing.GATED:
            self._together.retry(item.key)  # its object went, or its minimum rose: it is gated now
            return
        lacking, left = state.groups.lacking(item.key), len(item.units)
        used = {current.class_of[unit.number] for unit in item.units}
        marks: dict[int, Mark] = {number: every[number].mark() for number in used}
        taken: list[Unit] = []
        for unit in item.units:
            if len(taken) + left < lacking:
                break
            left -= 1
            number = current.class_of[unit.number]
            if self._stands(unit, current.groups[number]) and _seated(every[number], unit, item):
                taken.append(unit)
        if taken and len(taken) >= lacking:
            self._together.placed(item.key, [unit.pod for unit in item.units], {unit.pod.uid for unit in taken})
            if lacking > 1:
                gangs.append(Gang(item.number, item.key, [unit.number for unit in taken], lacking))
            return
        for unit in reversed(taken):
            self._forget(unit)
        for number in used:
            every[number].undo(marks[number])
        dry = [current.groups[number] for number in used if every[number].dry]
        asked = any(current.groups[number].lists or current.groups[number].unknown for number in used)
        unowned = len(self._registry.ownership.unowned)
        for group in dry:
            group.known.widen()
        if dry:
            self._together.retry(item.key)
        else:
            missing = "" if asked else _silent(current.missing, unowned)
            self._together.give_back(item.key, [unit.pod for unit in item.units], missing)

    def _forget(self, unit: Unit) -> None:
        """What was assumed in this turn is not any more; a nomination stands again."""
        self._state.cluster.forget(unit.pod.uid)
        if unit.pod.nominated_node:
            self._state.cluster.nominate(unit.pod)

    # --- units --------------------------------------------------------------------------------------------------

    def _alone(self, unit: Unit) -> bool:
        """Whether the pod goes without others: its group may have lost its minimum since it was offered."""
        key = unit.pod.group
        return not key or self._state.groups.standing(key)[0] is Standing.ALONE

    def _try_again(self, unit: Unit) -> None:
        """A lone pod that is not judged now; it may be gone."""
        self._state.queue.retry(unit.pod.uid, self._state.now, failed=False)
        if unit.pod.group:
            self._state.groups.touch(unit.pod.group, unit.pod.uid)

    def _stands(self, unit: Unit, group: Group) -> bool:
        """Whether the pod is still the one that was offered, and judged as it was."""
        state = self._state
        entry = state.queue.entries.get(unit.pod.uid)
        if entry is None or entry.place is not Place.IN_FLIGHT:
            return False
        before, pod, cluster = unit.pod, entry.pod, state.cluster
        if (before.pod_class, before.labels, before.relations) != (pod.pod_class, pod.labels, pod.relations):
            return False
        # of a plain unit: a pod assumed since may keep it away, then its nodes alone do not decide any more
        changing = group.guidance is None and bool(cluster.index.anti_affinity or cluster.nominated)
        return not changing or state.constraints.template(before) is None

    def _placement(self, choice: Choice) -> Placement:
        state, entry = self._state, self._state.queue.entries[choice.unit.pod.uid]
        pod = entry.pod  # the newest: its resourceVersion is a precondition of the Binding
        unit, waited_us = choice.unit.number, max(0, int((state.now - choice.unit.since) * 1e6))
        name, _, told = choice.policy.rpartition("@")
        policy, version = (name, int(told)) if name else (state.policy, choice.answer.policy_version)
        state.recent.remember(
            pod.uid,
            PastDecision(
                state.now, unit, choice.node, policy, version, choice.considered, pod.uid, pod.namespace, pod.name,
                entry.attempts + 1,
            ),
        )  # fmt: skip
        return Placement(
            unit, pod.uid, pod.namespace, pod.name, pod.resource_version, choice.node, list(choice.alternatives),
            policy, version, choice.answer.score, waited_us,
        )  # fmt: skip


def _seated(seats: Seats, unit: Unit, item: Together) -> bool:
    only = item.nodes.get(unit.pod.uid, "")
    return seats.take(unit, only) if isinstance(seats, GuidedSeats) else seats.take(unit)


def _silent(missing: int, unowned: int) -> str:
    """Who did not answer; "" if everybody did."""
    why = [f"{unowned} node(s) have no agent"] if unowned else []
    why += [f"{missing} agent(s) did not answer"] if missing else []
    return ", ".join(why)
