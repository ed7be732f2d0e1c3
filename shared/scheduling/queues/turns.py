"""The seam between the scheduling queue and the tree of queues: whose turn it is, and which pods must be counted anew.

While there are Queue objects, units that are ready stand in the tree and not in the scheduling queue's own heap. The
pods of a unit count from the moment it is taken; what became of them afterwards (assumed, bound, given back, gone) is
told by uid in ``dirty`` and looked up once per turn, by whoever knows the accounting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from shared.model.pod import Pod
from shared.model.resources import PODS
from shared.model.units.queue import QUEUE_LABEL
from shared.scheduling.places import Place
from shared.scheduling.queue_entries import Entry, QueuedGroup
from shared.scheduling.queues.nodes import Amounts, Charge, QueueNode, WaitingUnit, lines_of
from shared.scheduling.queues.tree import QueueTree


@lru_cache(maxsize=4096)
def amounts_of(requests: Amounts) -> Amounts:
    """What a pod that requests this counts as: the pod itself too."""
    return tuple(sorted((*requests, (PODS, 1))))


class QueueTurns:
    """``lacking``: how many members of a pod group must go at once; ``group_label``: the queue that a group names;
    ``least``: how many members of a group must stay, or none does."""

    def __init__(
        self,
        tree: QueueTree,
        lacking: Callable[[str], int],
        group_label: Callable[[str], str],
        least: Callable[[str], int],
    ) -> None:
        self.tree = tree
        self._lacking = lacking
        self._group_label = group_label
        self._least = least
        self.dirty: dict[str, None] = {}
        """Uids of pods that may have begun, or ceased, to count."""
        self.nominated: dict[str, None] = {}
        """Uids of pods that may have been nominated, or are not any more."""
        self.moves = 0
        """Counts up with each unit that is parked or set aside, or not any more."""
        self.parked: dict[str, dict[str, float]] = {}
        """By queue: units that no node takes, in the order in which reclaim looks at them; since when."""
        self._parked_in: dict[str, str] = {}
        self.fresh: dict[str, dict[str, None]] = {}
        """Of the queues that reclaim, those of them that were not looked at since they were parked, the oldest first;
        whoever looks at them takes them out."""
        self.held_anew = False
        """A limit holds back a unit of such a queue, that was free to go before; whoever looks at it sets it back."""
        self._aside: dict[str, dict[str, Entry]] = {}
        """Units that wait, and neither in the tree nor parked, with those of their pods that do: on their way to a
        node, backing off, or members of a group that must not be tried yet."""
        self.aside_of: dict[str, str] = {}
        """By uid, of which unit."""
        self._aside_by_queue: tuple[tuple[int, int], Counter[str]] = (-1, -1), Counter()
        self.changed: dict[str, None] = {}
        """Keys of groups that stand here, and whose members are others by now."""
        self._wanted: dict[str, float] = {}
        """By unit: since when it could have gone, but for what others borrowed."""

    # --- units that wait ----------------------------------------------------------------------------------------

    def add(self, unit: Entry | QueuedGroup) -> None:
        """The unit is ready to be taken."""
        self.tree.add(self.waiting(unit))

    def update(self, unit: Entry | QueuedGroup) -> None:
        """The unit's members changed: it stands where it is, unless it asks for something else by now."""
        now, tree = self.waiting(unit), self.tree
        known = tree.units.get(now.key) or tree.reserved.get(now.key)
        asked = (now.amounts, now.priority, now.arrival, now.label)
        if known is None or (known.amounts, known.priority, known.arrival, known.label) != asked:
            tree.add(now)

    def waiting(self, unit: Entry | QueuedGroup) -> WaitingUnit:
        """The unit as it waits; of a group, as many members as must go at once."""
        if isinstance(unit, Entry):
            pods, key, priority = [unit.pod], unit.pod.uid, unit.pod.priority
        else:
            members = [entry.pod for entry in unit.in_order()]
            pods, key, priority = members[: max(1, self._lacking(unit.key))], unit.key, unit.priority
        first = pods[0]
        return WaitingUnit(key, first.namespace, self.label(first), priority, unit.arrival, _sum(pods))

    def foremost(self, units: Iterable[Entry | QueuedGroup]) -> str:
        """Which of these, wherever they are, would go first if all of them were ready: its key."""
        return self.tree.foremost([self.tree.stand_in(self.waiting(unit)) for unit in units]).key

    def remove(self, name: str) -> None:
        """The unit is not ready any more, or gone; an unknown one is fine."""
        if name in self.tree.units or name in self.tree.reserved:
            self.tree.remove(name)

    def forget(self, name: str) -> None:
        """The unit is not pending any more; an unknown one is fine."""
        self.remove(name)
        self.take_up(name)
        self._wanted.pop(name, None)

    def waited_s(self, name: str, now: float) -> float:
        """For how long the unit could have gone, but for what others borrowed: somebody found it so now."""
        return now - self._wanted.setdefault(name, now)

    def front(self) -> WaitingUnit | None:
        """The unit whose turn it is."""
        return self.tree.front()

    def take(self, unit: WaitingUnit, pods: Sequence[Pod]) -> list[Pod]:
        """The unit goes. Of a group, those beyond what it lacks only go as far as the limits let them: the pods that
        do not are returned."""
        least = len(pods) if unit.key == pods[0].uid else max(1, self._lacking(unit.key))
        self.tree.take(unit, *(self.charge(pod) for pod in pods[:least]))
        left: list[Pod] = []
        for pod in pods[least:]:
            charge = self.charge(pod)
            line = self.tree.charges[pods[0].uid].line
            if line is None or self.tree.blocked(line, charge.amounts) is not None:
                left.append(pod)
            else:
                self.tree.charge(charge)
        return left

    def label(self, pod: Pod, group: str = "") -> str:
        """The queue that the pod, or else its group, names; "" leaves it to the namespace. ``group``: where the pod as
        it is kept does not say it."""
        group = pod.group or group
        return pod.labels.get(QUEUE_LABEL) or (self._group_label(group) if group else "")

    def charge(self, pod: Pod, *, group: str = "", since: float | None = None) -> Charge:
        """The pod as it counts. ``group``: as of ``label``."""
        group = pod.group or group
        return Charge(
            pod.uid,
            pod.namespace,
            self.label(pod, group),
            amounts_of(pod.pod_class.requests) if pod.reserves is None else (),  # who takes its room counts
            group or pod.uid,
            pod.priority,
            since,
            self._least(group) if group else 1,
            pod.preemptible,
            pod.terminating,
        )

    def expect(self, nominated_to: Mapping[str, str], entries: Mapping[str, Entry]) -> None:
        """Bring up to date for which pods room is made: those that wait and are nominated."""
        for uid in self.nominated:
            entry = entries.get(uid) if uid in nominated_to else None
            self.tree.expect(uid, self.charge(entry.pod) if entry is not None else None)
        self.nominated.clear()

    # --- pods that no node takes --------------------------------------------------------------------------------

    def queue_of(self, pod: Pod) -> str:
        """The queue that the pod waits in; "" is none."""
        return self.tree.line_name(self.label(pod), pod.namespace)

    def reclaims(self, pod: Pod) -> bool:
        """Whether what the pod's queue has lent is taken back for it."""
        queue = self.tree.queues.get(self.queue_of(pod))
        return queue is not None and queue.reclaim

    def park(self, key: str, pod: Pod, now: float) -> None:
        """No node takes the unit, of which this is a pod."""
        self.unpark(key)
        name = self._parked_in[key] = self.queue_of(pod)
        self.parked.setdefault(name, {})[key] = now
        self.moves += 1
        if self.reclaims(pod):
            self.fresh.setdefault(name, {})[key] = None

    def unpark(self, key: str) -> None:
        """The unit is tried again, or gone; an unknown one is fine."""
        name = self._parked_in.pop(key, None)
        if name is not None:
            self.moves += 1
            del self.parked[name][key]
            if not self.parked[name]:
                del self.parked[name]
            self.looked_at(name, key)

    def looked_at(self, name: str, key: str) -> None:
        """The parked unit of the queue is not fresh any more; an unknown one is fine."""
        fresh = self.fresh.get(name)
        if fresh is not None and fresh.pop(key, "") is None and not fresh:
            del self.fresh[name]

    # --- all that wait ------------------------------------------------------------------------------------------

    def set_aside(self, entry: Entry) -> None:
        """The pod waits neither in the tree nor parked."""
        uid, gated = entry.pod.uid, entry.place is Place.GATED
        key = entry.group.key if entry.group is not None else (entry.pod.group if gated else "") or uid
        if self.aside_of.get(uid) != key:
            self.take_up(uid)
            self.aside_of[uid] = key
            self._aside.setdefault(key, {})[uid] = entry
            self.moves += 1

    def take_up(self, uid: str) -> None:
        """The pod is not set aside any more; an unknown one is fine."""
        key = self.aside_of.pop(uid, None)
        if key is not None:
            self.moves += 1
            del self._aside[key][uid]
            if not self._aside[key]:
                del self._aside[key]

    def aside(self) -> Iterator[tuple[str, str, Entry]]:
        """(queue, key of a unit that is set aside, one of its pods): those that stand nowhere else."""
        for key, entries in self._aside.items():
            if key not in self.tree.units and key not in self._parked_in and key not in self.tree.reserved:
                entry = next(iter(entries.values()))
                yield self.queue_of(entry.pod), key, entry

    def pending(self, node: QueueNode) -> int:
        """How many units of the queue, and of those below it, wait: whatever for, until they are bound. Costs as the
        queues below, and once per change as all units that are set aside."""
        beside = self._beside()
        return node.pending + sum(len(self.parked.get(one.name, ())) + beside[one.name] for one in lines_of(node))

    def pending_in_all(self) -> int:
        """How many units wait, in queues and in none."""
        return len(self.tree.units) + len(self._parked_in) + self._beside().total()

    def _beside(self) -> Counter[str]:
        """By queue: units that are set aside, and those that a place is reserved for."""
        version = self.moves, self.tree.version
        if self._aside_by_queue[0] != version:
            counts = Counter(name for name, _, _ in self.aside())
            counts.update(unit.line.name for unit in self.tree.reserved.values())
            self._aside_by_queue = version, counts
        return self._aside_by_queue[1]


def _sum(pods: Iterable[Pod]) -> Amounts:
    total: dict[str, int] = {}
    for pod in pods:
        for name, amount in amounts_of(pod.pod_class.requests):
            total[name] = total.get(name, 0) + amount
    return tuple(sorted(total.items()))
