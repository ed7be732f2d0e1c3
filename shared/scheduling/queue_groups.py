"""Members of pod groups in the scheduling queue: they begin to move as one, wait for each other, and part again.

gated --join--> one item, in its own place --disband, or its pod leaves--> alone again
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from shared.scheduling.parked_groups import gang_kind
from shared.scheduling.places import ClusterEvent, OwnEvent, Place
from shared.scheduling.queue_entries import Entry, QueuedGroup
from shared.scheduling.queue_moves import Moves

AHEAD = 2**40
"""Before all arrivals."""


class GroupQueue(Moves):
    """What may be asked of the queue for pod groups, by key."""

    def join(
        self, key: str, uids: Iterable[str], priority: int, now: float, event: ClusterEvent, *, ahead: bool = False
    ) -> None:
        """These pods move with the others of their group from now on; that they came may help it: it is tried again,
        once its backoff is over, theirs included. A group that a quota holds back stays so, until its queue has room
        for it with them. Pods in flight, and groups in flight, are left alone. ``ahead``: it goes before all others of
        its priority."""
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = QueuedGroup(key, priority)
        if group.place is Place.IN_FLIGHT:
            return
        held = group.place is Place.GATED and bool(group.members)
        before = group.priority, group.arrival, group.ready_at
        group.priority = priority
        joining = [
            entry for uid in uids
            if (entry := self.entries.get(uid)) is not None and entry.place is not Place.IN_FLIGHT
        ]  # fmt: skip
        for entry in joining:
            if entry.group is None:
                if self.turns is not None:
                    self.turns.remove(entry.pod.uid)  # it stood in the tree for itself
                entry.group = group
                entry.version += 1
                group.arrival = min(group.arrival or entry.arrival, entry.arrival)
                group.ready_at = max(group.ready_at, entry.ready_at)
                group.attempts = max(group.attempts, entry.attempts)
                group.members[entry.pod.uid] = entry
        if ahead is not (group.arrival < 0):
            group.arrival += -AHEAD if ahead else AHEAD
        place = Place.BACKOFF if group.ready_at > now else Place.ACTIVE
        if not group.members:
            del self.groups[key]
        elif held and self.turns is not None:
            self._move_all(key, joining, Place.GATED, now, OwnEvent.GATED)
            for entry in joining:
                entry.held = True
                self.turns.take_up(entry.pod.uid)
            self.turns.changed[key] = None
        elif group.place is not place or before != (group.priority, group.arrival, group.ready_at):
            self._bring(group, place, now, event)
        else:
            self._move_all(key, joining, place, now, event)
            if self.turns is not None:
                self.turns.changed[key] = None

    def change_queue(self, key: str, uids: Iterable[str], now: float) -> None:
        """The pod group names another queue than before: its members, these among them that move alone, wait for
        their turn there from now on."""
        group = self.groups.get(key)
        if self.turns is not None:
            self.turns.moves += 1  # those set aside, too
        if group is not None and group.place is not Place.IN_FLIGHT:
            self._bring(group, Place.ACTIVE, now, OwnEvent.CHANGED)
        for uid in uids:
            entry = self.entries.get(uid)
            if entry is None or entry.group is not None or entry.place is Place.IN_FLIGHT:
                continue
            if entry.held or entry.place is not Place.GATED:
                self._wake(entry, now, OwnEvent.CHANGED)

    def disband(self, key: str, now: float, event: ClusterEvent) -> None:
        """The members move alone from now on, from where they are; parked ones are tried."""
        group = self.groups.pop(key, None)
        if self.turns is not None:
            self.turns.forget(key)
            self.turns.unpark(key)
        for entry in group.members.values() if group is not None else ():
            entry.group = None
            entry.version += 1
            if entry.place is Place.UNSCHEDULABLE:
                self._wake(entry, now, event)
            elif entry.place is Place.ACTIVE:
                self._line_up(entry)
            elif entry.held:
                self._wake(entry, now, event)
            elif entry.place is Place.BACKOFF:
                self.order.back_off(entry)
                if self.turns is not None:
                    self.turns.set_aside(entry)

    def gate(self, uid: str, now: float) -> None:
        """The pod's group cannot be tried any more, or not with it; one in flight is left alone."""
        entry = self.entries.get(uid)
        if entry is not None and entry.held:
            entry.held = False
            if self.turns is not None:
                self.turns.remove(uid)
                self.turns.set_aside(entry)
        if entry is None or entry.place in (Place.IN_FLIGHT, Place.GATED):
            return
        self._move(entry, Place.GATED, now, OwnEvent.GATED)
        self.incoming[Place.GATED, OwnEvent.GATED] += 1
        if entry.group is not None:
            self._leave(entry)

    def ungate(self, uid: str, now: float, event: ClusterEvent) -> None:
        """The pod may be tried on its own, whatever its group does."""
        entry = self.entries.get(uid)
        if entry is not None and entry.place is Place.GATED:
            self._wake(entry, now, event)

    def retry_group(self, key: str, now: float, *, failed: bool = True) -> None:
        """As ``retry``, of a group in flight."""
        group = self.groups.get(key)
        if group is None or group.place is not Place.IN_FLIGHT:
            return
        if not failed:
            self._bring(group, Place.ACTIVE, now, OwnEvent.RACE_LOST)
            return
        self._failed(group, now)
        self._bring(group, Place.BACKOFF, now, OwnEvent.ATTEMPT_FAILED)

    def park_group(self, key: str, plugins: Iterable[str], lacking: int, now: float) -> None:
        """As ``park``, of a group in flight that lacks places for ``lacking`` members."""
        group = self.groups.get(key)
        if group is None or group.place is not Place.IN_FLIGHT:
            return
        self._failed(group, now)
        self._move_group(group, Place.UNSCHEDULABLE, now, OwnEvent.ATTEMPT_FAILED)
        kinds: dict[object, list[Entry]] = {}
        for entry in group.members.values():
            entry.plugins = frozenset(plugins)
            self._parked_at[entry.pod.uid] = now
            if not entry.plugins:
                self.unjudged[entry.pod.uid] = None
            kinds.setdefault(gang_kind(entry.pod, entry.plugins), []).append(entry)
        for alike in kinds.values():
            # so many of this kind must fit, if all others of the group do
            need = max(1, lacking - (len(group.members) - len(alike)))
            group.leads.add(alike[0].pod.uid)
            self.waiting.add(alike[0].pod, group.arrival, alike[0].plugins, need=need)

    def groups_by_place(self) -> Counter[Place]:
        """How many groups move as one, by place. Costs as all of them."""
        return Counter(group.place for group in self.groups.values())
