"""Whom to evict, over the whole cluster, so that a gang reaches its minimum: one decision for all its members.

Semantics: KEP-5710. What may leave is a pod, or a group as a whole where that is preempted whole (``victim_unit``); who
is as important as the group, or opted out, stays. First members go where there is room as it is. For those still
missing units leave in steps, each step together with those before it, until the minimum fits:

    who leaves already; who breaks no budget before who does; of those the lowest priority first; of one priority pods,
    and members of gangs beyond their minimum, before gangs are broken; gangs one after the other, the youngest first

Then everybody who is not in the way stays after all, the most important first, and last who leaves already. Victims are
fewest in that sense, not in number. Work comes in parts (``search_group`` yields what each was), so that a turn can end
between two.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence

import numpy as np

from shared.model.constraints import fitted
from shared.model.pod import Pod
from shared.model.resources import PODS
from shared.model.units.pod_group import MAX_MEMBERS, PodGroup
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.groups.placing import orders, runs
from shared.scheduling.groups.steps import ABOVE_ALL, LOOKED_UP, GroupPreemption, LeavingStep, LeavingSteps, standing
from shared.scheduling.groups.topology import domains
from shared.scheduling.groups.trial import Trial
from shared.scheduling.groups.tried_members import Template, TriedMembers
from shared.scheduling.preemption.preemption import NEVER, NO_CANDIDATE
from shared.scheduling.preemption.units import VictimUnit, preempting_priority, victim_units
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.node_table import BoolArray, IntArray
from shared.scheduling.state.room.removable import FloatArray

ROWS_AT_ONCE = 64
"""Nodes whose pods are looked at in one part of the work."""

FEWEST_ROWS = 128
"""Nodes from which victims are taken: at least so many where there are, and twice what the missing members need."""

FIRST_ROWS = 16
"""Nodes that are looked at before so many: they do where all who would leave are as little important as anybody is."""

DOMAINS_TRIED = 8

NOMINATED_PRICE = -1.0
"""Of nodes that members are nominated to already: below all others, so that a new leader goes on where one ended."""

Work = Generator[int, None, "GroupPreemption | None"]


def search_group(
    cluster: ClusterState,
    feasibility: FeasibilityCache,
    group: PodGroup,
    members: Sequence[Pod],
    bound: Sequence[Pod] = (),
    *,
    may_evict: Callable[[Pod], bool] = lambda pod: pod.preemptible,
    leaving: Callable[[Pod], bool] = lambda _: False,
    spoken_for: Callable[[Pod], bool] = lambda _: False,
    ran: Callable[[str], int] = lambda _: 0,
    strict: bool = False,
    patient: bool = False,
) -> Generator[int, None, GroupPreemption]:
    """The search; nothing is changed. It yields its work after each part, and reads the cluster as it is then: what it
    returns is to be checked again (``still_helps``). ``leaving``: who leaves for somebody already; ``spoken_for``: and
    whether the room is kept for that one; ``ran``: how many members of a group count that have ended. ``strict``: no
    budget may be broken. ``patient``: nobody will be asked to leave: whoever ends by itself is waited for, also who is
    as important as the group."""
    hunt = _Hunt(cluster, feasibility, group, members, bound, patient)
    hunt.may_evict = lambda pod: pod.group != group.key and may_evict(pod) and (pod.ends or not patient)
    hunt.leaving, hunt.spoken_for, hunt.ran = leaving, spoken_for, ran
    hunt.strict = strict and not patient
    return hunt.search()


def still_helps(
    cluster: ClusterState,
    feasibility: FeasibilityCache,
    group: PodGroup,
    members: Sequence[Pod],
    found: GroupPreemption,
    *,
    patient: bool = False,
) -> bool:
    """Whether, once the victims that still stand are gone, every member still fits where it is to go; and whether they
    are still less important than the group (``patient``: or as important)."""
    there = [pod for pod in members if pod.uid in found.nodes]
    if len(there) < len(found.nodes):
        return False
    tried = TriedMembers(cluster, there)
    trial = Trial.of(tried, feasibility)
    below = preempting_priority(group, members) + patient
    for victim in found.victims:
        pod = cluster.index.get(victim.uid)
        if pod is not None:
            if pod.priority >= below or not pod.preemptible or (patient and not pod.ends):
                return False
            trial.leave(standing(cluster, (pod,)))
    for pod in there:
        row = cluster.table.row_of.get(found.nodes[pod.uid])
        template = tried.template_of[pod.uid]
        if row is None or template.rejection is not None or not trial.takes(template, row):
            return False
        trial.put(pod, row)
    return True


def places_to_empty(
    cluster: ClusterState,
    feasibility: FeasibilityCache,
    group: PodGroup,
    members: Sequence[Pod],
    bound: Sequence[Pod] = (),
) -> list[BoolArray | None]:
    """``[rows]`` each: nodes among which all members could be, whoever would have to leave there, the most promising
    first; None: all nodes."""
    hunt = _Hunt(cluster, feasibility, group, members, bound, patient=False)
    hunt.below = ABOVE_ALL
    return list(hunt.places(Trial.of(TriedMembers(cluster, members), feasibility)))


class _Hunt:
    """One search. ``needed``: members still missing at the minimum."""

    def __init__(
        self,
        cluster: ClusterState,
        feasibility: FeasibilityCache,
        group: PodGroup,
        members: Sequence[Pod],
        bound: Sequence[Pod],
        patient: bool,
    ) -> None:
        self.cluster = cluster
        self.feasibility = feasibility
        self.group = group
        self.members = members
        self.bound = bound
        self.needed = max(1, group.min_count - len(bound))
        self.below = preempting_priority(group, members) + patient
        self.patient = patient
        self.may_evict: Callable[[Pod], bool] = lambda pod: pod.preemptible
        self.leaving: Callable[[Pod], bool] = lambda _: False
        self.spoken_for: Callable[[Pod], bool] = lambda _: False
        self.ran: Callable[[str], int] = lambda _: 0
        self.strict = False

    def search(self) -> Generator[int, None, GroupPreemption]:
        """The whole search."""
        never = self.group.never_preempts or all(pod.never_preempts for pod in self.members)
        if never and not self.patient:
            return GroupPreemption(reason=NEVER)
        least = min(self.cluster.index.priorities, default=self.below)
        if least >= self.below or len(self.members) < self.needed:
            return GroupPreemption(reason=NO_CANDIDATE)
        tried = TriedMembers(self.cluster, self.members)
        base = Trial.of(tried, self.feasibility)
        yield base.work
        for allowed in self.places(base):
            found = yield from self._within(base, allowed)
            if found is not None:
                return found
        return GroupPreemption(reason=NO_CANDIDATE)

    # --- where --------------------------------------------------------------------------------------------------

    def places(self, base: Trial) -> Iterable[BoolArray | None]:
        """The nodes among which all members are to be, the most promising first; None: all."""
        topology = self.group.topology
        if topology is None:
            return [None]
        accounts = self.cluster.cache.accounts
        occupied = (accounts[pod.uid].node_name for pod in self.bound if pod.uid in accounts)
        offered = domains(self.cluster, topology.key, occupied)
        templates = base.tried.templates
        now = np.sum([offered.sums(self._most(base, template)) for template in templates], axis=0)
        then = np.sum([offered.sums(self._most_emptied(base, template)) for template in templates], axis=0)
        order = [at for at in np.lexsort((then, -now)).tolist() if then[at] >= self.needed][:DOMAINS_TRIED]
        found: list[BoolArray | None] = [offered.mask(at) for at in order]
        return found if topology.required else [*found, None]

    def _most(self, base: Trial, template: Template) -> IntArray:
        """``[rows]``: how many of the template fit as things stand."""
        rows = np.flatnonzero(base.mask(template))
        most: IntArray = np.zeros(self.cluster.table.rows, np.int64)
        most[rows] = base.places(template, rows)
        return most

    def _most_emptied(self, base: Trial, template: Template) -> IntArray:
        """``[rows]``: how many of the template would fit if every pod of lower priority left, beside pods that members
        must yield to: never too few."""
        count, removable = self.cluster.table.rows, self.cluster.index.removable
        pod_class = template.pod.pod_class
        most = np.full(count, MAX_MEMBERS, np.int64)
        for name, amount in ((PODS, 1), *fitted(pod_class)):
            if name in pod_class.by_class:
                continue  # never too few
            free = base.free(name)
            if free is None:
                return np.zeros(count, np.int64)
            most = np.minimum(most, (free + removable.below(self.below, name)) // amount)
        if pod_class.host_ports:
            most = np.minimum(most, 1)
        static = self.feasibility.static_verdict(pod_class).mask
        base.work += count
        return np.where(static & (most > 0), most, 0)

    # --- who ----------------------------------------------------------------------------------------------------

    def _within(self, base: Trial, allowed: BoolArray | None) -> Work:
        """The victims among these nodes; None where all that may leave do not make room."""
        now = base.fork()
        self._place(now, self.members, allowed)
        rows, few, price = self._rows(base, allowed, self.needed - len(now.nodes))
        yield now.work
        if len(now.nodes) >= self.needed:
            return GroupPreemption(dict(now.nodes))
        now.prefer(price)
        for some in (rows[:few], rows) if few < len(rows) and not self._leaves_room(rows[few:]) else (rows,):
            found = yield from self._from(base, now, price, some, allowed)
            if found is not None and (len(some) == len(rows) or self._least(found)):
                return found
        return None

    def _leaves_room(self, rows: Sequence[int]) -> bool:
        """Whether somebody leaves there whose room is kept for nobody, as after a change of leader."""
        names, index = self.cluster.table.names, self.cluster.index
        return any(pod.preempted and not self.spoken_for(pod) for row in rows for pod in index.pods_on(names[row]))

    def _least(self, found: GroupPreemption) -> bool:
        """Whether nobody could be spared elsewhere: nothing breaks, and no victim is more important than anybody is."""
        least = min(self.cluster.index.priorities, default=self.below)
        return not (found.violating or found.broken) and all(pod.priority <= least for pod in found.victims)

    def _from(self, base: Trial, now: Trial, price: FloatArray, rows: Sequence[int], allowed: BoolArray | None) -> Work:
        """The victims on these rows. ``now``: with those placed who need nobody to leave."""
        units: list[VictimUnit] = []
        seen: set[str] = set()
        for start in range(0, len(rows), ROWS_AT_ONCE):
            part = rows[start : start + ROWS_AT_ONCE]
            names = [self.cluster.table.names[row] for row in part]
            pods = (pod for name in names for pod in self.cluster.index.pods_on(name) if pod.uid not in seen)
            more = victim_units(self.cluster, pods, self.below, self.may_evict)
            seen.update(pod.uid for unit in more for pod in unit.pods)
            units += more
            yield len(part) + LOOKED_UP * len(more)
        leave = LeavingSteps(self.cluster, self.leaving, self.ran, strict=self.strict)
        steps, violating = leave.of(units)
        if not steps:
            return None
        for begun, order in self._beginnings(base, now, price, steps, allowed):
            whole = self._after(begun, steps, order, allowed)
            yield whole.work
            if len(whole.nodes) < self.needed:
                continue
            enough, too_few = len(steps), 0
            while enough - too_few > 1:
                middle = (enough + too_few) // 2
                trial = self._after(begun, steps[:middle], order, allowed)
                yield trial.work
                if len(trial.nodes) >= self.needed:
                    enough, whole = middle, trial
                else:
                    too_few = middle
            return (yield from leave.spared(whole, steps[:enough], violating))
        return None

    def _rows(self, base: Trial, allowed: BoolArray | None, missing: int) -> tuple[list[int], int, FloatArray]:
        """Nodes to take victims from, the cheapest first; how many of them to look at first; and what each costs
        ``[rows]``. Either way enough for twice the missing."""
        templates = base.tried.templates
        most = np.max([self._most_emptied(base, template) for template in templates], axis=0)
        if allowed is not None:
            most = np.where(allowed, most, 0)
        largest = max(templates, key=lambda template: template.size)
        price = np.array(self.cluster.index.removable.least_price(largest.pod), np.float64)
        for pod in self.members:
            row = self.cluster.table.row_of.get(pod.nominated_node) if pod.nominated_node else None
            if row is not None:
                price[row] = NOMINATED_PRICE
        rows = np.flatnonzero((most > 0) & (self.cluster.index.removable.below(self.below, PODS) > 0))
        rows = rows[np.argsort(price[rows], kind="stable")]
        if base.tried.ruled:
            return rows.tolist(), len(rows), price
        enough = int(np.searchsorted(np.cumsum(most[rows]), 2 * max(1, missing))) + 1
        few = len(rows) if self.patient else max(FIRST_ROWS, enough)
        return rows[: max(FEWEST_ROWS, enough)].tolist(), few, price

    def _beginnings(
        self, base: Trial, now: Trial, price: FloatArray, steps: list[LeavingStep], allowed: BoolArray | None
    ) -> Iterable[tuple[Trial, Sequence[Pod]]]:
        """What to go on from, and in which order: first with those placed who need nobody to leave, then from none."""
        yield now, [pod for pod in self.members if pod.uid not in now.nodes]
        fresh = base.fork()
        fresh.prefer(price)
        yield fresh, self.members
        if len(base.tried.templates) > 1:
            emptied = self._after(fresh, steps, (), allowed)
            for order in orders(base.tried, emptied, self.needed, allowed):
                yield fresh, order

    def _after(
        self, start: Trial, steps: Iterable[LeavingStep], order: Sequence[Pod], allowed: BoolArray | None
    ) -> Trial:
        """What fits once the units of these steps have left."""
        trial = start.fork()
        trial.leave(gone for step in steps for unit in step.units for gone in standing(self.cluster, unit.pods))
        self._place(trial, order, allowed)
        return trial

    def _place(self, trial: Trial, order: Sequence[Pod], allowed: BoolArray | None) -> None:
        """Members in order, no more than make the minimum."""
        for template, pods in runs(order, trial.tried):
            trial.place(template, pods[: self.needed - len(trial.nodes)], allowed)
