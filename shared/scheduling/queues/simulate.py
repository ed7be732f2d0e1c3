"""When would a unit start, and whom would it displace? Answered by playing the queues forward on a copy.

The clock jumps from the end of one pod to the next; between two, units go in the tree's order while the limits and the
cluster's totals allow. What it leaves out is said in the answer: nodes are one pool (no fragmentation, no affinity), no
new units come, and only pods whose end is known ever end.

Work comes in parts: the first notes what there is, as of that moment; the rest reads nothing that changes.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from shared.model.units.queue import Queue
from shared.scheduling.parts import in_one_go
from shared.scheduling.queues.nodes import Amounts, Charge, WaitingUnit
from shared.scheduling.queues.outlook import QueueOutlook
from shared.scheduling.queues.reclaim.search import Reclaim, search
from shared.scheduling.queues.tree import QueueTree

T = TypeVar("T")

Parts = Generator[None, None, T]

MOST_STEPS = 100_000
"""Units and ends that one answer plays through; beyond, it says that it does not know."""

PART = 64
"""Units, pods or steps in one part of the work: less than a millisecond."""


@dataclass(frozen=True, slots=True)
class StartQuestion:
    """A unit that is not there. ``queue`` "": that of its namespace."""

    namespace: str
    queue: str
    priority: int
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class SimulatedStart:
    """``starts_in_s`` None: unknown, ``reason`` says why; ``never``: no pod's end would help. ``queue``: whose quota it
    counts against; ``ahead``: units that go before it; ``victims``: pods that would be evicted for it; ``blocked``:
    what holds it back now."""

    queue: str
    starts_in_s: float | None
    ahead: int = 0
    victims: tuple[Charge, ...] = ()
    reason: str = ""
    blocked: str = ""
    never: bool = False


def copied(tree: QueueTree) -> Parts[QueueTree]:
    """The same queues, units and pods; what is done to the one is not done to the other. Costs as all of them."""
    made = QueueTree(tree.strategy)
    made.set_capacity(tree.capacity)
    for queue in (*tree.queues.values(), *tree.deleted.values()):
        made.put_queue(queue)
        yield
    for name in tree.deleted:
        made.drop_queue(name)
    made.history.load(tree.history.past, 0.0)
    units, pods, coming = list(tree.units.values()), list(tree.charges.values()), list(tree.decided.coming.values())
    for waiting in _parts(units):
        for unit in waiting:
            made.add(WaitingUnit(unit.key, unit.namespace, unit.label, unit.priority, unit.arrival, unit.amounts))
        yield
    for counting in _parts(pods):
        made.charge(*map(_copy, counting))
        yield
    for expected in _parts(coming):
        for pod in expected:
            made.expect(pod.uid, _copy(pod))
        yield
    return made


def _copy(pod: Charge) -> Charge:
    return Charge(
        pod.uid, pod.namespace, pod.label, pod.amounts, pod.unit, pod.priority, pod.since, pod.least, pod.evictable,
        pod.leaving,
    )  # fmt: skip


def _parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + PART] for start in range(0, len(items), PART))


def simulate(
    tree: QueueTree,
    question: StartQuestion,
    *,
    now: float,
    ends_at: Mapping[str, float],
    runs_s: Mapping[str, float] | None = None,
) -> SimulatedStart:
    """``simulation``, in one go."""
    return in_one_go(simulation(tree, question, now=now, ends_at=ends_at, runs_s=runs_s))


def simulation(
    tree: QueueTree,
    question: StartQuestion,
    *,
    now: float,
    ends_at: Mapping[str, float],
    runs_s: Mapping[str, float] | None = None,
) -> Parts[SimulatedStart]:
    """``ends_at``: when running pods end, by uid, in seconds of the same clock as ``now``; others never do. ``runs_s``:
    how long waiting units run once they go, by key."""
    trial = yield from copied(tree)
    arrival = 1 + max((unit.arrival for unit in trial.units.values()), default=0)
    unit = WaitingUnit("?", question.namespace, question.queue, question.priority, arrival, question.amounts)
    trial.add(unit)
    first = trial.blocked(unit.line, unit.amounts) if trial.structure else None
    yield
    name = unit.line.name
    if first is not None and (first.problem or first.never):
        return SimulatedStart(name, None, reason=first.text(), blocked=first.text(), never=True)
    if lacks := _lacks(trial.capacity, {}, question.amounts):
        return SimulatedStart(name, None, reason=f"the whole cluster has too little {lacks}", never=True)
    play = _Play(
        trial, dict(runs_s or {}), [(max(at, now), uid) for uid, at in ends_at.items() if uid in trial.charges]
    )
    blocked = first.text() if first is not None else ""
    found: Reclaim | None = None
    looking = search(trial, unit, now, waited_s=float("inf"), room=_Pool(trial, unit.amounts), blocked=first)
    while found is None:
        try:
            next(looking)
        except StopIteration as end:
            found = end.value
        yield
    victims = found.victims
    answer = yield from play.until(unit, now)
    if answer is not None and (answer == now or not victims):
        return SimulatedStart(name, answer - now, play.ahead, blocked=blocked)
    if victims:
        queue: Queue | None = trial.queues.get(name)
        delay = queue.reclaim_after_s if queue is not None else 0.0
        starts = delay if answer is None else min(delay, answer - now)
        evicted = victims if starts == delay else ()
        return SimulatedStart(
            name, starts, play.ahead, evicted, "after the pods it evicts have ended" if evicted else "", blocked
        )
    return SimulatedStart(name, None, play.ahead, reason=play.why(unit), blocked=blocked)


class _Pool:
    """The cluster's nodes as one."""

    work = 0

    def __init__(self, tree: QueueTree, amounts: Amounts) -> None:
        outlook = QueueOutlook(tree)
        self._lacking = {name: amount - outlook.free(name) for name, amount in amounts}
        self._left = self._lacking

    def fits(self, gone: Iterable[Charge]) -> bool:
        """As ``ReclaimRoom``."""
        self._left = dict(self._lacking)
        self._count(self._left, gone, -1)
        return all(lacking <= 0 for lacking in self._left.values())

    def spares(self, back: Iterable[Charge]) -> bool:
        """As ``ReclaimRoom``."""
        left = dict(self._left)
        self._count(left, back, 1)
        if any(lacking > 0 for lacking in left.values()):
            return False
        self._left = left
        return True

    @staticmethod
    def _count(lacking: dict[str, int], pods: Iterable[Charge], sign: int) -> None:
        for pod in pods:
            for name, amount in pod.amounts:
                if name in lacking:
                    lacking[name] += sign * amount


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

    def until(self, unit: WaitingUnit, now: float) -> Parts[float | None]:
        """When the unit goes; None: never, as far as is known."""
        tree = self._tree
        while self._steps < MOST_STEPS:
            if (yield from self._go(unit, now)):
                return now
            if not self._ends:
                return None
            now = self._ends[0][0]
            while self._ends and self._ends[0][0] <= now:
                tree.release(heapq.heappop(self._ends)[1])
                self._steps += 1
                yield
        return None

    def _go(self, unit: WaitingUnit, now: float) -> Parts[bool]:
        """Units go in order while there is room; True: the one asked about went."""
        tree, aside = self._tree, list[WaitingUnit]()
        found = False
        while self._steps < MOST_STEPS:
            front = tree.front()
            if front is None:
                if tree.more:
                    yield
                    continue
                break
            self._steps += 1
            if self._steps % PART == 0:
                yield
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
        for part in _parts(aside):
            for other in part:
                tree.add(other)
            yield
        return found

    def why(self, unit: WaitingUnit) -> str:
        """Why it is not known when the unit starts."""
        if self._steps >= MOST_STEPS:
            return f"too much to play through ({MOST_STEPS} steps)"
        blocked = self._tree.held(unit.key)
        what = blocked.text() if blocked is not None else "the cluster is full"
        return f"{what}; when the pods that run will end is not known"
