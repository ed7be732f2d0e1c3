"""What of a queue may be evicted, and in which order.

    the lowest priority first; of one priority pods, and members that a gang can spare, before gangs are broken; the
    newest first. A gang whose minimum would be broken goes whole.

Pods that have not run for their queue's minimum run time, opt out or are leaving are no victims. Put in order once per
line and moment (``Stock``), for all who ask.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from shared.scheduling.queues.nodes import Charge, Line
from shared.scheduling.queues.tree import QueueTree

Rank = tuple[int, bool, float, str]
"""Priority, whether a gang is broken, minus since when it runs, uid."""

Heap = list[tuple[Rank, tuple[Charge, ...]]]


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """What goes at once: one pod, or (``breaks``) what is left of a gang."""

    line: Line
    pods: tuple[Charge, ...]
    amounts: Mapping[str, int]
    breaks: bool

    @property
    def unit(self) -> str:
        """Whose pods these are."""
        return self.pods[0].unit


class Stock:
    """What may be evicted at the moment ``now``. ``weighed``: pods that were looked at for it; ``among``: uids of those
    that would help, of a gang that goes whole one at least; None: all do; ``but``: uids of those that are passed over;
    ``protect`` False: however short they run."""

    def __init__(
        self,
        tree: QueueTree,
        now: float,
        *,
        among: Iterable[str] | None = None,
        but: Container[str] = (),
        protect: bool = True,
    ) -> None:
        self.tree = tree
        self.now = now
        self.weighed = 0
        self._but = but
        self._protect = protect
        self._known: dict[Line, Heap] = {}
        self._helpful: dict[Line, dict[str, Charge]] | None = None
        if among is not None:
            self._helpful = {}
            for uid in among:
                if (pod := tree.charges.get(uid)) is not None and pod.line is not None:
                    self._helpful.setdefault(pod.line, {})[uid] = pod

    def of(self, line: Line) -> Stack:
        """Those of one line, to be taken one after the other."""
        heap = self._known.get(line)
        if heap is None:
            heap = self._known[line] = self._in_order(line)
        return Stack(line, list(heap))

    def may_give(self, line: Line) -> bool:
        """Whether any pod of the line would help."""
        return bool(line.charges) if self._helpful is None else line in self._helpful

    def _in_order(self, line: Line) -> Heap:
        pods = line.charges if self._helpful is None else self._helpful.get(line, {})
        least_s = line.parent.queue.min_run_s if self._protect and line.parent is not None else 0.0
        began_by, but = self.now - least_s, self._but
        self.weighed += len(pods)
        gangs = dict.fromkeys(pod.unit for pod in pods.values() if pod.least > 1)
        heap: Heap = [
            ((pod.priority, False, -pod.since, pod.uid), (pod,))
            for pod in pods.values()
            if pod.least <= 1 and pod.since is not None and pod.since <= began_by
            and pod.evictable and not pod.leaving and pod.uid not in but
        ]  # fmt: skip
        for unit in gangs:
            heap.extend(self._of_gang(unit, line, began_by))
        heapq.heapify(heap)
        return heap

    def _of_gang(self, unit: str, line: Line, began_by: float) -> Heap:
        """What it can spare, one by one, and the rest together: where a pod of that stays, none of it goes."""
        pods = [pod for pod in self.tree.members.get(unit, {}).values() if pod.line is line and not pod.leaving]
        pods.sort(key=lambda pod: (-(pod.since if pod.since is not None else self.now), pod.uid))
        movable = [pod for pod in pods if self._may_go(pod, began_by)]
        movable.sort(key=lambda pod: not self._helps(pod))
        self.weighed += len(pods)
        surplus = movable[: max(0, len(pods) - max((pod.least for pod in pods), default=0))]
        spared = {pod.uid for pod in surplus}
        rest = tuple(pod for pod in pods if pod.uid not in spared)
        found = Heap()
        found += (((pod.priority, False, -(pod.since or 0.0), pod.uid), (pod,)) for pod in surplus if self._helps(pod))
        if rest and len(rest) == len(movable) - len(surplus) and any(map(self._helps, rest)):
            found.append(((rest[0].priority, True, -(rest[0].since or 0.0), rest[0].uid), rest))
        return found

    def _may_go(self, pod: Charge, began_by: float) -> bool:
        return pod.evictable and pod.since is not None and pod.since <= began_by and pod.uid not in self._but

    def _helps(self, pod: Charge) -> bool:
        return self._helpful is None or (pod.line is not None and pod.uid in self._helpful.get(pod.line, ()))


class Stack:
    """What of one line has not been taken yet."""

    def __init__(self, line: Line, heap: Heap) -> None:
        self._line = line
        self._heap = heap
        self._first: Item | None = None
        self._passed: Heap = []

    @property
    def first(self) -> Item | None:
        """What goes first; None: nothing may."""
        while self._first is None and self._heap:
            (_, breaks, _, _), pods = self._heap[0]
            if any(pod.leaving for pod in pods):  # it was asked to since all was put in order
                heapq.heappop(self._heap)
                continue
            self._first = self._item(pods, breaks)
        return self._first

    def take(self) -> list[Item]:
        """The first is taken; before a gang that is broken, what of it was passed over: it goes whole."""
        (_, breaks, _, _), pods = heapq.heappop(self._heap)
        self._first = None
        along = [(rank, others) for rank, others in self._passed if breaks and others[0].unit == pods[0].unit]
        if along:
            self._passed = [passed for passed in self._passed if passed not in along]
        return [*(self._item(others, False) for _, others in along), self._item(pods, breaks)]

    def pass_over(self) -> None:
        """The first stays, those behind it may go."""
        self._passed.append(heapq.heappop(self._heap))
        self._first = None

    def anew(self) -> None:
        """Those that were passed over stand in order again."""
        for passed in self._passed:
            heapq.heappush(self._heap, passed)
        if self._passed:
            self._passed, self._first = [], None

    def _item(self, pods: tuple[Charge, ...], breaks: bool) -> Item:
        return Item(self._line, pods, _sum(pods), breaks)


def _sum(pods: tuple[Charge, ...]) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for pod in pods:
        for name, amount in pod.amounts:
            found[name] = found.get(name, 0) + amount
    return found
