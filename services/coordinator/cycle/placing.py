"""From an ended cycle to placements: units are given the answered nodes, assumed, and the rest is handed back.

    lone units: class by class --assumed--> placements | given back
    with gangs: in queue order; all members of a gang --at least what it lacks--> assumed | all forgotten

A gang's members are tried in their order, one that does not fit is passed over; as soon as those that are left cannot
make up for it, the gang is over. What fits beyond the minimum goes along, and the rest waits with its old place.

A turn of the loop places so many units (``CoreSettings.units_per_turn``); of a larger gang the next turns place the
rest. Between them anything may happen to a member: it counts if it is as it was when the gang is done. What is assumed
meanwhile counts for everybody, and no plan names it before all of the gang is.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from services.coordinator.agents.registry import AgentRegistry
from services.coordinator.core.decisions import PastDecision
from services.coordinator.core.state import CoordinatorState
from services.coordinator.cycle.assign import Choice, GuidedSeats, Mark, PlainSeats, RejudgedSeats, Seats
from services.coordinator.cycle.candidates import Candidates
from services.coordinator.cycle.classes import OfferedClass
from services.coordinator.cycle.failures import FailureHandler
from services.coordinator.cycle.requeueing import Requeuer
from services.coordinator.cycle.taking import GroupUnits
from services.coordinator.groups.failures import GroupFailures
from shared.model.pod import Pod
from shared.model.units.unit import Unit
from shared.scheduling.cycle.scoring import norms_of
from shared.scheduling.places import ClusterEvent, Place
from shared.scheduling.pod_groups import GroupStanding
from shared.wire.messages import Gang, Placement

OPENED = 4
"""Placements that are put into a plan in the time that one takes until then."""


@dataclass(slots=True)
class Placements:
    """What is to be planned: ``each`` of them assumed, and which stand or fall together."""

    each: list[tuple[Placement, Pod]] = field(default_factory=list)
    gangs: list[Gang] = field(default_factory=list)
    lost: bool = False
    """Somebody who had got a node went before all had."""


Placing = Generator[int, None, Placements]
"""The placing of one cycle. Yields what each step was worth, in plain units that are given a node."""


@dataclass(slots=True)
class OpenCycle:
    """A cycle whose offers are out. ``waiting``: agents that were asked and have not answered, and which request;
    ``missing``: how many own nodes and were not asked, or gave no answer of use; ``order``: the units in queue order,
    ``together`` of them pod groups; ``asked``: all agents that were; ``stamp``: the node table's counter then;
    ``answered``: those that did, in step, with their view's epoch and moves then; ``placing``: once nobody is waited
    for, what goes on in each turn."""

    classes: dict[int, OfferedClass]
    class_of: dict[int, int]
    order: list[Unit | GroupUnits]
    together: int
    waiting: dict[str, int]
    missing: int
    started_at: float
    deadline: float
    first_offer: int
    policy: str
    """The active one as it was offered."""
    asked: frozenset[str]
    stamp: int
    answered: dict[str, tuple[int, int]] = field(default_factory=dict)
    placing: Placing | None = None

    @property
    def sole(self) -> bool:
        """Whether one agent decides alone about each of its classes."""
        return all(offered.sole for offered in self.classes.values())

    @property
    def compete(self) -> bool:
        """Whether several classes want nodes."""
        return sum(not offered.shadow for offered in self.classes.values()) > 1

    @property
    def uids(self) -> list[str]:
        """The pods it is about, as often as it names them."""
        return [unit.pod.uid for one in self.classes.values() if not one.shadow for unit in one.units]


class Placer:
    """Gives a cycle's units their nodes, in one term."""

    def __init__(
        self, state: CoordinatorState, registry: AgentRegistry, failures: FailureHandler, group_failures: GroupFailures,
        requeuer: Requeuer,
    ) -> None:  # fmt: skip
        self._state = state
        self._registry = registry
        self._failures = failures
        self._group_failures = group_failures
        self._requeuer = requeuer

    def place(self, current: OpenCycle) -> Placing:
        """Give the units of the cycle their nodes."""
        classes = {number: offered for number, offered in current.classes.items() if not offered.shadow}
        found = Placements()
        if not current.together:
            for offered in classes.values():
                seats = self._seats(offered, current)
                left: list[Unit] = []
                for unit in offered.units:
                    if not self._stands(unit, offered) or not self._alone(unit):
                        self._try_again(unit)
                    elif not seats.take(unit):
                        left.append(unit)
                    yield seats.work
                yield from self._end(seats, offered, left, current, found)
            yield len(found.each) // OPENED
            return self._there(found)
        every = {number: self._seats(offered, current) for number, offered in classes.items()}
        left_of: dict[int, list[Unit]] = {number: [] for number in classes}
        for item in current.order:
            if isinstance(item, GroupUnits):
                yield from self._take_together(item, current, every, found.gangs)
                continue
            number = current.class_of[item.number]
            if not self._stands(item, classes[number]) or not self._alone(item):
                self._try_again(item)
            elif not every[number].take(item):
                left_of[number].append(item)
            yield every[number].work
        for number, offered in classes.items():
            yield from self._end(every[number], offered, left_of[number], current, found)
        yield len(found.each) // OPENED
        return self._there(found)

    def _there(self, found: Placements) -> Placements:
        """Without those that went while the others were placed, and without the gangs that are short by that."""
        there = {placement.unit: pod for placement, pod in found.each if self._in_flight(pod.uid)}
        lost = found.lost or len(there) < len(found.each)
        if not lost:
            return found
        for placement, pod in found.each:
            if placement.unit not in there:
                self._let_go(pod)
        gangs = []
        for gang in found.gangs:
            members = [unit for unit in gang.members if unit in there]
            if len(members) >= gang.min_count:
                gangs.append(replace(gang, members=members))
                continue
            for unit in members:
                pod = there.pop(unit)
                self._let_go(pod)
                self._state.groups.take_back(pod.uid)
                self._state.queue.retry(pod.uid, self._state.now, failed=False)
        return Placements([one for one in found.each if one[0].unit in there], gangs)

    def _seats(self, offered: OfferedClass, current: OpenCycle) -> Seats:
        state, conflicts, pod_class, lists = self._state, self._failures.conflicts, offered.pod_class, offered.lists
        if offered.guidance is not None:
            found = Candidates(state, pod_class, offered.guidance.norms, lists, offered.guidance.scores)
            return GuidedSeats(state, conflicts, offered.guidance, found)
        if len(lists) > 1 and current.compete and not current.together:
            candidates = Candidates(state, pod_class, norms_of(state.feasibility, pod_class), lists)
            if candidates.policy is not None:
                return RejudgedSeats(state, conflicts, pod_class, candidates)
        return PlainSeats(state, conflicts, pod_class, lists)

    def _end(
        self, seats: Seats, offered: OfferedClass, left: list[Unit], current: OpenCycle, found: Placements
    ) -> Iterator[int]:
        """Placements of one class, and what becomes of its lone units that got none."""
        state, dealt = self._state, False
        if left and seats.dry and offered.guidance is None:
            offered.known.widen()
        if left or not offered.narrow:  # that one agent or few placed all does not unsay what another cycle found
            offered.known.for_all = bool(offered.known.own or (left and (offered.narrow or offered.known.for_all)))
        for choice in seats.choices():
            dealt = True
            pod = choice.unit.pod
            # Placing lasts over turns: a pod that has gone since holds room that nobody would give back.
            if self._in_flight(pod.uid):
                found.each.append((self._placement(choice), pod))
                self._requeuer.attempt_ended(pod.uid, choice.node)
            else:
                found.lost = True
                self._let_go(pod)
            yield 1
        for unit in left:
            if not self._same(unit):
                self._try_again(unit)
            elif offered.narrow or (
                seats.dry and dealt and not (offered.guidance is not None and state.constraints.waits(unit.pod))
            ):
                state.queue.retry(unit.pod.uid, state.now, failed=False)  # it was not lost: nobody was asked
            else:
                unowned = len(self._registry.ownership.unowned)
                self._failures.give_back(unit, offered, missing=current.missing, unowned=unowned)
            yield seats.work

    # --- members of a pod group ---------------------------------------------------------------------------------

    def _take_together(
        self, item: GroupUnits, current: OpenCycle, every: dict[int, Seats], gangs: list[Gang]
    ) -> Iterator[int]:
        """Place at least so many members as the group lacks by now, or none."""
        groups = self._state.groups
        if groups.standing(item.key)[0] is GroupStanding.GATED:
            self._group_failures.retry(item.key)  # its object went, or its minimum rose: it is gated now
            return
        lacking, left = groups.lacking(item.key), len(item.units)
        used = {current.class_of[unit.number] for unit in item.units}
        marks: dict[int, Mark] = {number: every[number].mark() for number in used}
        taken: list[Unit] = []
        for unit in item.units:
            # Whatever fits from here on, it would be given back: the group's answer is known.
            if len(taken) + left < lacking:
                break
            left -= 1
            number = current.class_of[unit.number]
            if self._stands(unit, current.classes[number]) and _seated(every[number], unit, item):
                taken.append(unit)
            yield every[number].work
        # turns may have passed: the group, and each member, as they are now
        gated, lacking = groups.standing(item.key)[0] is GroupStanding.GATED, groups.lacking(item.key)
        kept = [unit for unit in taken if self._same(unit)]
        if kept and len(kept) >= lacking and not gated:
            if len(kept) < len(taken):
                there = {unit.number for unit in kept}
                for unit in taken:
                    if unit.number not in there:
                        self._let_go(unit.pod)
            self._group_failures.placed(item.key, [unit.pod for unit in item.units], {unit.pod.uid for unit in kept})
            # One that is missing alone is a lone pod to the binder: the minimum is bound already (ADR 0021).
            if lacking > 1:
                gangs.append(Gang(item.number, item.key, [unit.number for unit in kept], lacking))
            yield len(kept) // OPENED
            return
        for unit in reversed(taken):
            self._let_go(unit.pod)
            yield 1
        for number in used:
            every[number].undo(marks[number])
        if gated:
            self._group_failures.retry(item.key)
            return
        dry = [current.classes[number] for number in used if every[number].dry]
        asked = any(current.classes[number].lists or current.classes[number].unknown for number in used)
        unowned = len(self._registry.ownership.unowned)
        for offered in dry:
            offered.known.widen()
        if dry or len(kept) < len(taken):
            self._group_failures.retry(item.key)
        else:
            missing = "" if asked else _silent(current.missing, unowned)
            yield from self._group_failures.give_back(item.key, [unit.pod for unit in item.units], missing)

    def _let_go(self, pod: Pod) -> None:
        """What was assumed by this cycle is not any more; a nomination stands again."""
        state, uid = self._state, pod.uid
        account = state.cache.accounts.get(uid)
        if account is None or account.assumed_at is None:
            return  # it is gone, or bound by somebody else
        state.cluster.forget(uid)
        self._requeuer.node_changed(account.node_name, ClusterEvent.POD_DELETED)  # others were judged beside it
        if uid in state.queue.entries and pod.nominated_node:
            state.cluster.nominate(pod)

    # --- units --------------------------------------------------------------------------------------------------

    def _alone(self, unit: Unit) -> bool:
        """Whether the pod goes without others: its group may have lost its minimum since it was offered."""
        key = unit.pod.group
        return not key or self._state.groups.standing(key)[0] is GroupStanding.ALONE

    def _try_again(self, unit: Unit) -> None:
        """A lone pod that is not judged now; it may be gone."""
        self._state.queue.retry(unit.pod.uid, self._state.now, failed=False)
        if unit.pod.group:
            self._state.groups.touch(unit.pod.group, unit.pod.uid)

    def _in_flight(self, uid: str) -> bool:
        """Whether the pod is still the cycle's to place."""
        entry = self._state.queue.entries.get(uid)
        return entry is not None and entry.place is Place.IN_FLIGHT

    def _same(self, unit: Unit) -> bool:
        """Whether the pod is still the one that was offered."""
        entry = self._state.queue.entries.get(unit.pod.uid)
        if entry is None or entry.place is not Place.IN_FLIGHT:
            return False
        before, pod = unit.pod, entry.pod
        if before is pod:
            return True
        return (before.pod_class, before.labels, before.relations) == (pod.pod_class, pod.labels, pod.relations)

    def _stands(self, unit: Unit, offered: OfferedClass) -> bool:
        """Whether the pod is still the one that was offered, and judged as it was."""
        if not self._same(unit):
            return False
        # of a plain unit: a pod assumed since may keep it away, then its nodes alone do not decide any more
        state = self._state
        changing = offered.guidance is None and bool(state.cluster.index.anti_affinity or state.cluster.nominated)
        return not changing or state.constraints.template(unit.pod) is None

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
        others, shards = list(choice.alternatives), state.shards
        if shards.several:  # another binder's nodes are not this one's to try
            others = [node for node in others if shards.of(node) == shards.of(choice.node)]
        return Placement(
            unit, pod.uid, pod.namespace, pod.name, pod.resource_version, choice.node, others,
            policy, version, choice.answer.score, waited_us,
        )  # fmt: skip


def _seated(seats: Seats, unit: Unit, item: GroupUnits) -> bool:
    only = item.nodes.get(unit.pod.uid, "")
    return seats.take(unit, only) if isinstance(seats, GuidedSeats) else seats.take(unit)


def _silent(missing: int, unowned: int) -> str:
    """Who did not answer; "" if everybody did."""
    why = [f"{unowned} node(s) have no agent"] if unowned else []
    why += [f"{missing} agent(s) did not answer"] if missing else []
    return ", ".join(why)
