"""The queue of pending units as data: active, backoff, unschedulable. ``now`` is an argument; nothing waits here.

        add                      pop
    -----------> ACTIVE ------------------> (in flight, the caller's)
                 ^    ^                        |          |
      backoff    |    | event that may help    | retry    | no node fits
      over       |    | / sweep after 5 min    v          v
                 +-- BACKOFF <-------------- (error)   UNSCHEDULABLE
                 |        ^                               |
                 +--------+-------------------------------+  (woken while its backoff still runs: BACKOFF)

Order: priority first, then arrival. Backoff 1 s doubling to 10 s, as kube-scheduler. An event that arrives while a
unit is in flight may be the one that would help it: ``mark_in_flight`` remembers the event count, and a unit that
comes back unschedulable after newer events goes to backoff and not to sleep (no lost wake-up).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from shared.model.pod import Pod


class Place(Enum):
    """Where a pending pod is."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    IN_FLIGHT = "in_flight"


class OwnEvent(Enum):
    """Why a pod came into a place, where that was no event of the cluster."""

    SEEN = "seen"
    CHANGED = "changed"
    ATTEMPT_FAILED = "attempt_failed"
    RACE_LOST = "race_lost"
    BACKOFF_COMPLETE = "backoff_complete"
    TIMEOUT = "timeout"
    ROUSED = "roused"


class ClusterEvent(Enum):
    """What happened in the cluster that may make a pod schedulable."""

    NODE_ADDED = "node_added"
    NODE_ALLOCATABLE = "node_allocatable"
    NODE_LABELS = "node_labels"
    NODE_TAINTS = "node_taints"
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


HELPS: dict[str, frozenset[ClusterEvent]] = {
    "NodeUnschedulable": frozenset({ClusterEvent.NODE_ADDED, ClusterEvent.NODE_TAINTS}),
    "NodeName": frozenset({ClusterEvent.NODE_ADDED}),
    "TaintToleration": frozenset({ClusterEvent.NODE_ADDED, ClusterEvent.NODE_TAINTS}),
    "NodeAffinity": frozenset({ClusterEvent.NODE_ADDED, ClusterEvent.NODE_LABELS}),
    "NodePorts": frozenset({ClusterEvent.NODE_ADDED, ClusterEvent.POD_DELETED}),
    "NodeResourcesFit": frozenset({ClusterEvent.NODE_ADDED, ClusterEvent.NODE_ALLOCATABLE, ClusterEvent.POD_DELETED}),
    "VolumeRestrictions": frozenset({ClusterEvent.NODE_ADDED, ClusterEvent.POD_DELETED, ClusterEvent.CLAIM_CHANGED}),
    "NodeVolumeLimits": frozenset(
        {
            ClusterEvent.NODE_ADDED,
            ClusterEvent.POD_DELETED,
            ClusterEvent.CSI_NODE_CHANGED,
            ClusterEvent.CLAIM_CHANGED,
            ClusterEvent.VOLUME_CHANGED,
        }
    ),
    "VolumeBinding": frozenset(
        {
            ClusterEvent.NODE_ADDED,
            ClusterEvent.NODE_LABELS,
            ClusterEvent.CLAIM_CHANGED,
            ClusterEvent.VOLUME_CHANGED,
            ClusterEvent.STORAGE_CLASS_CHANGED,
            ClusterEvent.CSI_NODE_CHANGED,
        }
    ),
    "VolumeZone": frozenset(
        {
            ClusterEvent.NODE_ADDED,
            ClusterEvent.NODE_LABELS,
            ClusterEvent.CLAIM_CHANGED,
            ClusterEvent.VOLUME_CHANGED,
            ClusterEvent.STORAGE_CLASS_CHANGED,
        }
    ),
    "PodTopologySpread": frozenset(
        {
            ClusterEvent.NODE_ADDED,
            ClusterEvent.NODE_DELETED,
            ClusterEvent.NODE_LABELS,
            ClusterEvent.NODE_TAINTS,
            ClusterEvent.POD_ADDED,
            ClusterEvent.POD_LABELS,
            ClusterEvent.POD_DELETED,
        }
    ),
    "InterPodAffinity": frozenset(
        {
            ClusterEvent.NODE_ADDED,
            ClusterEvent.NODE_LABELS,
            ClusterEvent.POD_ADDED,
            ClusterEvent.POD_LABELS,
            ClusterEvent.POD_DELETED,
            ClusterEvent.NAMESPACE_LABELS,
        }
    ),
    "ConclaveGpuDevices": frozenset({ClusterEvent.NODE_ADDED, ClusterEvent.NODE_ALLOCATABLE, ClusterEvent.POD_DELETED}),
}
"""Which events can help a pod that a plugin rejected; a plugin not named here is woken by every event."""

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
    events_seen: int = 0
    first_seen: float = 0.0
    version: int = 0
    able_since: float = 0.0
    """Since when a node may take it, as far as is known: first seen, or woken last. What latencies count from."""


@dataclass(slots=True)
class PodQueue:
    """Pending pods by uid; every one is in exactly one place (I3)."""

    settings: QueueSettings = field(default_factory=QueueSettings)
    entries: dict[str, Entry] = field(default_factory=dict)
    incoming: Counter[tuple[Place, OwnEvent | ClusterEvent]] = field(default_factory=Counter)
    """Pods that came into a place, by what brought them there; only ever counts up."""
    _active: list[tuple[int, int, int, str]] = field(default_factory=list)
    _backoff: list[tuple[float, int, str]] = field(default_factory=list)
    _arrivals: int = 0
    _events: int = 0
    _recent: list[tuple[int, ClusterEvent]] = field(default_factory=list)
    _parked: dict[frozenset[str], set[str]] = field(default_factory=dict)

    def add(self, pod: Pod, now: float) -> None:
        """A pending pod was seen for the first time, or anew: an update keeps place and order.

        A changed class or demands, labels that a rejecting rule reads, and a nomination taken away make it active.
        """
        entry = self.entries.get(pod.uid)
        if entry is None:
            self._arrivals += 1
            entry = self.entries[pod.uid] = Entry(pod, Place.ACTIVE, self._arrivals, first_seen=now, able_since=now)
            self._activate(entry, now, OwnEvent.SEEN)
            return
        changed = (
            entry.pod.pod_class != pod.pod_class
            or entry.pod.priority != pod.priority
            or (entry.pod.labels != pod.labels and not entry.plugins.isdisjoint(READ_OWN_LABELS))
            or entry.pod.relations != pod.relations
            or entry.pod.nominated_node != pod.nominated_node == ""
        )
        entry.pod = pod
        if changed and entry.place is not Place.IN_FLIGHT:
            self._unpark(entry)
            entry.able_since = now
            self._activate(entry, now, OwnEvent.CHANGED)

    def remove(self, uid: str) -> Entry | None:
        """The pod is bound, deleted or not ours any more."""
        entry = self.entries.pop(uid, None)
        if entry is not None:
            self._unpark(entry)
        return entry

    def pop(self, count: int, now: float) -> list[Pod]:
        """Up to ``count`` active pods in order; they are in flight until given back or removed."""
        self.flush(now)
        pods: list[Pod] = []
        while self._active and len(pods) < count:
            _, _, version, uid = heapq.heappop(self._active)
            entry = self.entries.get(uid)
            if entry is None or entry.version != version or entry.place is not Place.ACTIVE:
                continue
            entry.place, entry.since, entry.events_seen = Place.IN_FLIGHT, now, self._events
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
        self._back_off(entry, now)

    def park(self, uid: str, plugins: Iterable[str], now: float) -> None:
        """No node takes the pod in flight: sleep until an event that may help, unless one came meanwhile."""
        entry = self.entries.get(uid)
        if entry is None or entry.place is not Place.IN_FLIGHT:
            return
        entry.attempts += 1
        entry.plugins = frozenset(plugins)
        if self._missed(entry):
            self._back_off(entry, now)
            return
        entry.place, entry.since = Place.UNSCHEDULABLE, now
        self.incoming[Place.UNSCHEDULABLE, OwnEvent.ATTEMPT_FAILED] += 1
        self._parked.setdefault(entry.plugins, set()).add(uid)
        entry.ready_at = now + self._backoff_s(entry)

    def hold(self, uid: str, plugins: Iterable[str], now: float) -> None:
        """Nothing is wrong with the pod in flight, but it must wait for others that are on their way.

        As ``park``, but no attempt has failed: there is no backoff, and after an event that may help none at all.
        """
        entry = self.entries.get(uid)
        if entry is None or entry.place is not Place.IN_FLIGHT:
            return
        entry.plugins = frozenset(plugins)
        if self._missed(entry):
            self._activate(entry, now, OwnEvent.RACE_LOST)
            return
        entry.place, entry.since, entry.ready_at = Place.UNSCHEDULABLE, now, now
        self.incoming[Place.UNSCHEDULABLE, OwnEvent.RACE_LOST] += 1
        self._parked.setdefault(entry.plugins, set()).add(uid)

    def wake(self, event: ClusterEvent, now: float, judge: Callable[[Pod], frozenset[str]] | None = None) -> int:
        """An event happened: move the parked pods it can help to active, or to backoff while that runs. Count.

        ``judge`` tells which plugins still reject a pod where something changed; none: it is helped. A pod that is
        not helped waits from now on for what can change their minds too: a node may be labelled while it is full.
        """
        self._events += 1
        self._recent.append((self._events, event))
        del self._recent[:-512]
        helped = [uid for plugins, uids in self._parked.items() if _helps(plugins, event) for uid in uids]
        woken = 0
        for entry in sorted((self.entries[uid] for uid in helped), key=lambda e: e.arrival):
            still = judge(entry.pod) if judge is not None else frozenset()
            if still:
                self._unpark(entry)
                entry.plugins |= still
                self._parked.setdefault(entry.plugins, set()).add(entry.pod.uid)
                continue
            woken += 1
            self._rouse(entry, now, event)
        return woken

    def rouse(self, uid: str, now: float) -> None:
        """Wake one parked pod; it waits for the rest of its backoff."""
        entry = self.entries.get(uid)
        if entry is not None and entry.place is Place.UNSCHEDULABLE:
            self._rouse(entry, now, OwnEvent.ROUSED)

    def flush(self, now: float) -> None:
        """Backoffs that are over become active."""
        while self._backoff and self._backoff[0][0] <= now:
            _, version, uid = heapq.heappop(self._backoff)
            entry = self.entries.get(uid)
            if entry is not None and entry.version == version and entry.place is Place.BACKOFF:
                self._activate(entry, now, OwnEvent.BACKOFF_COMPLETE)

    def sweep(self, now: float) -> int:
        """Wake everything parked longer than ``sweep_age_s``, whatever events were missed. Count."""
        old = [
            e for e in self.entries.values()
            if e.place is Place.UNSCHEDULABLE and now - e.since >= self.settings.sweep_age_s
        ]  # fmt: skip
        for entry in old:
            self._rouse(entry, now, OwnEvent.TIMEOUT)
        return len(old)

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
        while self._active:
            _, _, version, uid = self._active[0]
            entry = self.entries.get(uid)
            if entry is not None and entry.version == version and entry.place is Place.ACTIVE:
                return True
            heapq.heappop(self._active)
        return False

    def count(self) -> dict[Place, int]:
        """Pods per place."""
        # by identity: hashing an enum's member 20,000 times takes as long as scheduling a batch
        places = [entry.place for entry in self.entries.values()]
        return {place: places.count(place) for place in Place}

    def _missed(self, entry: Entry) -> bool:
        """Whether an event that may help came while the pod was in flight, or more than are remembered."""
        recent = self._recent
        if recent and recent[0][0] > entry.events_seen + 1:
            return True
        return any(number > entry.events_seen and _helps(entry.plugins, event) for number, event in reversed(recent))

    def _activate(self, entry: Entry, now: float, event: OwnEvent | ClusterEvent) -> None:
        self.incoming[Place.ACTIVE, event] += 1
        entry.place, entry.since, entry.version = Place.ACTIVE, now, entry.version + 1
        heapq.heappush(self._active, (-entry.pod.priority, entry.arrival, entry.version, entry.pod.uid))

    def _back_off(self, entry: Entry, now: float) -> None:
        self.incoming[Place.BACKOFF, OwnEvent.ATTEMPT_FAILED] += 1
        entry.place, entry.since, entry.version = Place.BACKOFF, now, entry.version + 1
        entry.ready_at = now + self._backoff_s(entry)
        heapq.heappush(self._backoff, (entry.ready_at, entry.version, entry.pod.uid))

    def _unpark(self, entry: Entry) -> None:
        parked = self._parked.get(entry.plugins)
        if parked is not None:
            parked.discard(entry.pod.uid)
            if not parked:
                del self._parked[entry.plugins]

    def _rouse(self, entry: Entry, now: float, event: OwnEvent | ClusterEvent) -> None:
        self._unpark(entry)
        entry.able_since = now
        if entry.ready_at > now:
            self.incoming[Place.BACKOFF, event] += 1
            entry.place, entry.since, entry.version = Place.BACKOFF, now, entry.version + 1
            heapq.heappush(self._backoff, (entry.ready_at, entry.version, entry.pod.uid))
        else:
            self._activate(entry, now, event)

    def _backoff_s(self, entry: Entry) -> float:
        doublings = min(max(entry.attempts - 1, 0), 32)
        return min(self.settings.initial_backoff_s * float(2**doublings), self.settings.max_backoff_s)


def _helps(plugins: frozenset[str], event: ClusterEvent) -> bool:
    if not plugins or event is ClusterEvent.AGENT_JOINED:
        return True
    return any(plugin not in HELPS or event in HELPS[plugin] for plugin in plugins)
