"""Pods that no node takes, by what decides about them: those that are judged alike are one *group*, judged once.

What each group asks for is a row of numbers, so "whom could this much room help" is one comparison over all groups,
whether ten pods wait or ten thousand. Only groups that pass it are looked at one by one.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator, KeysView
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace

from shared.model.constraints import fitted
from shared.model.pod import Pod
from shared.model.resources import PODS
from shared.model.terms.relations import NO_RELATIONS
from shared.scheduling.limited_groups import LimitedGroups
from shared.scheduling.profiles import spreads_by_default
from shared.scheduling.state.node_table import BoolArray, IntArray

MAX_PRIORITIES = 16
"""Priorities of waiting pods for which room is summed up one by one; of more, all count as the highest does."""

RELATIONAL = frozenset(
    {
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
        "DynamicResources",
    }
)
"""Plugins by which a change on one node may help a pod on another."""

Room = Callable[[str], int]
"""How much of a resource there is; ``pods``: for how many pods."""


def group_key(pod: Pod) -> Hashable:
    """Pods of one key are taken by the same nodes and may evict the same pods; a nominated pod is alone."""
    labels = tuple(sorted(pod.labels.items()))
    own = pod.uid if pod.nominated_node else ""
    owner = pod.owner if spreads_by_default(pod) else None
    return (
        pod.pod_class, pod.priority, pod.relations, pod.namespace, labels, pod.never_preempts, own, fellows_of(pod),
        pod.claimed, pod.offline is not None, owner,
    )  # fmt: skip


def fellows_of(pod: Pod) -> str:
    """The pod group whose members on their way decide otherwise than others; "": none do (``topology_spread.py``)."""
    if not pod.group:
        return ""
    hard = any(c.hard for c in pod.relations.spread) if pod.relations is not None else False
    return pod.group if hard or spreads_by_default(pod) else ""


def gang_kind(pod: Pod, plugins: frozenset[str]) -> Hashable:
    """Members of parked pod groups for which the same room is room: of those that only their nodes keep away, all of
    one class and priority, offline or online, whatever they are called; where room is kept for a group, of that group.
    """
    alone = pod.relations is None and pod.asks is None and not spreads_by_default(pod)
    if alone and RELATIONAL.isdisjoint(plugins):
        return pod.pod_class, pod.priority, pod.offline is not None, pod.group if pod.nominated_node else ""
    return "gang", group_key(pod)


@dataclass(slots=True, eq=False)
class ParkedGroup:
    """``pod``: what the members are like. It has a uid only where it is nominated, and so alone: else one that left for
    a nomination would stand for those that must yield to it. ``plugins``: those that rejected them; ``number``: its row
    of the index.

    ``joined``: how often a member came. ``needs``: of members that stand for a pod group, how many places it lacks for
    their kind; ``lack``: so many must come free before the least of them could be met; ``gained`` counts how often some
    did, ``tried``: its value when that pod group was parked.

    What is remembered of what they say: ``told``: reasons that members were told since they wait here; ``judged``: of
    those that stand for a pod group, the reason of their kind as its attempt began; ``delayed``: those for whom nobody
    is asked to leave yet.
    """

    key: Hashable
    number: int
    pod: Pod
    plugins: frozenset[str]
    members: dict[str, int] = field(default_factory=dict)
    order: list[tuple[int, str]] = field(default_factory=list)
    needs: dict[str, int] = field(default_factory=dict)
    lack: int = 1
    joined: int = 0
    gained: int = 0
    tried: dict[str, int] = field(default_factory=dict)
    told: frozenset[str] = frozenset()
    judged: dict[str, str] = field(default_factory=dict)
    delayed: set[str] = field(default_factory=set)

    @property
    def relational(self) -> bool:
        """Whether a change on one node may help it on another."""
        relations = self.pod.relations or NO_RELATIONS
        demands = relations.affinity or relations.anti_affinity or relations.claims or relations.disks
        if demands or self.pod.asks is not None or spreads_by_default(self.pod):
            return True
        return any(c.hard for c in relations.spread) or not RELATIONAL.isdisjoint(self.plugins)

    def head(self) -> tuple[int, str] | None:
        """(arrival, uid) of the member that came first."""
        while self.order and self.members.get(self.order[0][1]) != self.order[0][0]:
            heapq.heappop(self.order)
        return self.order[0] if self.order else None

    def first(self, count: int) -> list[str]:
        """Uids of the ``count`` members that came first."""
        if count >= len(self.members):
            return sorted(self.members, key=self.members.__getitem__)
        if count == 1:
            head = self.head()
            return [head[1]] if head is not None else []
        return heapq.nsmallest(count, self.members, key=self.members.__getitem__)


class ParkedPods:
    """Groups by key and by number; every parked pod is in one."""

    def __init__(self) -> None:
        self.groups: dict[Hashable, ParkedGroup] = {}
        self.related: dict[int, ParkedGroup] = {}
        """Groups that a change on one node may help on another, by number; ``related_version`` counts its changes."""
        self.related_version = 0
        self.version = 0
        """Counts groups that came or went."""
        self.limited = LimitedGroups()
        """Those that a latency may keep away."""
        self._of: dict[str, ParkedGroup] = {}
        self._by_number: list[ParkedGroup | None] = []
        self._free: list[int] = []
        self._columns: dict[str, int] = {PODS: 0}
        self._needs: IntArray = np.zeros((1, 64), np.int64)
        self._priority: IntArray = np.zeros(64, np.int64)
        self._arrival: IntArray = np.zeros(64, np.int64)
        self._alive: BoolArray = np.zeros(64, np.bool_)
        self._nominated: BoolArray = np.zeros(64, np.bool_)
        self._together: BoolArray = np.zeros(64, np.bool_)
        self._priorities: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[ParkedGroup]:
        return iter(self.groups.values())

    def __contains__(self, uid: str) -> bool:
        return uid in self._of

    def uids(self) -> KeysView[str]:
        """All pods that wait."""
        return self._of.keys()

    # --- members ------------------------------------------------------------------------------------------------

    def add(self, pod: Pod, arrival: int, plugins: frozenset[str], *, need: int = 0) -> ParkedGroup:
        """The pod waits from now on. ``need`` above 0: it stands for a pod group that lacks so many places."""
        self.discard(pod.uid)
        key = gang_kind(pod, plugins) if need else group_key(pod)
        group = self.groups.get(key)
        if group is None:
            group = self._new(key, pod, plugins, together=bool(need))
        elif plugins - group.plugins:
            self.blame(group, plugins)
        group.members[pod.uid] = arrival
        group.joined += 1
        if need:
            group.needs[pod.uid], group.tried[pod.uid] = need, group.gained
            group.lack = 1
        heapq.heappush(group.order, (arrival, pod.uid))
        self._of[pod.uid] = group
        self._arrival[group.number] = min(self._arrival[group.number], arrival)
        return group

    def discard(self, uid: str) -> None:
        """The pod waits no longer; an unknown uid is fine."""
        group = self._of.pop(uid, None)
        if group is None:
            return
        del group.members[uid]
        group.needs.pop(uid, None)
        group.tried.pop(uid, None)
        group.judged.pop(uid, None)
        group.delayed.discard(uid)
        head = group.head()
        if head is not None:
            self._arrival[group.number] = head[0]
            return
        del self.groups[group.key]
        self.version += 1
        self.limited.discard(group.pod.pod_class, group.number)
        if self.related.pop(group.number, None) is not None:
            self.related_version += 1
        self._by_number[group.number] = None
        self._alive[group.number] = False
        self._free.append(group.number)
        left = self._priorities[group.pod.priority] - 1
        if left:
            self._priorities[group.pod.priority] = left
        else:
            del self._priorities[group.pod.priority]

    def group_of(self, uid: str) -> ParkedGroup | None:
        """The group in which the pod waits."""
        return self._of.get(uid)

    def tell(self, uid: str, reason: str) -> None:
        """What a pod was told; one that does not wait here is passed over."""
        group = self._of.get(uid)
        if group is not None and reason not in group.told:
            group.told |= {reason}

    def judge(self, reasons: Iterable[tuple[str, str]]) -> None:
        """What pods would have said alone when their pod group was tried; those that do not stand for it are passed
        over."""
        for uid, reason in reasons:
            if (group := self._of.get(uid)) is not None:
                group.judged[uid] = reason

    def numbered(self, number: int) -> ParkedGroup | None:
        """The group of that number, if there still is one."""
        return self._by_number[number]

    def blame(self, group: ParkedGroup, plugins: frozenset[str]) -> None:
        """These plugins reject the group too."""
        group.plugins |= plugins
        if group.relational and group.number not in self.related:
            self._relate(group)

    # --- whom room could help -----------------------------------------------------------------------------------

    def fitting(self, room: Room, unkept_at: Callable[[int], Room] | None = None) -> list[int]:
        """Numbers of the groups of which a member would fit into ``room``, in queue order: priority, then arrival.

        ``unkept_at``: what of the room is kept for nobody to whom a priority yields; None: all. Members of pod groups
        may have it kept for them, and are not held back by that.
        """
        within = self._alive & self._within(room)
        if unkept_at is not None and within.any():
            within &= self._together | self._at_priorities(sorted(self._priorities), unkept_at)
        return self._ordered(within)

    def opened(self, lowest: int, room_at: Callable[[int], Room]) -> list[int]:
        """Numbers of the groups that could fit once pods of lower priority are evicted, in queue order; not pods that
        are nominated: somebody leaves for them already.

        ``lowest``: the least priority of all pods that stand; ``room_at``: what there would be for a priority.
        """
        priorities = sorted(priority for priority in self._priorities if priority > lowest)
        if not priorities:
            return []
        return self._ordered(self._at_priorities(priorities, room_at) & (self._together | ~self._nominated))

    def ordered(self, numbers: Iterable[int]) -> list[int]:
        """These groups in queue order, each once."""
        found = np.zeros(len(self._alive), np.bool_)
        found[list(numbers)] = True
        return self._ordered(found & self._alive)

    # --- inside -------------------------------------------------------------------------------------------------

    def _at_priorities(self, priorities: list[int], room_at: Callable[[int], Room]) -> BoolArray:
        """The groups of these priorities, ascending, that fit into the room for theirs."""
        if len(priorities) > MAX_PRIORITIES:
            return self._alive & (self._priority >= priorities[0]) & self._within(room_at(priorities[-1]))
        found: BoolArray = np.zeros(len(self._alive), np.bool_)
        for priority in priorities:
            alike = self._alive & (self._priority == priority)
            found |= alike & self._within(room_at(priority))
        return found

    def _within(self, room: Room) -> BoolArray:
        within: BoolArray = np.ones(len(self._alive), np.bool_)
        for name, column in self._columns.items():
            needs = self._needs[column]
            within &= (needs <= room(name)) | (needs == 0)
        return within

    def _ordered(self, found: BoolArray) -> list[int]:
        numbers = np.flatnonzero(found)
        if len(numbers) > 1:
            numbers = numbers[np.lexsort((self._arrival[numbers], -self._priority[numbers]))]
        return numbers.tolist()

    def _new(self, key: Hashable, pod: Pod, plugins: frozenset[str], *, together: bool) -> ParkedGroup:
        if not self._free:
            self._grow()
        number = self._free.pop()
        like = pod if pod.nominated_node else replace(pod, uid="")
        group = self.groups[key] = ParkedGroup(key, number, like, plugins)
        self.version += 1
        self._by_number[number] = group
        self.limited.add(pod.pod_class, number)
        for name, _ in fitted(pod.pod_class):
            if name not in self._columns:
                self._columns[name] = len(self._columns)
                self._needs = np.vstack((self._needs, np.zeros((1, self._needs.shape[1]), np.int64)))
        self._needs[:, number] = 0
        self._needs[0, number] = 1
        for name, amount in fitted(pod.pod_class):
            if name not in pod.pod_class.by_class:  # which nodes that have none of it may give
                self._needs[self._columns[name], number] = amount
        self._priority[number] = pod.priority
        self._arrival[number] = np.iinfo(np.int64).max
        self._alive[number] = True
        self._nominated[number] = bool(pod.nominated_node)
        self._together[number] = together or bool(pod.group)
        self._priorities[pod.priority] = self._priorities.get(pod.priority, 0) + 1
        if group.relational:
            self._relate(group)
        return group

    def _relate(self, group: ParkedGroup) -> None:
        self.related[group.number] = group
        self.related_version += 1

    def _grow(self) -> None:
        known = len(self._by_number)
        size = max(64, 2 * known)
        if size > len(self._alive):
            extra = size - len(self._alive)
            self._needs = np.pad(self._needs, ((0, 0), (0, extra)))
            self._priority, self._arrival = np.pad(self._priority, (0, extra)), np.pad(self._arrival, (0, extra))
            self._alive = np.pad(self._alive, (0, extra))
            self._nominated = np.pad(self._nominated, (0, extra))
            self._together = np.pad(self._together, (0, extra))
        self._by_number.extend([None] * (size - known))
        self._free.extend(range(size - 1, known - 1, -1))
