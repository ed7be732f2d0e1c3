"""What a leader knows of each queue, gathered for people, and the answer to "when would this job start?".

    QueueTree (shared/scheduling/queues) --queue_facts--> QueueFacts   --simulated--> Simulated, on a copy, in parts

Pure: it reads the core and changes nothing. One queue costs as its own units; the list as queues and the shapes held.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from services.coordinator.core.core import Core
from services.coordinator.inspect.pending import reason_of
from services.coordinator.inspect.queues import UNITS_SHOWN, QueueCounts, QueueFacts, UnitFacts
from services.coordinator.inspect.simulation import Displaced, Simulated, SimulatedJob, summary_of
from services.coordinator.inspect.waiting import waits_since
from services.coordinator.queues.status import pending_in, warnings_of
from shared.model.constraints import PodClass, Toleration
from shared.model.pod import Pod
from shared.model.units.pod_group import GroupSource, PodGroup, group_name
from shared.model.units.queue import QUEUE_LABEL, UnitOrder
from shared.scheduling.groups.placing import capacity as places_for
from shared.scheduling.places import Place
from shared.scheduling.queues.nodes import Charge, OrderKey, QueueLine, QueueNode, WaitingUnit
from shared.scheduling.queues.simulate import Parts, StartQuestion, simulation
from shared.scheduling.queues.tree import QueueTree
from shared.scheduling.reasons import of_limit


def tree_of(core: Core) -> QueueTree:
    """The queues as the leader accounts them."""
    return core.state.queues


def queue_names(core: Core) -> list[str]:
    """Each queue before those below it, siblings by name; without the root, which is no queue."""
    found: list[str] = []

    def follow(node: QueueNode) -> None:
        for name in sorted(node.children):
            found.append(name)
            follow(node.children[name])

    follow(tree_of(core).structure.root)
    return found


def queue_facts(core: Core, name: str, now: float, *, units: bool = False) -> QueueFacts | None:
    """One queue; None where there is none of that name. ``units``: with those that wait in it."""
    tree = tree_of(core)
    node = tree.structure.nodes.get(name) if name else None
    if node is None:
        return None
    held = [_held(line) for line in lines_below(node)]
    parked = [key for line in lines_below(node) for key in _parked(core, line.name)]
    return QueueFacts(
        queue=node.queue,
        path=path_of(node),
        used={resource: amount for resource, amount in node.used.items() if amount},
        past=dict(node.past),
        children=list(node.children),
        pods=sum(len(line.charges) for line in lines_below(node)),
        pending_units=pending_in(core.state, node),
        missing=name not in tree.queues,
        blocked_units=sum(held),
        parked_units=len(parked),
        parked_pods=sum(_pods(core, key) for key in parked),
        problem=node.problem,
        warnings=[message for _, message in warnings_of(node, tree)],
        pending=_waiting(core, node, now) if units else (),
    )


def _waiting(core: Core, node: QueueNode, now: float) -> list[UnitFacts]:
    """The queue's own units: those in turn, then those that are on their way or back off, those that no node takes,
    and pod groups that must not be tried yet. Costs as they, and as all that are set aside."""
    tree, queue, turns = tree_of(core), core.state.queue, core.state.queue.turns
    found = [_unit(core, unit.key, now, unit) for unit in first_in_turn(node.own, UNITS_SHOWN)]
    if turns is None:
        return found
    aside = {key: entry for name, key, entry in turns.aside() if name == node.name}
    gated = {key: None for key, entry in aside.items() if entry.place is Place.GATED}
    reserved = [key for key, unit in tree.reserved.items() if unit.line is node.own]
    keys = dict.fromkeys([*reserved, *(key for key in aside if key not in gated), *_parked(core, node.name), *gated])
    for key in islice(keys, UNITS_SHOWN - len(found)):
        unit = queue.groups.get(key) or queue.entries.get(key)
        if unit is not None:
            found.append(_unit(core, key, now, turns.waiting(unit), in_turn=False))
        elif key in aside:
            pod = aside[key].pod
            waiting = WaitingUnit(key, pod.namespace, node.name, pod.priority, 0, ())
            found.append(_unit(core, key, now, waiting, in_turn=False))
    return found


def _parked(core: Core, name: str) -> Iterable[str]:
    """Keys of the units that no node takes and that count against the queue itself."""
    turns = core.state.queue.turns
    return turns.parked.get(name, {}) if turns is not None else ()


def _pods(core: Core, key: str) -> int:
    """How many pods of the unit wait."""
    group = core.state.queue.groups.get(key)
    return 1 if group is None else len(group.members)


def queue_totals(core: Core) -> QueueCounts:
    """All queues at a glance. Costs as queues and the shapes that are held."""
    tree = tree_of(core)
    structure = tree.structure
    nodes = [node for name, node in structure.nodes.items() if name]
    return QueueCounts(
        total=len(tree.queues),
        waiting_units=turns.pending_in_all() if (turns := core.state.queue.turns) is not None else 0,
        blocked_units=sum(_held(node.own) for node in structure.nodes.values()),
        problems=sum(bool(node.problem or warnings_of(node, tree)) for node in nodes),
    )


def capacity_of(core: Core) -> Mapping[str, int]:
    """Of all nodes, by resource."""
    return tree_of(core).capacity


def queue_of(core: Core, namespace: str, labels: Mapping[str, str]) -> str:
    """Whose quota pods of this namespace and with these labels count against; "" is none."""
    return labels.get(QUEUE_LABEL) or tree_of(core).structure.bindings.get(namespace, "")


class QueuePlaces:
    """The place of each unit in its queue, counted once per queue and question."""

    def __init__(self, core: Core) -> None:
        self._tree = tree_of(core)
        self._known: dict[str, dict[str, int]] = {}

    def of(self, key: str) -> int | None:
        """1 goes next; None: the unit waits in no queue."""
        unit = self._tree.units.get(key)
        if unit is None:
            return None
        line = unit.line
        if line.name not in self._known:
            self._known[line.name] = {one.key: number for number, one in enumerate(in_turn(line), start=1)}
        return self._known[line.name].get(key)


def in_turn(line: QueueLine) -> list[WaitingUnit]:
    """The units of one queue in the order in which they go; where the order is by priority those that a quota holds
    back come last, since others pass them."""
    return sorted(line.units.values(), key=_turn_in(line))


def first_in_turn(line: QueueLine, most: int) -> list[WaitingUnit]:
    """So many of them, from the first on."""
    return heapq.nsmallest(most, line.units.values(), key=_turn_in(line))


def _turn_in(line: QueueLine) -> Callable[[WaitingUnit], tuple[bool, OrderKey]]:
    fifo = line.order is UnitOrder.FIFO
    return lambda unit: (not fifo and unit.shape in line.held, line.order_key(unit))


def lines_below(node: QueueNode) -> Iterator[QueueLine]:
    """The lines of a queue and of all below it."""
    yield node.own
    for child in node.children.values():
        yield from lines_below(child)


def path_of(node: QueueNode) -> list[str]:
    """The queue's parents from the top, and itself last."""
    path = [node.name]
    above = node.parent
    while above is not None and above.name:
        path.insert(0, above.name)
        above = above.parent
    return path


def simulated(core: Core, job: SimulatedJob, now: float) -> Parts[Simulated]:
    """When the job would start, as things stand; in parts. Costs as all units and pods of all queues."""
    state = core.state
    question = StartQuestion(job.namespace, job.queue, job.priority, job.asks)
    # a taint of a resource's name keeps nodes for pods that ask for it, and these tolerate it, or admission lets them
    tolerations = tuple(Toleration(name, "Exists") for name, _ in job.requests if "/" in name)
    pod_class = PodClass(requests=job.requests, tolerations=tolerations)
    pod = Pod("simulated", job.namespace, "simulated", "", pod_class, state.scheduler_name)
    fits = places_for(state.cluster, state.feasibility, pod, job.members)
    found = yield from simulation(tree_of(core), question, now=now, ends_at={})
    displaced = [_displaced(core, charge) for charge in found.victims]
    lets = _lets(core, found.queue, job)
    summary = summary_of(
        job, found.starts_in_s, fits=fits, lets=lets, ahead=found.ahead, displaced=len(displaced), reason=found.reason,
        never=found.never,
    )  # fmt: skip
    return Simulated(
        queue=found.queue, starts_in_s=found.starts_in_s, summary=summary, members=job.members,
        min_count=job.min_count, fits=fits, lets=lets, ahead=found.ahead, reason=found.reason, blocked=found.blocked,
        displaced=displaced,
    )  # fmt: skip


def _lets(core: Core, queue: str, job: SimulatedJob) -> int:
    """How many members the limits of the queue leave room for now."""
    tree = tree_of(core)
    node = tree.structure.nodes.get(queue)
    if node is None or not job.each:
        return job.members

    def held(members: int) -> bool:
        return tree.blocked(node.own, tuple((name, amount * members) for name, amount in job.each)) is not None

    return bisect_left(range(1, job.members + 1), x=True, key=held)


def _displaced(core: Core, charge: Charge) -> Displaced:
    pod, account = core.state.cluster.index.get(charge.uid), core.state.cache.accounts.get(charge.uid)
    return Displaced(
        pod=pod.key if pod is not None else charge.uid, node=account.node_name if account is not None else "",
        queue=charge.line.name if charge.line is not None else "", priority=charge.priority,
    )  # fmt: skip


def _held(line: QueueLine) -> int:
    """How many of its units a quota holds back; behind the first of a FIFO queue all are."""
    if line.order is UnitOrder.FIFO and line.fifo_head() is not None:
        return len(line.units)
    return sum(len(shape.units) for shape in line.held)


def _unit(core: Core, key: str, now: float, unit: WaitingUnit, *, in_turn: bool = True) -> UnitFacts:
    state, blocked = core.state, tree_of(core).held(key)
    members = state.groups.members.get(unit.key)
    uids = list(members.pending) if members is not None else [unit.key]
    entries = [entry for uid in uids if (entry := state.queue.entries.get(uid)) is not None]
    first = min(entries, key=lambda entry: (-entry.pod.priority, entry.arrival), default=None)
    group: PodGroup | None = state.groups.group(unit.key) if members is not None else None
    alone = first.pod.name if first is not None else unit.key
    return UnitFacts(
        key=unit.key,
        namespace=unit.namespace,
        name=group_name(unit.key) if members is not None else alone,
        source=_source(unit.key, group) if members is not None else "pod",
        priority=unit.priority,
        members=len(uids),
        waiting_s=now - min((waits_since(state, entry.pod, entry.first_seen) for entry in entries), default=now),
        requests=dict(unit.amounts),
        blocked=blocked.text() if blocked is not None else "",
        reason=of_limit(blocked.problem) if blocked is not None else reason_of(core, first) if first else "",
        place=first.place.value if first is not None else "",
        in_turn=in_turn,
    )


def _source(key: str, group: PodGroup | None) -> str:
    return group.source.value if group is not None else key.partition(":")[0] or GroupSource.NATIVE.value
