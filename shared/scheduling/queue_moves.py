"""How pending pods, and groups of them, move between the places of the scheduling queue: counts, stories, and who
stands in the order (``queue_order.py``).

``queue.py`` says what may be asked of the queue. Every move of a pod goes through ``_move``, of the members of a group
through ``_move_alike``: both refuse what ``places.py`` does not allow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from shared.backoff import backoff_s
from shared.errors import InvalidTransition
from shared.scheduling.parked_groups import ParkedPods, gang_kind, group_key
from shared.scheduling.places import LEGAL, Cause, ClusterEvent, OwnEvent, Place
from shared.scheduling.queue_entries import Entry, QueuedGroup
from shared.scheduling.queue_order import PriorityOrder, name_of
from shared.scheduling.queues import nodes
from shared.scheduling.queues.turns import QueueTurns
from shared.scheduling.story import Story

ASIDE = frozenset({Place.IN_FLIGHT, Place.BACKOFF, Place.GATED})
"""Where pods wait that stand neither in the tree of queues nor parked; of gated ones those that no quota holds."""

MOVED = "{} -> {} ({}), {} members of its group"


class QueueSettings(Struct, frozen=True):
    """Backoff ``initial_backoff_s`` doubles up to ``max_backoff_s``; ``sweep_age_s``: the net under lost events."""

    initial_backoff_s: float = 1.0
    max_backoff_s: float = 10.0
    sweep_age_s: float = 300.0


@dataclass(slots=True)
class Moves:
    """The queue's state, and the moves within it."""

    settings: QueueSettings = field(default_factory=QueueSettings)
    entries: dict[str, Entry] = field(default_factory=dict)
    groups: dict[str, QueuedGroup] = field(default_factory=dict)
    """Pod groups whose members move as one, by key."""
    waiting: ParkedPods = field(default_factory=ParkedPods)
    """The parked pods, by group."""
    unjudged: dict[str, None] = field(default_factory=dict)
    """Uids of those of them that were parked because nobody could judge them: no nodes, or no agents."""
    incoming: Counter[tuple[Place, OwnEvent | ClusterEvent]] = field(default_factory=Counter)
    """Pods that came into a place, by what brought them there; only ever counts up."""
    story: Story = field(default_factory=Story)
    """What happened to each pod; the core that has this queue writes the rest of it."""
    turns: QueueTurns | None = None
    """Who goes next while there are Queue objects; None: priority, then arrival."""
    labelled: bool = False
    """A pod that names a queue was seen."""
    order: PriorityOrder = field(init=False)
    """Who is taken next while there are none, and when backoffs end."""
    _parked_at: dict[str, float] = field(default_factory=dict)
    _count: dict[Place, int] = field(default_factory=lambda: dict.fromkeys(Place, 0))
    _arrivals: int = 0
    _versions: int = 0
    """Of groups: one that is made anew under its key is not taken for the one before."""

    def __post_init__(self) -> None:
        self.order = PriorityOrder(self.entries, self.groups)

    def parked_key(self, entry: Entry) -> Hashable:
        """Under which key a parked pod waits."""
        return group_key(entry.pod) if entry.group is None else gang_kind(entry.pod, entry.plugins)

    def _named(self, name: str) -> Entry | QueuedGroup | None:
        """A pod by uid, a group by key: a key has a colon, and a uid none."""
        return self.entries.get(name) or self.groups.get(name)

    def _wake(self, entry: Entry, now: float, event: OwnEvent | ClusterEvent) -> None:
        """Something may have helped a pod that is not in flight, and those it moves with."""
        group = entry.group
        eager = isinstance(event, ClusterEvent) and entry.place is Place.UNSCHEDULABLE
        at_once = event is OwnEvent.CHANGED or (eager and self._in_turn())
        if group is not None:
            backing = group.ready_at > now and not at_once
            self._bring(group, Place.BACKOFF if backing else Place.ACTIVE, now, event)
            if backing and eager:
                self.order.go_early(group)
            return
        entry.able_since = now
        if entry.ready_at > now and not at_once:
            self._back_off(entry, now, event)
            if eager:
                self.order.go_early(entry)
        else:
            self._activate(entry, now, event)

    def _in_turn(self) -> bool:
        """Whether a unit that is woken joins the others whatever its backoff: queues say by their shares, and not by
        who failed last, who has the room."""
        return self.turns is not None

    def _bring(self, group: QueuedGroup, place: Place, now: float, cause: OwnEvent | ClusterEvent) -> None:
        """A group, with all its members, to where units wait to be taken."""
        self._move_group(group, place, now, cause)
        if place is Place.ACTIVE:
            self._line_up(group)
        else:
            self.order.back_off(group)

    def _move_group(self, group: QueuedGroup, place: Place, now: float, cause: Cause) -> None:
        self._move_all(group.key, group.members.values(), place, now, cause)
        if self.turns is not None and cause is not OwnEvent.QUOTA:
            self.turns.remove(group.key)
            self.turns.unpark(group.key)
            if place is Place.UNSCHEDULABLE and group.members:
                self.turns.park(group.key, next(iter(group.members.values())).pod, now)
        self._versions += 1
        group.place, group.since, group.version = place, now, self._versions
        group.leads.clear()

    def _move_all(self, key: str, entries: Iterable[Entry], place: Place, now: float, cause: Cause) -> None:
        """Members of group ``key`` to where it is, or goes; one that comes from elsewhere has joined them."""
        helped = cause is OwnEvent.CHANGED or isinstance(cause, ClusterEvent)
        coming: dict[Place, list[Entry]] = {}
        for entry in entries:
            if entry.place is not place:
                coming.setdefault(entry.place, []).append(entry)
            if helped:
                entry.able_since = now
        for start, alike in coming.items():
            own = cause if (cause, start, place) in LEGAL else OwnEvent.JOINED
            self._move_alike(key, alike, start, place, now, own)
            if own is not None:
                self.incoming[place, own] += len(alike)

    def _move_alike(
        self, key: str, entries: Sequence[Entry], start: Place, place: Place, now: float, cause: Cause
    ) -> None:
        """As ``_move``, of members that are all in one place: one line of their group's story tells of all."""
        if (cause, start, place) not in LEGAL:
            raise self._illegal(entries[0], place, cause)
        self.story.add(key, MOVED, start, place, "taken" if cause is None else cause, len(entries))
        turns, held, parked = self.turns, cause is OwnEvent.QUOTA, start is Place.UNSCHEDULABLE
        for entry in entries:
            if parked:
                self._unpark(entry)
            if turns is not None:
                self._turn(turns, entry, place, now, cause)
            if start is Place.GATED:
                _released(entry, now)
            entry.place, entry.since, entry.version, entry.held = place, now, entry.version + 1, held
            if turns is not None and place in ASIDE and not held:
                turns.set_aside(entry)
        self._count[start] -= len(entries)
        self._count[place] += len(entries)

    def _failed(self, group: QueuedGroup, now: float) -> None:
        group.attempts += 1
        group.ready_at = now + self._backoff_s(group)
        for entry in group.members.values():
            entry.attempts += 1
            entry.ready_at = group.ready_at

    def _leave(self, entry: Entry) -> None:
        """The pod moves with its group no longer; another member of its kind stands for a parked group."""
        group, uid, entry.group = entry.group, entry.pod.uid, None
        assert group is not None
        del group.members[uid]
        if self.turns is not None:
            self.turns.changed[group.key] = None
            if not group.members:
                self.turns.forget(group.key)
                self.turns.unpark(group.key)
        if not group.members:
            del self.groups[group.key]
        elif uid in group.leads:
            group.leads.discard(uid)
            kind = gang_kind(entry.pod, entry.plugins)
            for other in group.members.values():
                if other.pod.uid not in group.leads and gang_kind(other.pod, other.plugins) == kind:
                    group.leads.add(other.pod.uid)
                    self.waiting.add(other.pod, group.arrival, other.plugins, need=1)
                    return

    def _move(self, entry: Entry, place: Place, now: float, cause: Cause) -> None:
        uid, story = entry.pod.uid, self.story
        if (cause, entry.place, place) not in LEGAL:
            raise self._illegal(entry, place, cause)
        if cause is None:
            story.add(uid, "{} -> {} (taken)", entry.place, place)
        else:
            story.add(uid, "{} -> {} ({})", "new" if cause is OwnEvent.SEEN else entry.place, place, cause)
        if entry.place is Place.UNSCHEDULABLE:
            self._unpark(entry)
        if self.turns is not None:
            self._turn(self.turns, entry, place, now, cause)
        self._count[entry.place] -= 1
        self._count[place] += 1
        if entry.place is Place.GATED:
            _released(entry, now)
        entry.place, entry.since, entry.version = place, now, entry.version + 1
        entry.held = cause is OwnEvent.QUOTA
        if self.turns is not None and place in ASIDE and not entry.held:
            self.turns.set_aside(entry)

    def _illegal(self, entry: Entry, place: Place, cause: Cause) -> InvalidTransition:
        why, pod = "taken" if cause is None else cause.value, entry.pod
        return InvalidTransition(pod.uid, entry.place.value, place.value, why, self.story.lines(pod.uid, pod.group))

    @staticmethod
    def _turn(turns: QueueTurns, entry: Entry, place: Place, now: float, cause: Cause) -> None:
        """The pod leaves one place for another: what that means for the tree of queues."""
        uid = entry.pod.uid
        if place not in ASIDE or cause is OwnEvent.QUOTA:
            turns.take_up(uid)
        if entry.place is Place.IN_FLIGHT:
            turns.dirty[uid] = None
        elif cause is not OwnEvent.QUOTA and entry.group is None:
            turns.remove(uid)
        if place is Place.UNSCHEDULABLE and entry.group is None:
            turns.park(uid, entry.pod, now)

    def catch_up(self, turns: QueueTurns) -> None:
        """Groups whose members changed ask for what they need now: once, however many came and went."""
        changed, turns.changed = turns.changed, {}
        for key in changed:
            group = self.groups.get(key)
            if group is not None and group.place in (Place.ACTIVE, Place.GATED):  # what a quota gates is in the tree
                turns.update(group)

    def _front(self, turns: QueueTurns) -> nodes.WaitingUnit | None:
        """The unit whose turn it is, as it is now: where its minimum or its members changed, limits are asked anew."""
        self.catch_up(turns)
        while (front := turns.front()) is not None:
            unit = self._named(front.key)
            if unit is None or turns.waiting(unit).amounts == front.amounts:
                break
            turns.add(unit)
        return front

    def _line_up(self, unit: Entry | QueuedGroup) -> None:
        """An active unit stands in the order."""
        if self.turns is not None:
            self.turns.add(unit)
        else:
            self.order.line_up(unit)

    def _activate(self, entry: Entry, now: float, event: OwnEvent | ClusterEvent) -> None:
        self._move(entry, Place.ACTIVE, now, event)
        self.incoming[Place.ACTIVE, event] += 1
        if self.turns is None:
            self.order.line_up(entry)
        else:
            self.turns.add(entry)

    def _back_off(self, entry: Entry, now: float, event: OwnEvent | ClusterEvent) -> None:
        self._move(entry, Place.BACKOFF, now, event)
        self.incoming[Place.BACKOFF, event] += 1
        self.order.back_off(entry)

    def _park(self, entry: Entry, plugins: frozenset[str], now: float, event: OwnEvent) -> None:
        uid = entry.pod.uid
        self._move(entry, Place.UNSCHEDULABLE, now, event)
        self.incoming[Place.UNSCHEDULABLE, event] += 1
        entry.plugins = plugins
        self._wait(entry, plugins)
        self._parked_at[uid] = now
        if not plugins:
            self.unjudged[uid] = None

    def _wait(self, entry: Entry, plugins: frozenset[str]) -> None:
        """Under its key among the parked pods, for itself or for its group."""
        if entry.group is None:
            self.waiting.add(entry.pod, entry.arrival, plugins)
        else:
            known = self.waiting.group_of(entry.pod.uid)
            need = known.needs[entry.pod.uid] if known is not None else 1
            self.waiting.add(entry.pod, entry.group.arrival, entry.plugins, need=need)

    def _unpark(self, entry: Entry) -> None:
        uid = entry.pod.uid
        del self._parked_at[uid]
        self.waiting.discard(uid)
        self.unjudged.pop(uid, None)
        if self.turns is not None:
            self.turns.unpark(uid)

    def _backoff_s(self, unit: Entry | QueuedGroup) -> float:
        settings = self.settings
        return backoff_s(unit.attempts, first_s=settings.initial_backoff_s, most_s=settings.max_backoff_s)

    def validate(self) -> Iterator[str]:
        """What is broken between entries, heaps, groups and counts; nothing while all is well. Costs as all pods."""
        counted = Counter(entry.place for entry in self.entries.values())
        for place, count in self._count.items():
            if counted[place] != count:
                yield f"queue-count: {count} pods are counted as {place.value}, {counted[place]} are there"
        heaps = self.order.standing()
        if (turns := self.turns) is not None:
            beside = {uid for uid, entry in self.entries.items() if entry.place in ASIDE and not entry.held}
            for uid in turns.aside_of.keys() ^ beside:
                yield f"queue-aside: {uid} is set aside {'wrongly' if uid in turns.aside_of else 'and not counted'}"
            standing = [unit for name in (*turns.tree.units, *turns.tree.reserved) if (unit := self._named(name))]
            heaps[Place.ACTIVE] = {(unit.version, name_of(unit)) for unit in standing}
        for uid, entry in self.entries.items():
            heap = heaps.get(entry.place)
            if entry.pod.uid != uid:
                yield f"queue-key: {entry.pod.uid} is kept under {uid}"
            if heap is not None and entry.group is None and (entry.version, uid) not in heap:
                yield f"queue-heap: {uid} is {entry.place.value} and will never be taken"
            yield from self._broken_waiting(entry)
            if entry.group is not None and entry.group.members.get(uid) is not entry:
                yield f"queue-group: {uid} moves with {entry.group.key}, which does not know it"
        for key, group in self.groups.items():
            heap = heaps.get(group.place)
            if heap is not None and (group.version, key) not in heap:
                yield f"queue-heap: {key} is {group.place.value} and will never be taken"
            if not group.members:
                yield f"queue-group: {key} has no members"
            if group.place is Place.UNSCHEDULABLE and not group.leads:
                yield f"queue-group: {key} is parked, and no member stands for it"
            for uid, entry in group.members.items():
                if self.entries.get(uid) is not entry or entry.group is not group or entry.place is not group.place:
                    yield f"queue-group: {uid} is elsewhere than {key}, with which it moves"
        for uid in {*self._parked_at, *self.unjudged, *self.waiting.uids()} - self.entries.keys():
            yield f"parked: {uid} is not pending any more, and its group or the sweep keeps it"

    def _broken_waiting(self, entry: Entry) -> Iterator[str]:
        uid, parked = entry.pod.uid, entry.place is Place.UNSCHEDULABLE
        group = self.waiting.group_of(uid)
        stands = parked and (entry.group is None or uid in entry.group.leads)
        if parked != (uid in self._parked_at) or stands != (group is not None):
            yield f"parked: {uid} is {entry.place.value}, which its group and the sweep do not know"
        if group is not None and (uid not in group.members or group.key != self.parked_key(entry)):
            yield f"parked: {uid} waits in a group of other pods"


def _released(entry: Entry, now: float) -> None:
    """The pod is gated no longer: latencies do not count how long it was, as kube-scheduler's do not."""
    entry.held_s += max(0.0, now - entry.since)
    entry.able_since = now
