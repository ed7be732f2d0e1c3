"""The queue of pending units as data: active, backoff, unschedulable, gated. ``now`` is an argument.

        add                      pop
    -----------> ACTIVE ------------------> (in flight, the caller's)
                 ^    ^                        |          |
      backoff    |    | woken (it may be       | retry    | park (no node fits)
      over       |    |  helped) / sweep       v          v
                 +-- BACKOFF <-------------- (error)   UNSCHEDULABLE
                 |        ^                               |
                 +--------+-------------------------------+  (woken while its backoff still runs: BACKOFF)

Order: priority first, then arrival. Backoff 1 s doubling to 10 s, as kube-scheduler; a pod that was woken is taken out
of its backoff when nobody of its priority or above is active (kube-scheduler: when nobody at all is), a gang that
waits for the place of a member it had also before others of its priority, and where queues say who goes, at once. A pod
is parked only when no node takes it at that moment, and whatever changes that wakes it (the coordinator's
``requeueing.py``): no wake-up is lost. Parked pods are held by group (``parked_groups.py``), so an event costs by whom
it may help, not by how many wait.

Members of a pod group that go together or not at all (``join``) are one item: ordered by the group's priority and its
first arrival, taken, backed off, parked and woken as one. One whose group cannot be tried yet is GATED: nothing but
its group wakes it.

``places.py`` says which cause takes a pod from which place to which; any other move raises ``InvalidTransition``. A pod
that is given back and is not in flight any more is late news, and stays where it is (I9).
"""

from __future__ import annotations

from collections.abc import Iterable

from shared.model.pod import Pod
from shared.model.units.queue import QUEUE_LABEL
from shared.scheduling.places import ClusterEvent, OwnEvent, Place
from shared.scheduling.queue_entries import Entry
from shared.scheduling.queue_groups import GroupQueue
from shared.scheduling.queue_moves import ASIDE
from shared.scheduling.queues.turns import QueueTurns

READ_OWN_LABELS = frozenset({"PodTopologySpread", "InterPodAffinity"})
"""Plugins for which a pod's own labels decide: selectors of others mean it, and its own may mean itself."""


SWEPT_AT_ONCE = 64
"""Pods that one look of a sweep wakes at most: about as many as one cycle takes."""


class PodQueue(GroupQueue):
    """Pending pods by uid; every one is in exactly one place (I3)."""

    def add(self, pod: Pod, now: float, *, gated: bool = False) -> None:
        """A pending pod was seen for the first time (``gated``: it must wait for its group), or anew: an update keeps
        place and order.

        A changed class or demands, labels that a rejecting rule reads, and a nomination taken away make it active.
        """
        entry = self.entries.get(pod.uid)
        if entry is None:
            self._arrivals += 1
            entry = self.entries[pod.uid] = Entry(pod, Place.ACTIVE, self._arrivals, first_seen=now, able_since=now)
            self.labelled |= QUEUE_LABEL in pod.labels
            self._count[Place.ACTIVE] += 1
            if gated:
                self._move(entry, Place.GATED, now, OwnEvent.SEEN)
                self.incoming[Place.GATED, OwnEvent.SEEN] += 1
            else:
                self._activate(entry, now, OwnEvent.SEEN)
            return
        before, entry.pod = entry.pod, pod
        self.labelled |= QUEUE_LABEL in pod.labels
        if entry.place is Place.IN_FLIGHT or (entry.place is Place.GATED and not entry.held):
            return
        group = self.waiting.group_of(pod.uid)
        plugins = entry.plugins if group is None else entry.plugins | group.plugins
        changed = (
            before.pod_class != pod.pod_class
            or before.priority != pod.priority
            or (before.labels != pod.labels and not plugins.isdisjoint(READ_OWN_LABELS))
            or before.relations != pod.relations
            or before.claimed != pod.claimed
            or before.nominated_node != pod.nominated_node == ""
            or (self.turns is not None and before.labels.get(QUEUE_LABEL) != pod.labels.get(QUEUE_LABEL))
        )
        if changed:
            entry.able_since = now
            self._wake(entry, now, OwnEvent.CHANGED)
        elif group is not None and group.key != self.parked_key(entry):
            self._wait(entry, plugins)

    def renominate(self, uid: str, pod: Pod) -> None:
        """The pod is nominated to another node, or to none any more; its place stays."""
        entry = self.entries.get(uid)
        if entry is None:
            return
        entry.pod = pod
        if entry.place is Place.UNSCHEDULABLE and uid in self.waiting:
            self._wait(entry, entry.plugins)

    def remove(self, uid: str) -> Entry | None:
        """The pod is bound, deleted or not ours any more."""
        entry = self.entries.pop(uid, None)
        if entry is not None:
            self._count[entry.place] -= 1
            if entry.place is Place.UNSCHEDULABLE:
                self._unpark(entry)
            if self.turns is not None:
                self.turns.forget(uid)
                self.turns.dirty[uid] = None
            if entry.group is not None:
                self._leave(entry)
            self.story.add(uid, "{} -> not pending any more", entry.place)
        return entry

    def pop_unit(self, now: float) -> list[Pod]:
        """The next unit in order, a lone pod or the members of a group; in flight until given back or removed."""
        if self.order.backing_off:
            self.flush(now)
        if self.turns is not None:
            return self._pop_in_turn(self.turns, now)
        unit = self.order.take()
        if unit is None:
            return []
        if isinstance(unit, Entry):
            self._move(unit, Place.IN_FLIGHT, now, None)
            return [unit.pod]
        self._move_group(unit, Place.IN_FLIGHT, now, None)
        return [entry.pod for entry in unit.in_order()]

    def _pop_in_turn(self, turns: QueueTurns, now: float) -> list[Pod]:
        """The unit whose turn it is by the tree of queues."""
        front = self._front(turns)
        unit = self._named(front.key) if front is not None else None
        if front is None or unit is None:
            return []
        entries = [unit] if isinstance(unit, Entry) else unit.in_order()
        left = {pod.uid for pod in turns.take(front, [entry.pod for entry in entries])}
        for entry in entries:
            if entry.pod.uid in left:  # the quota has room for the minimum, not for this one
                self._leave(entry)
                self.gate(entry.pod.uid, now)
        if isinstance(unit, Entry):
            self._move(unit, Place.IN_FLIGHT, now, None)
            return [unit.pod]
        self._move_group(unit, Place.IN_FLIGHT, now, None)
        return [entry.pod for entry in unit.in_order()]

    def hold_back(self, name: str, now: float) -> list[Pod]:
        """A quota holds the unit back: its pods, which are gated from now on and stay in the order of their queue."""
        unit = self._named(name)
        if unit is None or unit.place not in (Place.ACTIVE, Place.GATED):
            return []
        if isinstance(unit, Entry):
            if unit.place is Place.ACTIVE:
                self._move(unit, Place.GATED, now, OwnEvent.QUOTA)
                self.incoming[Place.GATED, OwnEvent.QUOTA] += 1
            return [unit.pod] if unit.held else []
        if unit.place is Place.ACTIVE:
            self._move_group(unit, Place.GATED, now, OwnEvent.QUOTA)
        return [entry.pod for entry in unit.in_order()]

    def take_turns(self, turns: QueueTurns | None, now: float) -> None:
        """The order is the tree's from now on, or (None) priority and arrival again. Costs as all pods that wait."""
        if self.turns is not None:
            for entry in self.entries.values():
                if entry.held and entry.group is None:
                    self._wake(entry, now, OwnEvent.CHANGED)
            for group in list(self.groups.values()):
                if group.place is Place.GATED:
                    self._bring(group, Place.ACTIVE, now, OwnEvent.CHANGED)
        self.turns = turns
        self.order.forget_active()
        for entry in self.entries.values():
            if turns is not None and entry.place in ASIDE:
                turns.set_aside(entry)
            if entry.group is None and entry.place is Place.ACTIVE:
                self._line_up(entry)
            elif turns is not None and entry.group is None and entry.place is Place.UNSCHEDULABLE:
                turns.park(entry.pod.uid, entry.pod, now)
        for group in self.groups.values():
            if group.place is Place.ACTIVE:
                self._line_up(group)
            elif turns is not None and group.place is Place.UNSCHEDULABLE:
                turns.park(group.key, group.in_order()[0].pod, now)

    def pop(self, count: int, now: float) -> list[Pod]:
        """Units in order until there are ``count`` pods or more; fewer where no more are active."""
        pods: list[Pod] = []
        while len(pods) < count and (unit := self.pop_unit(now)):
            pods += unit
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

    def wake(self, uid: str, now: float, event: OwnEvent | ClusterEvent = OwnEvent.WOKEN) -> bool:
        """Wake one parked pod; while its backoff runs it waits for the end, or if something happened in the cluster
        that helps it (a ``ClusterEvent``), only for those before it. False: it is not parked."""
        entry = self.entries.get(uid)
        if entry is None or entry.place is not Place.UNSCHEDULABLE:
            return False
        self._wake(entry, now, event)
        return True

    def flush(self, now: float) -> None:
        """Backoffs that are over become active."""
        for unit in self.order.ended(now):
            if isinstance(unit, Entry):
                self._activate(unit, now, OwnEvent.BACKOFF_COMPLETE)
            else:
                self._bring(unit, Place.ACTIVE, now, OwnEvent.BACKOFF_COMPLETE)

    def sweep(self, now: float) -> bool:
        """Wake what is parked longer than ``sweep_age_s``, whatever events were missed. True: there is more."""
        for _ in range(SWEPT_AT_ONCE):
            uid = next(iter(self._parked_at), None)
            if uid is None or now - self._parked_at[uid] < self.settings.sweep_age_s:
                return False
            self.wake(uid, now, OwnEvent.TIMEOUT)
        return True

    def has_active(self) -> bool:
        """Whether ``pop`` would give anything."""
        if self.turns is not None:
            self.catch_up(self.turns)
            return self.turns.front() is not None or self.turns.tree.more
        return self.order.has_any()

    def count(self) -> dict[Place, int]:
        """Pods per place."""
        return dict(self._count)
