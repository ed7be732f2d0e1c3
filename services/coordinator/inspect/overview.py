"""What a leader shows of itself: queue, units in flight, the figures of an overview, the last decisions.

Pure: it reads the core and changes nothing. Each function looks at what it is asked for and no more, so that a screen
of a hundred rows costs a hundred rows. Times come as seconds of the core's clock; ``wall_of`` makes RFC 3339 of them.
It shows no label, image or environment of any pod. Nodes: ``nodes.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

from msgspec import Struct, field
from msgspec.structs import asdict

from services.coordinator.binding.plans import PodOnItsWay
from services.coordinator.core.core import Core
from services.coordinator.core.decisions import Considered, PastDecision
from services.coordinator.core.state import GatedPod
from services.coordinator.inspect.explain import retry_in_s
from services.coordinator.inspect.nodes import ResourceTotal, cordoned, resource_totals
from services.coordinator.inspect.pending import class_name, reason_of
from services.coordinator.inspect.throughput import Quantiles, Rates, Throughput
from services.coordinator.inspect.waiting import waits_since
from shared.kube.label_selectors import ParsedSelector
from shared.model.pod import Pod
from shared.scheduling.devices.dynamic_resources import NAME as DYNAMIC_RESOURCES
from shared.scheduling.gates import NAME as SCHEDULING_GATES
from shared.scheduling.places import Place
from shared.scheduling.queue_entries import Entry
from shared.scheduling.reasons import GATED

WallOf = Callable[[float], str]
"""Seconds of the core's clock to RFC 3339 in UTC."""


NOTHING_YET = Quantiles(0.0, 0.0)

MOST_JUDGED = 5000
"""Pending pods that one page looks at."""


class QueuedPod(Struct, frozen=True, kw_only=True):
    """One pending pod. ``plugins``: who rejected it; ``retry_in_s`` None: it waits for its turn, or for an event.
    ``reason``, ``class``: the group it is of in ``/v1/pending``."""

    namespace: str
    name: str
    uid: str
    place: str
    priority: int
    attempts: int
    waiting_s: float
    retry_in_s: float | None
    plugins: list[str]
    nominated_node: str
    reason: str
    class_: str = field(name="class")


class UnitPod(Struct, frozen=True, kw_only=True):
    """One pod of a unit; ``node`` "": not chosen yet."""

    namespace: str
    name: str
    uid: str
    node: str


class UnitInFlight(Struct, frozen=True, kw_only=True):
    """What is on its way. ``state``: offered to the agents, planned (at the binder), placed (the binder has answered,
    the API server has not shown it yet), or intent (of an earlier leader, to be finished or withdrawn)."""

    key: str
    pods: list[UnitPod]
    min_member: int
    state: str
    since: str


class DecisionShown(Struct, frozen=True, kw_only=True):
    """One placement, with the nodes that were considered, the chosen one first. ``evicted``: who left for it."""

    time: str
    namespace: str
    name: str
    uid: str
    node: str
    policy: str
    attempt: int
    considered: tuple[Considered, ...]
    id: str = ""
    evicted: list[str] = []


class Queue(Struct, frozen=True, kw_only=True):
    """Pending pods by place; ``gated``: those that wait for their scheduling gates or their pod group; ``unsupported``:
    those that are not tried at all, since they cannot be read or ask for what is not supported."""

    active: int
    backoff: int
    unschedulable: int
    in_flight: int
    gated: int = 0
    unsupported: int = 0


class Nodes(Struct, frozen=True, kw_only=True):
    """How many there are; ``unowned``: no agent decides for them; ``pressure``: short of memory, disk or pids."""

    total: int
    drained: int
    unowned: int
    cordoned: int
    not_ready: int
    pressure: int


class Overview(Struct, frozen=True, kw_only=True):
    """The figures of a screen. ``*_ms``: of the last pods and scheduling cycles; totals are of this term."""

    queue: Queue
    bound: int
    running: int
    rates: Rates
    latency_ms: Quantiles
    round_ms: Quantiles
    conflicts: int
    refusals: int
    nodes: Nodes
    resources: list[ResourceTotal]


def queue_page(
    core: Core,
    now: float,
    *,
    place: Place | None = None,
    namespace: str = "",
    selector: ParsedSelector | None = None,
    after: int = 0,
    limit: int = 100,
) -> tuple[list[QueuedPod], int | None]:
    """(the next pending pods in order of arrival, ``after`` of the next page or None). ``place`` None: all places;
    ``namespace`` "": all; ``selector`` None: whatever labels. Where few are chosen a page ends early, after
    ``MOST_JUDGED``. Pods with scheduling gates come last: below 0 ``after`` is the number of the last of them."""

    def chosen(pod: Pod, where: Place) -> bool:
        return (
            (place is None or where is place)
            and namespace in ("", pod.namespace)
            and (selector is None or selector.matches(pod.labels))
        )

    page: list[QueuedPod] = []
    names: dict[Hashable, str] = {}
    last, judged = after, 0
    for entry in core.state.queue.entries.values() if after >= 0 else ():
        if entry.arrival <= after:
            continue
        if len(page) == limit or judged == MOST_JUDGED:
            return page, last
        last, judged = entry.arrival, judged + 1
        if chosen(entry.pod, entry.place):
            page.append(_queued(core, entry, now, names))
    last = min(after, -1)
    for found in core.state.gated.values():
        if found.number < -last:
            continue
        if len(page) == limit or judged == MOST_JUDGED:
            return page, last
        last, judged = -found.number - 1, judged + 1
        if chosen(found.pod, Place.GATED):
            page.append(_gated(core, found, now, names))
    return page, None


def queue_of(core: Core) -> Queue:
    """All of our pods that are on no node, by place: the same for every page, list and screen."""
    state, counts = core.state, core.state.queue.count()
    return Queue(
        active=counts[Place.ACTIVE],
        backoff=counts[Place.BACKOFF],
        unschedulable=counts[Place.UNSCHEDULABLE],
        in_flight=counts[Place.IN_FLIGHT] + len(core.takeover.held),
        gated=state.gated_count,
        unsupported=len(state.untried),
    )


def queue_counts(core: Core) -> dict[str, int]:
    """``queue_of`` by name."""
    return asdict(queue_of(core))


def units(core: Core, wall_of: WallOf) -> Iterator[UnitInFlight]:
    """Everything on its way, in no particular order; its number is bounded by the plans and the cycle in flight."""
    return (unit_in_flight(core, uid, found, wall_of) for uid, found in in_flight(core).items())


def decisions(core: Core, wall_of: WallOf, limit: int) -> list[DecisionShown]:
    """The last placements, newest first."""
    return [decision_shown(core, decision, wall_of) for decision in core.state.recent.newest(limit)]


def decision_shown(core: Core, decision: PastDecision, wall_of: WallOf) -> DecisionShown:
    """One placement as it is shown and streamed."""
    return DecisionShown(
        time=wall_of(decision.at),
        namespace=decision.namespace,
        name=decision.name,
        uid=decision.uid,
        node=decision.node,
        policy=f"{decision.policy}@{decision.policy_version}",
        attempt=decision.attempt,
        considered=decision.considered,
        id=f"{core.state.term}-{decision.number}",
        evicted=[one.pod for one in core.state.evicted.by(decision.uid)],
    )


def overview(core: Core, throughput: Throughput, now: float) -> Overview:
    """The figures as they are now."""
    state, stats = core.state, core.state.stats
    return Overview(
        queue=queue_of(core),
        bound=stats.bound,
        running=sum(state.cluster.index.schedulers[name] for name in state.ours),
        rates=throughput.rates(now, stats.bound, stats.answers),
        latency_ms=throughput.latency_ms(now) or NOTHING_YET,
        round_ms=throughput.round_ms(now) or NOTHING_YET,
        conflicts=stats.conflicts,
        refusals=stats.refusals,
        nodes=Nodes(
            total=len(state.cache.table.row_of),
            drained=sum(name in state.cache.table.row_of for name in state.drained),
            unowned=len(core.registry.ownership.unowned),
            cordoned=cordoned(core),
            not_ready=sum(not found.ready for found in state.unhealthy.values()),
            pressure=sum(bool(found.pressure) for found in state.unhealthy.values()),
        ),
        resources=resource_totals(core),
    )


def _gated(core: Core, found: GatedPod, now: float, names: dict[Hashable, str]) -> QueuedPod:
    """A pod with scheduling gates as it is listed."""
    pod = found.pod
    return QueuedPod(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        place=Place.GATED.value,
        priority=pod.priority,
        attempts=0,
        waiting_s=round(max(0.0, now - waits_since(core.state, found.pod, found.since)), 3),
        retry_in_s=None,
        plugins=[DYNAMIC_RESOURCES if found.lacks else SCHEDULING_GATES],
        nominated_node="",
        reason=GATED,
        class_=_named(pod, names),
    )


def _named(pod: Pod, names: dict[Hashable, str]) -> str:
    """The name of its class: of many pods few classes, each is named once for a page."""
    key = (pod.pod_class, pod.relations)
    if key not in names:
        names[key] = class_name(pod)
    return names[key]


def _queued(core: Core, entry: Entry, now: float, names: dict[Hashable, str]) -> QueuedPod:
    pod = entry.pod
    return QueuedPod(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        place=entry.place.value,
        priority=pod.priority,
        attempts=entry.attempts,
        waiting_s=round(max(0.0, now - waits_since(core.state, pod, entry.first_seen)), 3),
        retry_in_s=retry_in_s(core.state, entry, now),
        plugins=sorted(entry.plugins),
        nominated_node=pod.nominated_node,
        reason=reason_of(core, entry),
        class_=_named(pod, names),
    )


def in_flight(core: Core) -> dict[str, Pod | PodOnItsWay]:
    """By uid: a pod that is offered or promised by an earlier leader, or a placement."""
    found: dict[str, Pod | PodOnItsWay] = {}
    for current in core.cycle.open:
        found.update((unit.pod.uid, unit.pod) for o in current.classes.values() if not o.shadow for unit in o.units)
    found.update(core.ledger.placed)
    found.update(core.takeover.held)
    return found


def unit_in_flight(core: Core, uid: str, found: Pod | PodOnItsWay, wall_of: WallOf) -> UnitInFlight:
    """One of ``in_flight``, for people."""
    node, at = "", None
    if isinstance(found, PodOnItsWay):
        state, node, at = "placed" if found.answered else "planned", found.placement.node, found.since
    elif uid in core.takeover.held:
        state, account = "intent", core.state.cache.accounts.get(uid)
        if account is not None:
            node, at = account.node_name, account.assumed_at
    else:
        state = "offered"
        at = next((current.started_at for current in core.cycle.open if uid in current.uids), None)
    pod = found.placement if isinstance(found, PodOnItsWay) else found
    shown = UnitPod(namespace=pod.namespace, name=pod.name, uid=uid, node=node)
    return UnitInFlight(key=uid, pods=[shown], min_member=1, state=state, since=wall_of(at) if at is not None else "")
