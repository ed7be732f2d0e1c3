"""What a leader knows of each pod group, gathered for people: its object, its members, where they are, and why.

    PodGroups (members) + scheduling queue + ledger + index of standing pods --group_facts--> GroupFacts

Pure: it reads the core and changes nothing. One group costs as its members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from services.coordinator.binding.plans import PodOnItsWay
from services.coordinator.core.core import Core
from services.coordinator.inspect.overview import in_flight, unit_in_flight
from services.coordinator.inspect.pending import reason_of, why_gated
from services.coordinator.inspect.queue_facts import QueuePlaces, queue_of
from services.coordinator.inspect.units import (
    BOUND,
    GroupFacts,
    MemberFacts,
    UnitCounts,
    UnitShown,
    VictimFacts,
    WallOf,
    lone,
)
from services.coordinator.inspect.waiting import waits_since
from shared.kube.label_selectors import ParsedSelector
from shared.model.pod import Pod
from shared.model.units.pod_group import GroupSource, PodGroup, group_key, group_name
from shared.scheduling.groups.phase import phase
from shared.scheduling.places import Place
from shared.scheduling.queue_entries import Entry

_JOB = f"{GroupSource.JOB.value}:"


def group_keys(core: Core) -> Iterator[str]:
    """Every pod group that has an object or members, in no order; a Job only while it has members."""
    groups = core.state.groups
    for key in groups.members.keys() | core.state.cluster.pod_groups.keys():
        if not _lone_job(core, key) and (key in groups.members or not key.startswith(_JOB)):
            yield key


def group_facts(core: Core, key: str, places: QueuePlaces | None = None) -> GroupFacts | None:
    """One group; None where nothing is known of it. ``places``: shared by the groups of one answer."""
    state = core.state
    group, members = state.groups.group(key), state.groups.members.get(key)
    if (group is None and members is None) or _lone_job(core, key):
        return None
    pending: Mapping[str, Pod] = members.pending if members is not None else {}
    bound: Mapping[str, str] = members.bound if members is not None else {}
    entries = [entry for uid in pending if (entry := state.queue.entries.get(uid)) is not None]
    found = [_waiting(core, pod) for pod in pending.values()]
    found += [_standing(core, uid, node) for uid, node in bound.items()]
    reason, message = _why(core, entries)
    namespace = key.partition(":")[2].rpartition("/")[0]
    queued = state.queue.groups.get(key)
    place = queued.place if queued is not None else next((entry.place for entry in entries), None)
    labels = group.labels if group is not None else {}
    return GroupFacts(
        key=key,
        namespace=namespace,
        name=group_name(key),
        group=group,
        members=found,
        done=members.succeeded if members is not None else 0,
        foreign=len(members.foreign) if members is not None else 0,
        queue=queue_of(core, namespace, labels or next((pod.labels for pod in pending.values()), {})),
        place=place.value if place is not None else "",
        reason=reason,
        message=message,
        position=(places or QueuePlaces(core)).of(key),
        domain=_domain(core, group, found),
        victims=[
            VictimFacts(one.pod, one.node, one.priority, one.outcome, one.at)
            for uid in pending
            for one in state.evicted.by(uid)
        ],
    )


def find_group(core: Core, namespace: str, name: str) -> GroupFacts | None:
    """The group of that name: of the first source that has one, in the order of ``GroupSource``."""
    for source in GroupSource:
        facts = group_facts(core, group_key(source, namespace, name))
        if facts is not None:
            return facts
    return None


def lone_units(core: Core) -> dict[str, Pod | PodOnItsWay]:
    """The pods on their way that are in no group, by uid."""
    key_of = core.state.groups.key_of
    return {uid: found for uid, found in in_flight(core).items() if uid not in key_of or _lone_job(core, key_of[uid])}


def lone_unit(
    core: Core, uid: str, found: Pod | PodOnItsWay, now: float, wall_of: WallOf, selector: ParsedSelector | None = None
) -> UnitShown | None:
    """A lone pod on its way, one of ``lone_units``; None where the selector does not choose it."""
    entry = core.state.queue.entries.get(uid)
    pod = found.pod if isinstance(found, PodOnItsWay) else found
    if selector is not None and not selector.matches(pod.labels):
        return None
    return lone(
        unit_in_flight(core, uid, found, wall_of), queue=queue_of(core, pod.namespace, pod.labels),
        priority=pod.priority, now=now,
        first_seen=waits_since(core.state, pod, entry.first_seen) if entry is not None else None,
    )  # fmt: skip


def phases(core: Core) -> UnitCounts:
    """Pod groups by what they do. Costs as all groups, not as their members."""
    state, counts = core.state, Counter[str]()
    for key in group_keys(core):
        members, queued = state.groups.members.get(key), state.queue.groups.get(key)
        if members is None:
            counts[phase(state.groups.group(key), away=False, bound=0, waiting=0, done=0)] += 1
            continue
        away = bool(members.away) or (queued is not None and queued.place is Place.IN_FLIGHT)
        numbers = {"bound": len(members.bound), "waiting": members.waiting, "done": members.succeeded}
        counts[phase(state.groups.group(key), away=away, **numbers)] += 1
    return UnitCounts(**counts)


def _lone_job(core: Core, key: str) -> bool:
    """A Job that nobody made a gang: its pods are units of their own."""
    return key.startswith(_JOB) and core.state.groups.group(key) is None


def _waiting(core: Core, pod: Pod) -> MemberFacts:
    """A member that no watch has shown bound."""
    placed, entry = core.ledger.placed.get(pod.uid), core.state.queue.entries.get(pod.uid)
    node = ""
    if placed is not None:
        state, node = "placed" if placed.answered else "planned", placed.placement.node
    elif pod.uid in core.takeover.held:
        account = core.state.cache.accounts.get(pod.uid)
        state, node = "intent", account.node_name if account is not None else ""
    elif entry is None:
        state = "unschedulable"
    else:
        state = "offered" if entry.place is Place.IN_FLIGHT else entry.place.value
    return MemberFacts(
        uid=pod.uid, namespace=pod.namespace, name=pod.name, state=state, node=node, nominated=pod.nominated_node,
        priority=pod.priority, attempts=entry.attempts if entry is not None else 0,
        first_seen=waits_since(core.state, pod, entry.first_seen) if entry is not None else None,
        message=pod.condition[2],
    )  # fmt: skip


def _standing(core: Core, uid: str, node: str) -> MemberFacts:
    pod = core.state.cluster.index.get(uid)
    if pod is None:  # the binder says that it is bound, the watch has not shown it
        return MemberFacts(uid, "", uid, BOUND, node)
    return MemberFacts(uid, pod.namespace, pod.name, BOUND, node, priority=pod.priority)


def _why(core: Core, entries: list[Entry]) -> tuple[str, str]:
    """(word, sentence) of the member that goes first; the group's own, or the quota's, where it is gated."""
    if not entries:
        return "", ""
    first = min(entries, key=lambda entry: (-entry.pod.priority, entry.arrival))
    message = why_gated(core, first) if first.place is Place.GATED else first.pod.condition[2]
    return reason_of(core, first), message


def _domain(core: Core, group: PodGroup | None, members: list[MemberFacts]) -> str:
    """The value of the topology label where the group's members are, or go."""
    if group is None or group.topology is None:
        return ""
    table = core.state.cache.table
    for member in members:
        row = table.row_of.get(member.node)
        node = table.nodes[row] if row is not None else None
        if node is not None and group.topology.key in node.labels:
            return node.labels[group.topology.key]
    return ""
