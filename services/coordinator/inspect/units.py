"""Scheduling units for people: pod groups in every phase, with their members, and lone pods on their way to a node.

    GroupFacts (what a leader knows of one group) --shown--> a row of the list, --whole--> everything about one

Pure. ``group_facts.py`` gathers the facts from the core; nothing here knows where they come from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, field

from services.coordinator.inspect.overview import UnitInFlight, UnitPod
from shared.model.units.pod_group import PodGroup
from shared.scheduling.groups.phase import BROKEN, ENDED, PLACING, RUNNING, WAITING, no_object_text, phase, too_few_text
from shared.scheduling.reasons import GROUP_INVALID, GROUP_MISSING, INCOMPLETE

WallOf = Callable[[float], str]
"""Seconds of the core's clock to RFC 3339 in UTC."""

BOUND, LEAVING = "bound", "leaving"
ON_THEIR_WAY = frozenset({"in_flight", "offered", "planned", "placed", "intent"})
"""States of members that are neither waiting nor bound."""

POD = "pod"
"""Source of a unit that is a lone pod; of a group it is the first part of its key (``Source``)."""

PODS_IN_A_ROW = 8
MEMBERS_SHOWN = 4096


class MemberFacts(Struct, frozen=True):
    """One member. ``state``: where it is (a place of the scheduling queue, or one of ``ON_THEIR_WAY``, bound, leaving);
    ``node``: where it stands or goes, ``nominated``: what is held for it; ``message``: what it was told last;
    ``first_seen``: seconds of the core's clock, None of one that is bound."""

    uid: str
    namespace: str
    name: str
    state: str
    node: str = ""
    nominated: str = ""
    priority: int = 0
    attempts: int = 0
    first_seen: float | None = None
    message: str = ""


class VictimFacts(Struct, frozen=True):
    """A pod that was asked to leave for the unit."""

    pod: str
    node: str
    priority: int
    outcome: str
    at: float


class GroupFacts(Struct, frozen=True):
    """One pod group. ``group`` None: members name it, and the API server has no such object.

    ``reason`` and ``message``: why it waits, as the queue has it, a closed word and a sentence; ``position``: its place
    in its queue, 1 goes next, None where nobody counts; ``domain``: where its topology constraint has put it.
    ``done``: members that have succeeded, ``foreign``: those of other schedulers; neither are among ``members``.
    """

    key: str
    namespace: str
    name: str
    group: PodGroup | None
    members: Sequence[MemberFacts]
    queue: str = ""
    place: str = ""
    reason: str = ""
    message: str = ""
    position: int | None = None
    domain: str = ""
    victims: Sequence[VictimFacts] = field(default_factory=tuple)
    done: int = 0
    foreign: int = 0

    @property
    def source(self) -> str:
        """Which API it comes from: podgroup, x-podgroup or job."""
        return self.key.partition(":")[0]

    @property
    def min_count(self) -> int:
        """So many members run at once, or none."""
        return self.group.min_count if self.group is not None else 1

    @property
    def bound(self) -> int:
        """Members that stand on a node."""
        return sum(member.state == BOUND for member in self.members)

    @property
    def missing(self) -> int:
        """So many members more must be created before it is tried."""
        return max(0, self.min_count - len(self.members) - self.foreign)


class UnitShown(UnitInFlight, frozen=True, kw_only=True):
    """One unit. ``source``: pod, podgroup, x-podgroup or job; ``phase``: waiting, placing, running, broken (fewer than
    its minimum are left on nodes) or ended (it ran, and no member is left); ``place``: of its members in the scheduling
    queue; ``members``: those that are there, ``bound`` of them on nodes; ``position``: in its queue, 1 goes next;
    ``reason``, ``message``: why it waits. ``state``: of a unit on its way offered, planned, placed or intent, else
    empty; ``pods``: the first eight members.
    """

    source: str
    namespace: str
    name: str
    phase: str
    queue: str
    place: str
    priority: int
    members: int
    bound: int
    position: int | None
    reason: str
    message: str
    waiting_s: float | None


class MemberShown(Struct, frozen=True, kw_only=True):
    """One member. ``state``: active, backoff, unschedulable, gated, in_flight, offered, planned, placed, intent, bound
    or leaving; ``nominated_node``: held for it while its victims leave."""

    name: str
    uid: str
    state: str
    node: str
    nominated_node: str
    priority: int
    attempts: int
    waiting_s: float | None
    message: str


class VictimShown(Struct, frozen=True, kw_only=True):
    """A pod that was asked to leave for the unit; ``outcome`` empty: not known yet."""

    pod: str
    node: str
    priority: int
    outcome: str
    ago_s: float


class TopologyShown(Struct, frozen=True, kw_only=True):
    """All members on nodes with one value of the label ``key``; ``domain``: which, empty while none is chosen."""

    key: str
    required: bool
    domain: str


class ConditionShown(Struct, frozen=True, kw_only=True):
    """The scheduling condition on the group, as last written."""

    type: str
    status: str
    reason: str
    message: str


class UnitWhole(UnitShown, frozen=True, kw_only=True):
    """One pod group and all its members. ``states``: members by state; ``missing``: so many more must be created before
    it is tried; ``nodes``: bound members by node; ``problem``: why the group cannot be used as it is written."""

    api_version: str
    gang: bool
    whole: bool
    on_broken: str
    timeout_s: float | None
    missing: int
    states: dict[str, int]
    nodes: dict[str, int]
    topology: TopologyShown | None
    condition: ConditionShown | None
    problem: str
    created: str
    listed: list[MemberShown]
    victims: list[VictimShown]


class UnitCounts(Struct, frozen=True, kw_only=True):
    """Pod groups by what they do."""

    waiting: int = 0
    placing: int = 0
    running: int = 0
    broken: int = 0
    ended: int = 0


def phase_of(facts: GroupFacts) -> str:
    """What a group is doing, from its members alone."""
    away = any(member.state in ON_THEIR_WAY for member in facts.members)
    waiting = len(facts.members) - facts.bound
    return phase(facts.group, away=away, bound=facts.bound, waiting=waiting, done=facts.done)


def shown(facts: GroupFacts, now: float, wall_of: WallOf) -> UnitShown:
    """A group as a row of a list."""
    return UnitShown(**_row(facts, now, wall_of))


def lone(unit: UnitInFlight, *, queue: str, priority: int, now: float, first_seen: float | None) -> UnitShown:
    """A lone pod on its way, as a row of the same list."""
    [pod] = unit.pods
    return UnitShown(
        key=unit.key, pods=unit.pods, min_member=1, state=unit.state, since=unit.since, source=POD,
        namespace=pod.namespace, name=pod.name, phase=PLACING, queue=queue, place="in_flight", priority=priority,
        members=1, bound=0, position=None, reason="", message="", waiting_s=_ago(first_seen, now),
    )  # fmt: skip


def whole(facts: GroupFacts, now: float, wall_of: WallOf) -> UnitWhole:
    """Everything about one group."""
    group = facts.group
    condition = group.condition if group is not None else ("", "", "", "")
    told = ConditionShown(type=condition[0], status=condition[1], reason=condition[2], message=condition[3])
    return UnitWhole(
        **_row(facts, now, wall_of),
        api_version=group.api_version if group is not None else "",
        gang=group is not None and group.gang,
        whole=group is not None and group.whole,
        on_broken=group.broken.value if group is not None else "",
        timeout_s=group.timeout_s if group is not None else None,
        missing=facts.missing if phase_of(facts) in (WAITING, BROKEN) else 0,
        states=dict(Counter(member.state for member in facts.members)),
        nodes=dict(Counter(member.node for member in facts.members if member.state == BOUND)),
        topology=_topology(facts),
        condition=told if told.status else None,
        problem=group.problem if group is not None else "",
        created=group.created if group is not None else "",
        listed=[_member(member, now) for member in in_order(facts.members)[:MEMBERS_SHOWN]],
        victims=[
            VictimShown(
                pod=one.pod, node=one.node, priority=one.priority, outcome=one.outcome,
                ago_s=round(max(0.0, now - one.at), 3),
            )
            for one in facts.victims
        ],
    )  # fmt: skip


def why(facts: GroupFacts) -> tuple[str, str]:
    """(reason, sentence): why a group waits; both empty for one that does not. What is wrong with the object itself
    speaks first, then what it lacks, then what the queue says."""
    group = facts.group
    if phase_of(facts) in (PLACING, RUNNING, ENDED):
        return "", ""
    if group is None:
        return GROUP_MISSING, no_object_text(facts.key)
    if group.problem:
        return GROUP_INVALID, group.problem
    if facts.foreign:
        return (facts.reason, facts.message) if facts.message else (GROUP_INVALID, "its pods name another scheduler")
    if facts.missing:
        return INCOMPLETE, too_few_text(len(facts.members), group.min_count, facts.missing)
    return facts.reason, facts.message


def in_order(members: Sequence[MemberFacts]) -> list[MemberFacts]:
    """Those that wait first, then those on their way, then those that run; by name."""
    return sorted(members, key=lambda one: (one.state == BOUND, one.state in ON_THEIR_WAY, _natural(one.name)))


def _row(facts: GroupFacts, now: float, wall_of: WallOf) -> dict[str, Any]:
    reason, message = why(facts)
    first = min((one.first_seen for one in facts.members if one.first_seen is not None), default=None)
    states = {member.state for member in facts.members}
    return {
        "key": facts.key,
        "pods": [
            UnitPod(namespace=one.namespace, name=one.name, uid=one.uid, node=one.node)
            for one in in_order(facts.members)[:PODS_IN_A_ROW]
        ],
        "min_member": facts.min_count,
        "state": next((state for state in ("offered", "planned", "placed", "intent") if state in states), ""),
        "since": wall_of(first) if first is not None else "",
        "source": facts.source,
        "namespace": facts.namespace,
        "name": facts.name,
        "phase": phase_of(facts),
        "queue": facts.queue,
        "place": facts.place,
        "priority": _priority(facts),
        "members": len(facts.members),
        "bound": facts.bound,
        "position": facts.position,
        "reason": reason,
        "message": message,
        "waiting_s": _ago(first, now),
    }


def _priority(facts: GroupFacts) -> int:
    """The group's own, else the greatest of its members."""
    if facts.group is not None and facts.group.priority is not None:
        return facts.group.priority
    return max((member.priority for member in facts.members), default=0)


def _topology(facts: GroupFacts) -> TopologyShown | None:
    topology = facts.group.topology if facts.group is not None else None
    if topology is None:
        return None
    return TopologyShown(key=topology.key, required=topology.required, domain=facts.domain)


def _member(member: MemberFacts, now: float) -> MemberShown:
    return MemberShown(
        name=member.name, uid=member.uid, state=member.state, node=member.node, nominated_node=member.nominated,
        priority=member.priority, attempts=member.attempts, waiting_s=_ago(member.first_seen, now),
        message=member.message,
    )  # fmt: skip


def _ago(at: float | None, now: float) -> float | None:
    return None if at is None else round(max(0.0, now - at), 3)


def _natural(name: str) -> tuple[int, str]:
    """worker-2 before worker-10, where only the number differs."""
    return len(name), name
