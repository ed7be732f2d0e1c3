"""Whom to evict so that a queue gets back what was borrowed from it.

    S1    the queue stays within its guarantee with the unit: whoever uses more than its own guarantee gives back,
          in proportion to what it borrowed
    S2-a  (FairShare) the share of the victim's queue without the victim is no smaller than ours with the unit
    S2-b  (FairShare) it was larger before, for one victim per queue
Shares are compared between the two children of the queue that both sides have in common (Kueue KEP-1714).

Within a queue they go in the order of ``victims.py``. Victims that turn out to be needless are put back. What goes when
a limit falls below the use: ``lowered.py``.

Why it ends: a queue that was above its guarantee before a victim cannot be within it with that victim again (S1); one
whose share was no smaller than ours afterwards is larger than ours with it (S2-a). So nobody takes back what was taken.

Victims are chosen by the queues' sums alone; nodes are asked (``Room``) about the first of them, then about twice as
many, and about halves between, so rarely. Work comes in parts (``search`` yields what each was), between which the
cluster goes on: what was chosen over some turns is asked once more of the moment (``still_owed``).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, TypeVar

from shared.model.queue import ReclaimUpTo
from shared.scheduling.parts import in_one_go
from shared.scheduling.queues.nodes import Amounts, Blocked, Charge, Contender, Line, Node, Waiting, lines_of
from shared.scheduling.queues.outlook import Outlook
from shared.scheduling.queues.tree import QueueTree
from shared.scheduling.queues.victims import Item, Stack, Stock, may_leave, whole

WEIGHED, CHOSEN = 3, 75
"""Work of one pod that is put in order, and of one victim that is chosen or put back, in nodes looked at: 0.4 us."""

T = TypeVar("T")

Work = Generator[int, None, T]


class Room(Protocol):
    """What the nodes say. ``work``: nodes looked at so far."""

    work: int

    def fits(self, gone: Sequence[Charge]) -> bool:
        """Whether the unit finds room once these pods are gone, beside those that are leaving already."""

    def spares(self, back: Sequence[Charge]) -> bool:
        """Whether it still does though these, that the last question left out, stay: if so, they stay from now on."""


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Pods to evict, in order; or, without any, why none are. ``fits``: none need to."""

    victims: tuple[Charge, ...] = ()
    reason: str = ""
    fits: bool = False

    @property
    def uids(self) -> list[str]:
        """Of the victims."""
        return [pod.uid for pod in self.victims]


def reclaim(
    tree: QueueTree,
    unit: Waiting,
    now: float, *,
    waited_s: float,
    room: Room | None = None,
    blocked: Blocked | None = None,
    stock: Stock | None = None,
) -> Reclaim:  # fmt: skip
    """``search``, in one go."""
    return in_one_go(search(tree, unit, now, waited_s=waited_s, room=room, blocked=blocked, stock=stock))


def search(
    tree: QueueTree,
    unit: Waiting,
    now: float, *,
    waited_s: float,
    room: Room | None = None,
    blocked: Blocked | None = None,
    stock: Stock | None = None,
) -> Work[Reclaim]:  # fmt: skip
    """Whom to evict for the unit. ``waited_s``: for how long nothing else has kept it; ``room``: what the nodes say;
    None: only a limit keeps it; ``blocked``: that limit, None where only the nodes do; ``stock``: who may be evicted,
    None: whoever may as of ``now``."""
    tree.structure  # noqa: B018 (brings the tree up to date)
    home = unit.line.parent
    assert home is not None
    queue = home.queue
    if blocked is not None and (blocked.problem or blocked.never):
        return Reclaim(reason=blocked.text())
    within = _within(home, blocked)
    if within:
        if not queue.preempts_within:
            return Reclaim(reason=blocked.text() if blocked is not None else "")
    elif not queue.reclaim:
        return Reclaim(reason=f"queue {home.name}: spec.reclaim is off")
    if waited_s < queue.reclaim_after_s and not within:
        return Reclaim(reason=f"queue {home.name}: reclaims after {queue.reclaim_after_s:g} s")

    outlook = Outlook(tree)
    if _admits(outlook, unit, blocked) and (room is None or room.fits(())):
        return Reclaim(reason="there is room for it without", fits=True)
    if room is not None:
        yield room.work
    choices: Iterator[Item | int]
    if within:
        choices = _own(outlook, unit, home, Stock(tree, now, protect=False))
    else:
        choices = _Others(outlook, unit, blocked, stock or Stock(tree, now)).choices()
    chosen = yield from _enough(outlook, unit, blocked, choices, room)
    if not chosen:
        return Reclaim(reason=f"queue {home.name}: what others borrowed and may be evicted is not enough")

    def goes_without(item: Item) -> bool:
        return _admits(outlook, unit, blocked) and (room is None or room.spares(item.pods))

    chosen = yield from put_back(outlook, chosen, goes_without, room)
    return Reclaim(tuple(pods_of(chosen)))


def _admits(outlook: Outlook, unit: Waiting, blocked: Blocked | None) -> bool:
    return blocked is None or outlook.admits(unit.line, unit.amounts)


def _enough(
    outlook: Outlook, unit: Waiting, blocked: Blocked | None, choices: Iterator[Item | int], room: Room | None
) -> Work[list[Item]]:
    """As few of the choices, from the first on, as make room; empty where all of them do not."""
    chosen: list[Item] = []
    too_few, again = 0, 1
    for item in choices:
        if isinstance(item, int):
            yield item
            continue
        chosen.append(item)
        yield CHOSEN
        if not _admits(outlook, unit, blocked):
            too_few, again = len(chosen), len(chosen) + 1
            continue
        if room is None:
            return chosen
        if len(chosen) < again:
            continue
        before = room.work
        fits = room.fits(pods_of(chosen))
        yield room.work - before
        if fits:
            break
        too_few, again = len(chosen), 2 * len(chosen)
    else:
        if not chosen or len(chosen) == too_few or room is None or not room.fits(pods_of(chosen)):
            return []
    enough, asked = len(chosen), len(chosen)
    while enough - too_few > 1:
        asked, before = (enough + too_few) // 2, room.work
        if room.fits(pods_of(chosen[:asked])):
            enough = asked
        else:
            too_few = asked
        yield room.work - before
    if asked != enough:
        room.fits(pods_of(chosen[:enough]))
    for item in chosen[enough:]:
        outlook.shift(item.line, item.amounts, -1)
    return chosen[:enough]


def pods_of(items: Iterable[Item]) -> list[Charge]:
    return [pod for item in items for pod in item.pods]


def put_back(
    outlook: Outlook, chosen: list[Item], goes_without: Callable[[Item], bool], room: Room | None = None
) -> Work[list[Item]]:
    """Whoever is not needed stays, the last first; what a gang that is broken could spare goes with it. Returns the
    others."""
    broken = {item.unit for item in chosen if item.breaks}
    stay = set[Item]()
    for item in reversed(chosen):
        if not item.breaks and item.unit in broken:
            continue
        before = room.work if room is not None else 0
        outlook.shift(item.line, item.amounts, -1)
        if goes_without(item):
            stay.add(item)
            if item.breaks:
                broken.discard(item.unit)
        else:
            outlook.shift(item.line, item.amounts, 1)
        yield CHOSEN + (room.work - before if room is not None else 0)
    return [item for item in chosen if item not in stay]


def _within(home: Node, blocked: Blocked | None) -> bool:
    """Whether it is the queue's own pods that fill its limit."""
    return blocked is not None and blocked.node is home and not _by_others(home, blocked)


def _by_others(home: Node, blocked: Blocked) -> bool:
    """Whether queues below, not the queue's own pods, fill its limit."""
    return bool(home.children) and home.own.used.get(blocked.resource, 0) < home.used.get(blocked.resource, 0)


def _own(outlook: Outlook, unit: Waiting, home: Node, stock: Stock) -> Iterator[Item | int]:
    """Pods of lower priority in the same queue make room."""
    for weighed in stock.weigh(home.own):
        yield WEIGHED * weighed
    stack = stock.of(home.own)
    while (item := stack.first) is not None:
        stack.pop()
        if max(pod.priority for pod in item.pods) < unit.priority:
            outlook.shift(item.line, item.amounts, 1)
            yield item


@dataclass(frozen=True, slots=True)
class _Sides:
    """Below the queue that both have in common: the victim's side and ours, from the line up. ``above``: how far above
    our queue that is."""

    theirs: tuple[Contender, ...]
    ours: tuple[Contender, ...]
    above: int

    @classmethod
    def of(cls, line: Line, chain: Sequence[Node]) -> _Sides:
        theirs: list[Contender] = [line]
        node = line.parent
        while node is not None and node not in chain:
            theirs.append(node)
            node = node.parent
        assert node is not None
        above = chain.index(node)
        return cls(tuple(theirs), tuple(chain[:above]), above)


_Test = Callable[[_Sides, "Item | None"], bool]
"""Whether the item may be taken; None: whether any could be, that is as small and asks for everything."""

Key = tuple[Fraction, Fraction, int]


class _Others:
    """Who borrowed gives back, by one rule after the other."""

    def __init__(self, outlook: Outlook, unit: Waiting, blocked: Blocked | None, stock: Stock) -> None:
        chain = _chain(unit.line)
        top = blocked.node if blocked is not None else chain[-1]
        self._outlook = outlook
        self._stock = stock
        self._asked = dict(unit.amounts)
        self._short = (blocked.resource,) if blocked is not None else tuple(self._asked)
        self._home = chain[0]
        self._sides = {
            line: _Sides.of(line, chain) for line in lines_of(top) if line is not unit.line and stock.may_give(line)
        }
        self._initial = {line: self._excess(line) for line in self._sides}
        last = sorted(self._sides, key=lambda line: line.name, reverse=True)
        self._tie = {line: number for number, line in enumerate(last)}
        self._stacks: dict[Line, Stack] = {}

    def choices(self) -> Iterator[Item | int]:
        """Victims in order, each left out before the next is chosen; between them the work of putting pods in order."""
        yield from self._by(self._s1, proportional=True)
        if self._home.queue.reclaim_up_to is ReclaimUpTo.FAIR_SHARE:
            yield from self._by(self._s2a)
            yield from self._by(self._s2b, once=True)

    def allow(self, item: Item) -> bool:
        """Whether the item may be taken by any of the rules."""
        sides = self._sides.get(item.line)
        if sides is None:
            return False
        fair = self._home.queue.reclaim_up_to is ReclaimUpTo.FAIR_SHARE
        return self._s1(sides, item) or (fair and (self._s2a(sides, item) or self._s2b(sides, item)))

    def _by(self, test: _Test, *, proportional: bool = False, once: bool = False) -> Iterator[Item | int]:
        """The line that owes most gives first. What a line owes only falls, so an old key is put right at the top."""
        heap = [(self._key(line, proportional=proportional), line) for line in self._sides]
        heapq.heapify(heap)
        refused: list[Line] = []
        while heap:
            known, line = heap[0]
            key = self._key(line, proportional=proportional)
            if key != known:
                heapq.heapreplace(heap, (key, line))
                continue
            heapq.heappop(heap)
            sides = self._sides[line]
            item: Item | None = None
            if test(sides, None):
                for weighed in self._stock.weigh(line):
                    yield WEIGHED * weighed
                item = self._stack(line).first
            if item is None or not test(sides, item):
                refused.append(line)
                continue
            self._stacks[line].pop()
            self._outlook.shift(line, item.amounts, 1)
            yield item
            if not once:
                heapq.heappush(heap, (self._key(line, proportional=proportional), line))
            # what is above us and below the queue in common with those further away uses less now: they may give again
            nearer = [one for one in refused if self._sides[one].above > sides.above]
            if nearer:
                refused = [one for one in refused if self._sides[one].above <= sides.above]
                for one in nearer:
                    heapq.heappush(heap, (self._key(one, proportional=proportional), one))

    def _stack(self, line: Line) -> Stack:
        if (stack := self._stacks.get(line)) is None:
            stack = self._stacks[line] = self._stock.of(line)
        return stack

    def _key(self, line: Line, *, proportional: bool) -> Key:
        """Smaller gives first: in proportion to what was borrowed, then the worst offender."""
        initial = self._initial[line]
        left = self._excess(line) / initial if proportional and initial else Fraction(0)
        return -left, -self._outlook.share(self._sides[line].theirs[-1]), self._tie[line]

    def _excess(self, line: Line) -> Fraction:
        return excess(self._outlook, line, self._short)

    # --- the rules ----------------------------------------------------------------------------------------------

    def _s1(self, sides: _Sides, item: Item | None) -> bool:
        used = self._outlook.used
        return any(
            (item is None or name in item.amounts)
            and any(name in ours.guaranteed for ours in sides.ours)
            and all(used(theirs, name) > theirs.guaranteed.get(name, 0) for theirs in sides.theirs)
            and all(used(ours, name) + self._asked.get(name, 0) <= ours.guaranteed.get(name, 0) for ours in sides.ours)
            for name in self._short
        )

    def _s2a(self, sides: _Sides, item: Item | None) -> bool:
        if item is not None and not any(name in item.amounts for name in self._short):
            return False
        without = self._outlook.share(sides.theirs[-1], minus=item.amounts if item is not None else {})
        return without >= self._mine(sides)

    def _s2b(self, sides: _Sides, item: Item | None) -> bool:
        if item is not None and not any(name in item.amounts for name in self._short):
            return False
        return self._outlook.share(sides.theirs[-1]) > self._mine(sides)

    def _mine(self, sides: _Sides) -> Fraction:
        """Our share with the unit."""
        return self._outlook.share(sides.ours[-1] if sides.ours else self._home.own, plus=self._asked)


def _chain(line: Line) -> list[Node]:
    found, node = [], line.parent
    while node is not None:
        found.append(node)
        node = node.parent
    return found


def excess(outlook: Outlook, line: Line, short: Iterable[str]) -> Fraction:
    """What a line's queue uses beyond its guarantee of the resources that are short, over what there is."""
    node, capacity = line.parent, outlook.tree.capacity
    assert node is not None
    parts = [
        Fraction(max(0, outlook.used(line, name) - node.guaranteed.get(name, 0)), capacity[name])
        for name in short
        if capacity.get(name, 0) > 0
    ]
    return max(parts, default=Fraction(0))


def still_owed(tree: QueueTree, unit: Waiting, victims: Sequence[Charge], blocked: Blocked | None = None) -> bool:
    """Whether the victims may leave still, no gang among them keeps too few, each is owed to the unit by one of the
    rules without the others, and the limit that holds the unit back lets it go then. Costs as victims, and the rules as
    the kinds of them."""
    home = unit.line.parent
    assert home is not None
    if not may_leave(tree.charges, victims) or not whole(tree, victims):
        return False
    kinds: Counter[tuple[Line, Amounts]] = Counter((pod.line, pod.amounts) for pod in victims if pod.line is not None)
    one_of = {(pod.line, pod.amounts): pod for pod in victims}
    outlook = Outlook(tree)
    for (line, amounts), count in kinds.items():
        outlook.shift(line, {name: count * amount for name, amount in amounts}, 1)
    if not _admits(outlook, unit, blocked):
        return False
    if _within(home, blocked):
        return all(pod.priority < unit.priority for pod in victims)
    rules = _Others(outlook, unit, blocked, Stock(tree, 0.0, among=[pod.uid for pod in victims]))
    for line, amounts in kinds:
        item = Item(line, (one_of[line, amounts],), dict(amounts), breaks=False)
        outlook.shift(line, item.amounts, -1)
        if not rules.allow(item):
            return False
        outlook.shift(line, item.amounts, 1)
    return True
