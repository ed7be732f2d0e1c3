"""What of a queue may be evicted, and in which order.

    the lowest priority first; of one priority pods, and members that a gang can spare, before gangs are broken; the
    newest first. A gang whose minimum would be broken goes whole.

Pods that have not run for their queue's minimum run time, opt out or are leaving are no victims. Put in order once per
line and moment (``Stock``), for all who ask, in parts: each part is a heap by itself, and a ``Stack`` merges them as
far as it is taken from. What has gone or is leaving since is left out; what a rule does not let go now is passed over,
and may stand in order again (``anew``).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from shared.scheduling.queues.nodes import Charge, QueueLine
from shared.scheduling.queues.tree import QueueTree

Rank = tuple[int, bool, float, str]
"""Priority, whether a gang is broken, minus since when it runs, uid."""

Ranked = tuple[Rank, tuple[Charge, ...]]

Heap = list[Ranked]

PART = 512
"""Pods that are put in order in one part of the work: well below a millisecond."""

WEIGHED = 3
"""Work of one pod that is put in order, or passed over, in nodes looked at: 0.4 us."""


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """What goes at once: one pod, or (``breaks``) what is left of a gang."""

    line: QueueLine
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
        self._known: dict[QueueLine, list[Heap]] = {}
        self._helpful: dict[QueueLine, dict[str, Charge]] | None = None
        if among is not None:
            self._helpful = {}
            for uid in among:
                if (pod := tree.charges.get(uid)) is not None and pod.line is not None:
                    self._helpful.setdefault(pod.line, {})[uid] = pod

    def of(self, line: QueueLine) -> Stack:
        """Those of one line, to be taken one after the other."""
        for _ in self.weigh(line):
            pass
        return Stack(self.tree, line, self._known[line])

    def may_give(self, line: QueueLine) -> bool:
        """Whether any pod of the line would help."""
        return bool(line.charges) if self._helpful is None else line in self._helpful

    def weigh(self, line: QueueLine) -> Iterator[int]:
        """Put those of one line in order, if they are not yet; yields what each part of the work was."""
        if line in self._known:
            return
        pods = list((line.charges if self._helpful is None else self._helpful.get(line, {})).values())
        least_s = line.parent.queue.min_run_s if self._protect and line.parent is not None else 0.0
        began_by, but = self.now - least_s, self._but
        heaps, gangs = list[Heap](), dict[str, None]()
        for part in (pods[start : start + PART] for start in range(0, len(pods), PART)):
            gangs |= dict.fromkeys(pod.unit for pod in part if pod.least > 1)
            # Who was not seen running yet is no victim: its Binding may be under way.
            heaps.append([
                ((pod.priority, False, -pod.since, pod.uid), (pod,))
                for pod in part
                if pod.least <= 1 and pod.since is not None and pod.since <= began_by
                and pod.evictable and not pod.leaving and pod.uid not in but
            ])  # fmt: skip
            heapq.heapify(heaps[-1])
            self.weighed += len(part)
            yield WEIGHED * len(part)
        broken = Heap()
        for unit in gangs:
            before = self.weighed
            broken += self._of_gang(unit, line, began_by)
            yield WEIGHED * (self.weighed - before)
        heapq.heapify(broken)
        self._known[line] = [*heaps, broken]

    def _of_gang(self, unit: str, line: QueueLine, began_by: float) -> Heap:
        """What it can spare, one by one, and the rest together: where a pod of that stays, none of it goes."""
        pods = [pod for pod in self.tree.members.get(unit, {}).values() if pod.line is line and not pod.leaving]
        pods.sort(key=lambda pod: (-(pod.since if pod.since is not None else self.now), pod.uid))
        movable = [pod for pod in pods if self._may_go(pod, began_by)]
        # Stable: of those that help the newest still go first.
        movable.sort(key=lambda pod: not self._helps(pod))
        self.weighed += len(pods)
        surplus = movable[: max(0, len(pods) - max((pod.least for pod in pods), default=0))]
        spared = {pod.uid for pod in surplus}
        rest = tuple(pod for pod in pods if pod.uid not in spared)
        found = Heap()
        found += (((pod.priority, False, -(pod.since or 0.0), pod.uid), (pod,)) for pod in surplus if self._helps(pod))
        # All of the rest or nobody: where one may not go, what is left would run below its minimum (I5).
        if rest and len(rest) == len(movable) - len(surplus) and any(map(self._helps, rest)):
            found.append(((rest[0].priority, True, -(rest[0].since or 0.0), rest[0].uid), rest))
        return found

    def _may_go(self, pod: Charge, began_by: float) -> bool:
        return pod.evictable and pod.since is not None and pod.since <= began_by and pod.uid not in self._but

    def _helps(self, pod: Charge) -> bool:
        return self._helpful is None or (pod.line is not None and pod.uid in self._helpful.get(pod.line, ()))


class Stack:
    """What of one line has not been taken yet."""

    def __init__(self, tree: QueueTree, line: QueueLine, heaps: Iterable[Heap]) -> None:
        self._charges = tree.charges
        self._line = line
        self._ranked = heapq.merge(*map(_in_order, heaps))
        self._ahead = deque[Ranked]()
        """In order, all before what is left of ``_ranked``."""
        self._passed: dict[str, list[Ranked]] = {}
        """Who was passed over, by unit."""

    @property
    def first(self) -> Item | None:
        """What goes first; None: nothing may."""
        ahead = self._ahead
        while True:
            if not ahead:
                if (ranked := next(self._ranked, None)) is None:
                    return None
                ahead.append(ranked)
            # Asked anew: it was put in order once for all who ask, and somebody has taken it since.
            if may_leave(self._charges, ahead[0][1]):
                return self._item(ahead[0])
            ahead.popleft()

    def take(self) -> list[Item]:
        """The first is taken; before a gang that is broken, what of it was passed over: it goes whole."""
        ranked = self._ahead.popleft()
        (_, breaks, _, _), pods = ranked
        along = self._passed.pop(pods[0].unit, []) if breaks else []
        return [self._item(one) for one in (*along, ranked) if may_leave(self._charges, one[1])]

    def pass_over(self) -> None:
        """The first stays, those behind it may go."""
        ranked = self._ahead.popleft()
        self._passed.setdefault(ranked[1][0].unit, []).append(ranked)

    def anew(self) -> None:
        """Those that were passed over stand in order again."""
        self._ahead.extendleft(sorted(chain.from_iterable(self._passed.values()), reverse=True))
        self._passed.clear()

    def _item(self, ranked: Ranked) -> Item:
        (_, breaks, _, _), pods = ranked
        return Item(self._line, pods, _sum(pods), breaks)


def _in_order(heap: Heap) -> Iterator[Ranked]:
    left = list(heap)
    while left:
        yield heapq.heappop(left)


def may_leave(charges: Mapping[str, Charge], pods: Iterable[Charge]) -> bool:
    """Whether all of the pods count still, and may be asked to leave, since they were put in order."""
    # `is`: who counts anew under the uid counts in another queue, or as something else.
    return all(pod.evictable and not pod.leaving and charges.get(pod.uid) is pod for pod in pods)


def whole(tree: QueueTree, victims: Iterable[Charge]) -> bool:
    """Whether gangs that lose some of the victims lose all, or keep their minimum."""
    lost: dict[str, set[str]] = {}
    for pod in victims:
        if pod.least > 1:
            lost.setdefault(pod.unit, set()).add(pod.uid)
    for unit, uids in lost.items():
        stay = [pod for pod in tree.members.get(unit, {}).values() if not pod.leaving and pod.uid not in uids]
        if stay and len(stay) < max(pod.least for pod in stay):
            return False
    return True


def _sum(pods: tuple[Charge, ...]) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for pod in pods:
        for name, amount in pod.amounts:
            found[name] = found.get(name, 0) + amount
    return found
