"""Takes units off the queue for one cycle: by class, with their PreFilter constraints, until there are enough.

What does not fit into one offer waits for the next. Units that no node takes by the coordinator's own accounting are
told so at once, as many as one turn has time for: nobody is asked about them. Of a gang that is so for all members
together: none is offered unless its minimum may be reached.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from services.coordinator.core.state import CoordinatorState
from services.coordinator.cycle.classes import MAX_CLASS_BYTES, MAX_ROUND_BYTES, Classes, KnownClass, OfferedClass
from services.coordinator.cycle.constraints import unnominated
from services.coordinator.cycle.failures import FailureHandler
from services.coordinator.groups.failures import Examination, GroupFailures, GroupOutlook
from services.coordinator.reservations.seats import ReservedSeats
from services.coordinator.rollout.variants import Variants
from shared.model.constraints import PodClass
from shared.model.pod import Pod
from shared.model.units.unit import Unit
from shared.scheduling.state.node_table import BoolArray
from shared.wire.messages import MAX_UNITS, Gang, Placement

WORK_IN_FULL = 10
"""Of the turn's work, of which a unit that no node takes costs one: what the first of a class that no node takes costs,
or one that more than the nodes themselves decides about."""


@dataclass(slots=True)
class GroupUnits:
    """Units that are placed together: members of pod group ``key``, in the order in which they are tried, of which so
    many as the group lacks must be. ``number`` is that of the whole; ``nodes``: by uid where a member is to go, and
    nowhere else."""

    key: str
    number: int
    units: list[Unit]
    nodes: Mapping[str, str]


def _never() -> bool:
    return False


@dataclass(slots=True)
class TakenUnits:
    """What one cycle asks about. ``class_of`` by unit number; ``order``: the units in queue order, where some of them
    are placed together."""

    classes: dict[int, OfferedClass] = field(default_factory=dict)
    class_of: dict[int, int] = field(default_factory=dict)
    order: list[Unit | GroupUnits] = field(default_factory=list)
    together: int = 0
    """How many of ``order`` are placed together."""
    size_bytes: int = 0
    work: int = 0
    nowhere: dict[Hashable, bool] = field(default_factory=dict)
    cut_short: bool = False
    """The turn's work was used up by units that no node takes: there is more to do at once."""
    sole: Callable[[PodClass], bool] | None = None
    """Where only units are taken about which one agent may decide alone: whether one may about a class."""
    apart: Callable[[KnownClass, PodClass], bool] | None = None
    """Whether a class whose nodes alone decide must have a cycle of its own; None: none must."""
    alone: Callable[[], bool] = _never
    """Whether such a class is in it."""
    held_up: bool = False
    """The next unit must be asked of all: nobody after it is taken."""
    seated: list[tuple[Placement, Pod]] = field(default_factory=list)
    """Units that are assumed in room that was kept for them: nobody is asked about those."""
    seated_gangs: list[Gang] = field(default_factory=list)
    """Which of those stand or fall together."""


@dataclass(slots=True)
class _Judged:
    """A pod's class in this cycle."""

    known: KnownClass
    template: Hashable | None
    candidate: bool
    looks: bool
    rows: BoolArray | None = None
    """The only nodes that may be answered with; None: all that the guidance leaves."""

    @property
    def guided(self) -> bool:
        """Whether more than the nodes themselves may decide."""
        return self.template is not None


class Taker:
    """Takes units for cycles, in one term. ``units``: the last unit number given."""

    def __init__(
        self, state: CoordinatorState, variants: Variants, failures: FailureHandler, group_failures: GroupFailures
    ) -> None:
        self._state = state
        self._variants = variants
        self._failures = failures
        self._group_failures = group_failures
        self.reserved = ReservedSeats(state, failures.conflicts)
        self.classes = Classes()
        self.examination: Examination | None = None
        """Of a group that was taken, and is not judged yet."""
        self.units = 0

    def number(self) -> int:
        """A number for one more unit."""
        self.units += 1
        return self.units

    def take(
        self, sole: Callable[[PodClass], bool] | None = None,
        apart: Callable[[KnownClass, PodClass], bool] | None = None,
    ) -> TakenUnits:  # fmt: skip
        """The units of the next cycle. ``sole``, ``apart``: as ``TakenUnits``'s."""
        state, taken = self._state, TakenUnits(sole=sole, apart=apart)
        if self.examination is not None and not self._go_on(self.examination, taken):
            return taken
        while len(taken.class_of) < state.settings.batch_units:
            if taken.work >= state.work:
                taken.cut_short = state.queue.has_active()
                break
            if not (pods := state.queue.pop_unit(state.now)):
                taken.cut_short = state.queues.cut_short and state.queues.more
                break
            if state.queue.entries[pods[0].uid].group is None:
                more = self._take_alone(pods[0], taken)
            # It must be asked of all: nobody behind it goes before it, or it would starve in a backlog (ADR 0045).
            elif sole is not None:
                taken.held_up = True
                self._group_failures.retry(pods[0].group)
                break
            else:
                more = self._take_together(pods, taken)
            if not more:
                break
        return taken

    def give_up(self) -> None:
        """The group whose examination is not over is tried later."""
        if self.examination is not None:
            self.examination.end()
            self._group_failures.retry(self.examination.key)
            self.examination = None

    def _go_on(self, examination: Examination, taken: TakenUnits) -> bool:
        """With a group that an earlier turn took."""
        if examination.stands:
            return self._take_together(list(examination.pods), taken)
        self.give_up()  # the next turn looks at the group first: it may have lost its minimum
        taken.cut_short = True
        return False

    def _take_alone(self, pod: Pod, taken: TakenUnits) -> bool:
        """False: it waits for the next offer, this one is full."""
        state, constraints = self._state, self._state.constraints
        self.units += 1
        unit = Unit(self.units, pod, state.queue.entries[pod.uid].able_since)
        template = constraints.template(pod)
        if state.cluster.reserved.standing:
            seated, work = self.reserved.seat(unit, template)
            taken.work += work
            if seated is not None:
                taken.seated.append((seated, pod))
                return True
        judged = self._judge(pod, template)
        offered = taken.classes.get(judged.known.id)
        if offered is not None and not taken.together:  # its class is in the offer: a node may take it
            offered.units.append(unit)
            taken.class_of[unit.number] = judged.known.id
            taken.order.append(unit)
            return True
        if judged.known.size_bytes > MAX_CLASS_BYTES:
            taken.work += 1
            self._failures.too_large(pod, judged.known.size_bytes)
            return True
        if taken.sole is not None and (judged.guided or judged.known.for_all):
            return self._hold_up(pod, taken)
        key = template if judged.guided else pod.pod_class
        if key not in taken.nowhere:
            taken.nowhere[key] = constraints.fits_nowhere(pod, guided=judged.guided)
            taken.work += WORK_IN_FULL if taken.nowhere[key] or judged.guided else 0
        # Nobody is asked: parked on the verdict of this moment, no event is lost between verdict and sleep (ADR 0017).
        if taken.nowhere[key]:
            taken.work += 1
            self._failures.park(unit, guided=judged.guided)
            return True
        if taken.sole is not None and not taken.sole(pod.pod_class):
            return self._hold_up(pod, taken)
        apart = _never if taken.apart is None or judged.guided else partial(taken.apart, judged.known, pod.pod_class)
        if taken.classes and (apart() or taken.alone()):  # of a lone pod it is not asked: it goes through all agents
            state.queue.retry(pod.uid, state.now, failed=False)
            return False
        taken.alone = apart
        # Back to its place without an attempt counted: it was not tried.
        if not self._add(unit, judged, taken):
            state.queue.retry(pod.uid, state.now, failed=False)
            return False
        taken.order.append(unit)
        return True

    def _hold_up(self, pod: Pod, taken: TakenUnits) -> bool:
        """It must be asked of all."""
        taken.held_up = True
        self._state.queue.retry(pod.uid, self._state.now, failed=False)
        return False

    def _take_together(self, pods: list[Pod], taken: TakenUnits) -> bool:
        """As ``_take_alone``, of members of a pod group: all of them are in one offer."""
        state, key = self._state, pods[0].group
        if self.examination is None and state.cluster.reserved.standing and self._seat_together(key, pods, taken):
            return True
        examination = self.examination or self._group_failures.examine(key, pods)
        outlook = examination.go_on(state.work - taken.work)
        taken.work += examination.work
        if outlook is None:
            self.examination, taken.cut_short = examination, True
            return False
        self.examination = None
        if outlook.short is not None:
            self._group_failures.park(key, pods, outlook.short)
            return True
        pods = list(outlook.pods)
        if outlook.domain is not None:
            state.domains.chosen[key] = outlook.domain
        judged = self._judge_members(pods, outlook)
        known = {one.known.id: one.known for one in judged}
        size_bytes = sum(one.size_bytes for number, one in known.items() if number not in taken.classes)
        if max(one.size_bytes for one in known.values()) > MAX_CLASS_BYTES or (
            sum(one.size_bytes for one in known.values()) > MAX_ROUND_BYTES
        ):
            taken.work += 1
            self._group_failures.too_large(key, pods, size_bytes)
            return True
        full = taken.size_bytes + size_bytes > MAX_ROUND_BYTES or len(taken.class_of) + len(pods) > MAX_UNITS
        # Only beside others: a group that fills an offer by itself goes alone, or it would never go.
        if full and taken.class_of:
            self._group_failures.retry(key)
            return False
        entries = state.queue.entries
        units = [Unit(self.number(), pod, entries[pod.uid].able_since) for pod in pods]
        for unit, one in zip(units, judged, strict=True):
            self._add(unit, one, taken)
        taken.order.append(GroupUnits(key, self.number(), units, outlook.nodes))
        taken.together += 1
        return True

    def _seat_together(self, key: str, pods: list[Pod], taken: TakenUnits) -> bool:
        """Whether as many members as the group lacks go into room that is kept for them; the others wait for those."""
        entries, lacking = self._state.queue.entries, self._state.groups.lacking(key)
        if len(taken.seated) + len(pods) > MAX_UNITS:
            return False
        units = [Unit(self.number(), pod, entries[pod.uid].able_since) for pod in pods]
        seated, work = self.reserved.seat_together(key, units)
        taken.work += work
        if not seated:
            return False
        pod_of = {unit.number: unit.pod for unit in units}
        taken.seated += [(placement, pod_of[placement.unit]) for placement in seated]
        if lacking > 1:
            taken.seated_gangs.append(Gang(self.number(), key, [placement.unit for placement in seated], lacking))
        self._group_failures.placed(key, pods, {placement.uid for placement in seated})
        return True

    def _judge(self, pod: Pod, template: Hashable | None) -> _Judged:
        variants = self._variants
        candidate = variants.has_candidate and variants.takes(pod)
        looks = variants.looks[candidate]
        if pod.pod_class.profile is not None:
            looks = variants.looks_at(pod, candidate=candidate)
        key = variants.key(pod, template, candidate=candidate) if candidate or looks else template
        return _Judged(self.classes.of(pod.pod_class, key), template, candidate, looks)

    def _judge_members(self, pods: Sequence[Pod], outlook: GroupOutlook) -> list[_Judged]:
        """Each member's class; of copies once for all, where no policy tells them apart."""
        variants = self._variants
        if outlook.alike and not variants.has_candidate and not variants.looks[False]:
            return [self._judge(pods[0], None)] * len(pods)
        if not outlook.nodes:
            return [self._judge(pod, self._state.constraints.template(pod)) for pod in pods]
        table = self._state.cache.table
        rows: BoolArray = np.zeros(table.rows, np.bool_)
        rows[[table.row_of[name] for name in outlook.nodes.values() if name in table.row_of]] = True
        return [self._judge_seated(pod, rows) for pod in pods]

    def _judge_seated(self, pod: Pod, rows: BoolArray) -> _Judged:
        """A member that is to go to one of certain nodes: a class of its group's own."""
        pod = unnominated(pod)
        template = self._state.constraints.template(pod)
        judged = self._judge(pod, (pod.group, template or pod.pod_class))
        judged.rows = rows
        return judged

    def _add(self, unit: Unit, judged: _Judged, taken: TakenUnits) -> bool:
        """Among the units of its class; False: the offer has no room for the class."""
        pod, known = unit.pod, judged.known
        offered = taken.classes.get(known.id)
        if offered is None:
            if taken.size_bytes + known.size_bytes > MAX_ROUND_BYTES:
                return False
            taken.size_bytes += known.size_bytes
            free = unnominated(pod) if judged.rows is not None else pod
            guidance = self._state.constraints.judge(free) if judged.guided else None
            if guidance is not None and judged.rows is not None:
                # where each goes was found for it there: nominated nowhere it would yield to those that come after it
                guidance = replace(guidance, mask=judged.rows)
            offered = taken.classes[known.id] = OfferedClass(
                pod.pod_class, known, guidance=guidance, candidate=judged.candidate,
                workload=pod.workload if judged.looks else "", template=judged.template,
                seated=judged.rows is not None,
            )  # fmt: skip
        offered.units.append(unit)
        taken.class_of[unit.number] = known.id
        return True
