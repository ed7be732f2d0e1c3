"""The queue of pending units as data: active, backoff, unschedulable. ``now`` is an argument; nothing waits here.

        add                      pop
    -----------> ACTIVE ------------------> (in flight, the caller's)
                 ^    ^                        |          |
      backoff    |    | roused (it may be      | retry    | park (no node fits)
      over       |    |  helped) / sweep       v          v
                 +-- BACKOFF <-------------- (error)   UNSCHEDULABLE
                 |        ^                               |
                 +--------+-------------------------------+  (roused while its backoff still runs: BACKOFF)

Order: priority first, then arrival. Backoff 1 s doubling to 10 s, as kube-scheduler; a pod that was roused is taken out
of its backoff when nobody of its priority or above is active (kube-scheduler: when nobody is active at all). A pod is
parked only when no node takes it at that moment, and whatever changes that rouses it (the coordinator's
``requeueing.py``): no wake-up is lost. Parked pods are held by group (``parked_groups.py``), so an event costs by whom
it may help, not by how many wait.

``TRANSITIONS`` says the same exactly: which cause takes a pod from which place to which; any other move raises
``InvalidTransition``. A pod that is given back and is not in flight any more is late news, and stays where it is (I9).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from shared.backoff import backoff_s
from shared.errors import InvalidTransition
from shared.model.pod import Pod
from shared.scheduling.parked_groups import Waiting, group_key
from shared.scheduling.story import Story


class Place(Enum):
    """Where a pending pod is."""

    __hash__ = object.__hash__  # looked up at every move

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    IN_FLIGHT = "in_flight"


class OwnEvent(Enum):
    """Why a pod came into a place, where that was no event of the cluster."""

    __hash__ = object.__hash__  # looked up at every move

    SEEN = "seen"
    CHANGED = "changed"
    ATTEMPT_FAILED = "attempt_failed"
    RACE_LOST = "race_lost"
    BACKOFF_COMPLETE = "backoff_complete"
    TIMEOUT = "timeout"
    ROUSED = "roused"


class ClusterEvent(Enum):
    """What happened in the cluster that may make a pod schedulable."""

    __hash__ = object.__hash__  # looked up at every move

    NODE_ADDED = "node_added"
    NODE_ALLOCATABLE = "node_allocatable"
    NODE_LABELS = "node_labels"
    NODE_TAINTS = "node_taints"
    NODE_FEATURES = "node_features"
    NODE_DELETED = "node_deleted"
    POD_ADDED = "pod_added"
    POD_LABELS = "pod_labels"
    POD_DELETED = "pod_deleted"
    CLAIM_CHANGED = "claim_changed"
    VOLUME_CHANGED = "volume_changed"
    STORAGE_CLASS_CHANGED = "storage_class_changed"
    CSI_NODE_CHANGED = "csi_node_changed"
    NAMESPACE_LABELS = "namespace_labels"
    AGENT_JOINED = "agent_joined"


Cause = OwnEvent | ClusterEvent | None
"""Why a pod goes to another place; None: ``pop`` takes it."""

_HELPED = {Place.UNSCHEDULABLE: {Place.ACTIVE, Place.BACKOFF}}

TRANSITIONS: Mapping[Cause, Mapping[Place, set[Place]]] = {
    OwnEvent.SEEN: {Place.ACTIVE: {Place.ACTIVE}},  # a new pod begins there
    OwnEvent.CHANGED: {place: {Place.ACTIVE} for place in (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE)},
    None: {Place.ACTIVE: {Place.IN_FLIGHT}, Place.BACKOFF: {Place.IN_FLIGHT}},
    OwnEvent.ATTEMPT_FAILED: {Place.IN_FLIGHT: {Place.BACKOFF, Place.UNSCHEDULABLE}},
    OwnEvent.RACE_LOST: {Place.IN_FLIGHT: {Place.ACTIVE, Place.UNSCHEDULABLE}},
    OwnEvent.BACKOFF_COMPLETE: {Place.BACKOFF: {Place.ACTIVE}},
    **dict.fromkeys((OwnEvent.TIMEOUT, OwnEvent.ROUSED, *ClusterEvent), _HELPED),
}
"""By cause, and from where: where a pod may go. ``remove`` takes it out from anywhere."""

LEGAL = frozenset(
    (cause, start, to) for cause, moves in TRANSITIONS.items() for start, ends in moves.items() for to in ends
)
"""The same as single moves."""

READ_OWN_LABELS = frozenset({"PodTopologySpread", "InterPodAffinity"})
"""Plugins for which a pod's own labels decide: selectors of others mean it, and its own may mean itself."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Backoff ``initial_backoff_s`` doubles up to ``max_backoff_s``; ``sweep_age_s``: the net under lost events."""

    initial_backoff_s: float = 1.0
    max_backoff_s: float = 10.0
    sweep_age_s: float = 300.0


@dataclass(slots=True)
class Entry:
    """One pending pod. ``attempts`` failed ones; ``since``: seconds at which it entered its place."""

    pod: Pod
    place: Place
    arrival: int
    attempts: int = 0
    since: float = 0.0
    ready_at: float = 0.0
    plugins: frozenset[str] = frozenset()
    first_seen: float = 0.0
    version: int = 0
    able_since: float = 0.0
    """Since when a node may take it, as far as is known: first seen, or woken last. What latencies count from."""


SWEPT_AT_ONCE = 256
"""Pods that one sweep wakes at most."""


@dataclass(slots=True)
class PodQueue:
    """Pending pods by uid; every one is in exactly one place (I3)."""

    settings: QueueSettings = field(default_factory=QueueSettings)
    entries: dict[str, Entry] = field(default_factory=dict)
    waiting: Waiting = field(default_factory=Waiting)
    """The parked pods, by group."""
    unjudged: dict[str, None] = field(default_factory=dict)
    """Uids of those of them that were parked because nobody could judge them: no nodes, or no agents."""
    incoming: Counter[tuple[Place, OwnEvent | ClusterEvent]] = field(default_factory=Counter)
    """Pods that came into a place, by what brought them there; only ever counts up."""
    story: Story = field(default_factory=Story)
    """What happened to each pod; the core that has this queue writes the rest of it."""
    _active: list[tuple[int, int, int, str]] = field(default_factory=list)
    _eager: list[tuple[int, int, int, str]] = field(default_factory=list)
    _backoff: list[tuple[float, int, str]] = field(default_factory=list)
    _parked_at: dict[str, float] = field(default_factory=dict)
    _count: dict[Place, int] = field(default_factory=lambda: dict.fromkeys(Place, 0))
    _arrivals: int = 0

    def add(self, pod: Pod, now: float) -> None:
        """A pending pod was seen for the first time, or anew: an update keeps place and order.

        A changed class or demands, labels that a rejecting rule reads, and a nomination taken away make it active.
        """
        entry = self.entries.get(pod.uid)
        if entry is None:
            self._arrivals += 1
            entry = self.entries[pod.uid] = Entry(pod, Place.ACTIVE, self._arrivals, first_seen=now, able_since=now)
            self._count[Place.ACTIVE] += 1
            self._activate(entry, now, OwnEvent.SEEN)
            return
        before, entry.pod = entry.pod, pod
        if entry.place is Place.IN_FLIGHT:
            return
        group = self.waiting.group_of(pod.uid)
        plugins = entry.plugins if group is None else entry.plugins | group.plugins
        changed = (
            before.pod_class != pod.pod_class
            or before.priority != pod.priority
            or (before.labels != pod.labels and not plugins.isdisjoint(READ_OWN_LABELS))
            or before.relations != pod.relations
            or before.nominated_node != pod.nominated_node == ""
        )
        if changed:
            entry.able_since = now
            self._activate(entry, now, OwnEvent.CHANGED)
        elif group is not None and group.key != group_key(pod):
            self.waiting.add(pod, entry.arrival, plugins)

    def renominate(self, uid: str, pod: Pod) -> None:
        """The pod is nominated to another node, or to none any more; its place stays."""
        entry = self.entries.get(uid)
        if entry is None:
            return
        entry.pod = pod
        if entry.place is Place.UNSCHEDULABLE:
            self.waiting.add(pod, entry.arrival, entry.plugins)

    def remove(self, uid: str) -> Entry | None:
        """The pod is bound, deleted or not ours any more."""
        entry = self.entries.pop(uid, None)
        if entry is not None:
            self._count[entry.place] -= 1
            if entry.place is Place.UNSCHEDULABLE:
                self._unpark(entry)
            self.story.add(uid, "{} -> not pending any more", entry.place)
        return entry

    def pop(self, count: int, now: float) -> list[Pod]:
        """Up to ``count`` active pods in order; they are in flight until given back or removed."""
        self.flush(now)
        pods: list[Pod] = []
        while len(pods) < count:
            active, eager = self._top(self._active, Place.ACTIVE), self._top(self._eager, Place.BACKOFF)
            early = eager is not None and (active is None or active.pod.priority < eager.pod.priority)
            entry = eager if early else active
            if entry is None:
                break
            heapq.heappop(self._eager if early else self._active)
            self._move(entry, Place.IN_FLIGHT, now, None)
            pods.append(entry.pod)
        return pods

    def retry(self, uid: str, now: float, *, failed: bool = True) -> None:
        """Give back a pod in flight. ``failed`` False: it lost a race, nothing is wrong with it: active at once."""
        entry = self.entries.get(uid)
        if entry is None or entry.place is not Place.IN_FLIGHT:
            return
        if not failed:
            self._activate(entry, now, OwnEvent.RACE_LOST)
            return
        entry.attempts += 1
        entry.ready_at = now + self._backoff_s(entry)
        self._back_off(entry, now, OwnEvent.ATTEMPT_FAILED)

    def park(self, uid: str, plugins: Iterable[str], now: float) -> None:
        """No node takes the pod in flight as things stand: sleep until it may be helped. No ``plugins``: nobody could
        judge it, for want of nodes or agents."""
        entry = self.entries.get(uid)
        if entry is None or entry.place is not Place.IN_FLIGHT:
            return
        entry.attempts += 1
        entry.ready_at = now + self._backoff_s(entry)
        self._park(entry, frozenset(plugins), now, OwnEvent.ATTEMPT_FAILED)

    def hold(self, uid: str, plugins: Iterable[str], now: float) -> None:
        """Nothing is wrong with the pod in flight, but it must wait for others that are on their way.

        As ``park``, but no attempt has failed: there is no backoff.
        """
        entry = self.entries.get(uid)
        if entry is None or entry.place is not Place.IN_FLIGHT:
            return
        entry.ready_at = now
        self._park(entry, frozenset(plugins), now, OwnEvent.RACE_LOST)

    def rouse(self, uid: str, now: float, event: OwnEvent | ClusterEvent = OwnEvent.ROUSED) -> bool:
        """Wake one parked pod; while its backoff runs it waits for the end, or if something happened in the cluster
        that helps it (a ``ClusterEvent``), only for those before it. False: it is not parked."""
        entry = self.entries.get(uid)
        if entry is None or entry.place is not Place.UNSCHEDULABLE:
            return False
        entry.able_since = now
        if entry.ready_at > now:
            self._back_off(entry, now, event)
            if isinstance(event, ClusterEvent):
                heapq.heappush(self._eager, (-entry.pod.priority, entry.arrival, entry.version, uid))
        else:
            self._activate(entry, now, event)
        return True

    def flush(self, now: float) -> None:
        """Backoffs that are over become active."""
        while self._backoff and self._backoff[0][0] <= now:
            _, version, uid = heapq.heappop(self._backoff)
            entry = self.entries.get(uid)
            if entry is not None and entry.version == version and entry.place is Place.BACKOFF:
                self._activate(entry, now, OwnEvent.BACKOFF_COMPLETE)

    def sweep(self, now: float) -> bool:
        """Wake what is parked longer than ``sweep_age_s``, whatever events were missed. True: there is more."""
        for _ in range(SWEPT_AT_ONCE):
            uid = next(iter(self._parked_at), None)
            if uid is None or now - self._parked_at[uid] < self.settings.sweep_age_s:
                return False
            self.rouse(uid, now, OwnEvent.TIMEOUT)
        return True

    def next_ready_at(self) -> float | None:
        """When the next backoff ends; None when nothing backs off."""
        while self._backoff:
            at, version, uid = self._backoff[0]
            entry = self.entries.get(uid)
            if entry is not None and entry.version == version and entry.place is Place.BACKOFF:
                return at
            heapq.heappop(self._backoff)
        return None

    def has_active(self) -> bool:
        """Whether ``pop`` would give anything."""
        return self._top(self._active, Place.ACTIVE) is not None or self._top(self._eager, Place.BACKOFF) is not None

    def count(self) -> dict[Place, int]:
        """Pods per place."""
        return dict(self._count)

    def _top(self, heap: list[tuple[int, int, int, str]], place: Place) -> Entry | None:
        """The first entry of a heap that still is where it says."""
        while heap:
            _, _, version, uid = heap[0]
            entry = self.entries.get(uid)
            if entry is not None and entry.version == version and entry.place is place:
                return entry
            heapq.heappop(heap)
        return None

    def validate(self) -> Iterator[str]:
        """What is broken between entries, heaps, groups and counts; nothing while all is well. Costs as all pods."""
        counted = Counter(entry.place for entry in self.entries.values())
        for place, count in self._count.items():
            if counted[place] != count:
                yield f"queue-count: {count} pods are counted as {place.value}, {counted[place]} are there"
        active, backoff = {item[2:] for item in self._active}, {item[1:] for item in self._backoff}
        for uid, entry in self.entries.items():
            heap = {Place.ACTIVE: active, Place.BACKOFF: backoff}.get(entry.place)
            if entry.pod.uid != uid:
                yield f"queue-key: {entry.pod.uid} is kept under {uid}"
            if heap is not None and (entry.version, uid) not in heap:
                yield f"queue-heap: {uid} is {entry.place.value} and will never be taken"
            group, parked = self.waiting.group_of(uid), entry.place is Place.UNSCHEDULABLE
            if parked != (uid in self._parked_at) or parked != (group is not None):
                yield f"parked: {uid} is {entry.place.value}, which its group and the sweep do not know"
            if group is not None and (uid not in group.members or group.key != group_key(entry.pod)):
                yield f"parked: {uid} waits in a group of other pods"
        for uid in {*self._parked_at, *self.unjudged, *self.waiting.uids()} - self.entries.keys():
            yield f"parked: {uid} is not pending any more, and its group or the sweep keeps it"

    def _move(self, entry: Entry, place: Place, now: float, cause: Cause) -> None:
        uid, story = entry.pod.uid, self.story
        if (cause, entry.place, place) not in LEGAL:
            why = "taken" if cause is None else cause.value
            raise InvalidTransition(uid, entry.place.value, place.value, why, story.lines(uid))
        if cause is None:
            story.add(uid, "{} -> {} (taken)", entry.place, place)
        else:
            story.add(uid, "{} -> {} ({})", "new" if cause is OwnEvent.SEEN else entry.place, place, cause)
        if entry.place is Place.UNSCHEDULABLE:
            self._unpark(entry)
        self._count[entry.place] -= 1
        self._count[place] += 1
        entry.place, entry.since, entry.version = place, now, entry.version + 1

    def _activate(self, entry: Entry, now: float, event: OwnEvent | ClusterEvent) -> None:
        self._move(entry, Place.ACTIVE, now, event)
        self.incoming[Place.ACTIVE, event] += 1
        heapq.heappush(self._active, (-entry.pod.priority, entry.arrival, entry.version, entry.pod.uid))

    def _back_off(self, entry: Entry, now: float, event: OwnEvent | ClusterEvent) -> None:
        self._move(entry, Place.BACKOFF, now, event)
        self.incoming[Place.BACKOFF, event] += 1
        heapq.heappush(self._backoff, (entry.ready_at, entry.version, entry.pod.uid))

    def _park(self, entry: Entry, plugins: frozenset[str], now: float, event: OwnEvent) -> None:
        uid = entry.pod.uid
        self._move(entry, Place.UNSCHEDULABLE, now, event)
        self.incoming[Place.UNSCHEDULABLE, event] += 1
        entry.plugins = plugins
        self.waiting.add(entry.pod, entry.arrival, plugins)
        self._parked_at[uid] = now
        if not plugins:
            self.unjudged[uid] = None

    def _unpark(self, entry: Entry) -> None:
        uid = entry.pod.uid
        del self._parked_at[uid]
        self.waiting.discard(uid)
        self.unjudged.pop(uid, None)

    def _backoff_s(self, entry: Entry) -> float:
        settings = self.settings
        return backoff_s(entry.attempts, first_s=settings.initial_backoff_s, most_s=settings.max_backoff_s)
