"""When would a unit start, and whom would it displace? Answered by playing the queues forward on a copy.

The clock jumps from the end of one pod to the next; between two, units go in the tree's order while the limits and the
cluster's totals allow. What it leaves out is said in the answer: nodes are one pool (no fragmentation, no affinity), no
new units come, and only pods whose end is known ever end.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

from shared.model.queue import Queue
from shared.scheduling.queues.nodes import Amounts, Blocked, Charge, Waiting
from shared.scheduling.queues.reclaim import Reclaim, reclaim
from shared.scheduling.queues.tree import QueueTree

MOST_STEPS = 100_000
"""Units and ends that one answer plays through; beyond, it says that it does not know."""


@dataclass(frozen=True, slots=True)
class Question:
    """A unit that is not there. ``queue`` "": that of its namespace."""

    namespace: str
    queue: str
    priority: int
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class Answer:
    """``starts_in_s`` None: unknown, ``reason`` says why. ``queue``: whose quota it counts against; ``ahead``: units
    that go before it; ``victims``: pods that would be evicted for it, by uid; ``blocked``: what holds it back now."""

    queue: str
    starts_in_s: float | None
    ahead: int = 0
    victims: tuple[str, ...] = ()
    reason: str = ""
    blocked: str = ""


def copy_of(tree: QueueTree) -> QueueTree:
    """The same queues, units and pods; what is done to the one is not done to the other. Costs as all of them."""
    made = QueueTree(tree.strategy)
    made.set_capacity(tree.capacity)
    for queue in tree.queues.values():
        made.put_queue(queue)
    for unit in tree.units.values():
        made.add(Waiting(unit.key, unit.namespace, unit.label, unit.priority, unit.arrival, unit.amounts))
    for pod in tree.charges.values():
        made.charge(
            Charge(
                pod.uid, pod.namespace, pod.label, pod.amounts, pod.unit, pod.priority, pod.since, pod.least,
                pod.evictable, pod.leaving,
            )
        )  # fmt: skip
    made.history.load(tree.history.past, 0.0)
    return made


def simulate(
    tree: QueueTree,
    question: Question,
    *,
    now: float,
    ends_at: Mapping[str, float],
    runs_s: Mapping[str, float] | None = None,
) -> Answer:
    """``ends_at``: when running pods end, by uid, in seconds of the same clock as ``now``; others never do. ``runs_s``:
    how long waiting units run once they go, by key."""
    trial = copy_of(tree)
    arrival = 1 + max((unit.arrival for unit in trial.units.values()), default=0)
    unit = Waiting("?", question.namespace, question.queue, question.priority, arrival, question.amounts)
    trial.add(unit)
    first = trial.blocked(unit.line, unit.amounts) if trial.structure else None
    name = unit.line.name
    if first is not None and (first.problem or first.never):
        return Answer(name, None, reason=first.text(), blocked=first.text())
    if lacks := _lacks(trial.capacity, {}, question.amounts):
        return Answer(name, None, reason=f"the whole cluster has too little {lacks}")
    play = _Play(
        trial, dict(runs_s or {}), [(max(at, now), uid) for uid, at in ends_at.items() if uid in trial.charges]
    )
    blocked = first.text() if first is not None else ""
    victims = _victims(trial, unit, now, first)
    answer = play.until(unit, now)
    if answer is not None and (answer == now or not victims.uids):
        return Answer(name, answer - now, play.ahead, blocked=blocked)
    if victims.uids:
        queue: Queue | None = tree.queues.get(name)
        delay = queue.reclaim_after_s if queue is not None else 0.0
        starts = delay if answer is None else min(delay, answer - now)
        evicted = tuple(victims.uids) if starts == delay else ()
        return Answer(
            name, starts, play.ahead, evicted, "after the pods it evicts have ended" if evicted else "", blocked
        )
    return Answer(name, None, play.ahead, reason=play.why(unit), blocked=blocked)


def _victims(trial: QueueTree, unit: Waiting, now: float, blocked: Blocked | None) -> Reclaim:
    def enough(gone: frozenset[str]) -> bool:
        used = dict(trial.structure.root.used)
        for uid in gone:
            for name, amount in trial.charges[uid].amounts if uid in trial.charges else ():
                used[name] = used.get(name, 0) - amount
        return not _lacks(trial.capacity, used, unit.amounts)

    return reclaim(trial, unit, now, enough=enough, waited_s=float("inf"), blocked=blocked)


def _lacks(capacity: Mapping[str, int], used: Mapping[str, int], amounts: Amounts) -> str:
    return ", ".join(name for name, amount in amounts if used.get(name, 0) + amount > capacity.get(name, 0))


class _Play:
    """The queues played forward."""

    def __init__(self, tree: QueueTree, runs_s: dict[str, float], ends: list[tuple[float, str]]) -> None:
        self._tree = tree
        self._runs_s = runs_s
        self._ends = ends
        self.ahead = 0
        self._steps = 0
        heapq.heapify(ends)

    def until(self, unit: Waiting, now: float) -> float | None:
        """When the unit goes; None: never, as far as is known."""
        tree = self._tree
        while self._steps < MOST_STEPS:
            if self._go(unit, now):
                return now
            if not self._ends:
                return None
            now = self._ends[0][0]
            while self._ends and self._ends[0][0] <= now:
                tree.release(heapq.heappop(self._ends)[1])
                self._steps += 1
        return None

    def _go(self, unit: Waiting, now: float) -> bool:
        """Units go in order while there is room; True: the one asked about went."""
        tree, aside = self._tree, []
        found = False
        while self._steps < MOST_STEPS:
            front = tree.front()
            if front is None:
                if tree.more:
                    continue
                break
            self._steps += 1
            if _lacks(tree.capacity, tree.structure.root.used, front.amounts):
                tree.remove(front.key)  # no node takes it now; others may go
                aside.append(front)
                continue
            tree.take(front)
            if front is unit:
                found = True
                break
            self.ahead += 1
            if front.key in self._runs_s:
                heapq.heappush(self._ends, (now + self._runs_s[front.key], front.key))
        for other in aside:
            tree.add(other)
        return found

    def why(self, unit: Waiting) -> str:
        """Why it is not known when the unit starts."""
        if self._steps >= MOST_STEPS:
            return f"too much to play through ({MOST_STEPS} steps)"
        blocked = self._tree.held(unit.key)
        what = blocked.text() if blocked is not None else "the cluster is full"
        return f"{what}; when the pods that run will end is not known"
