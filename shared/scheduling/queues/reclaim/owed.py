"""Who owes a queue what was borrowed, by which rule, and who gives first.

    S1    the queue stays within its guarantee with the unit: whoever uses more than its own guarantee gives back,
          in proportion to what it borrowed
    S2-a  (FairShare) the share of the victim's queue without the victim is no smaller than ours with the unit
    S2-b  (FairShare) it was larger before, for one victim per queue
Shares are compared between the two children of the queue that both sides have in common (Kueue KEP-1714).

Why it ends: a queue that was above its guarantee before a victim cannot be within it with that victim again (S1); one
whose share was no smaller than ours afterwards is larger than ours with it (S2-a). So nobody takes back what was taken.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from fractions import Fraction

from msgspec import Struct

from shared.model.units.queue import ReclaimUpTo
from shared.scheduling.queues.nodes import Blocked, Contender, QueueLine, QueueNode, WaitingUnit, lines_of
from shared.scheduling.queues.outlook import QueueOutlook
from shared.scheduling.queues.reclaim.victims import WEIGHED, Item, Stack, Stock


class _Sides(Struct, frozen=True):
    """Below the queue that both have in common: the victim's side and ours, from the line up. ``above``: how far above
    our queue that is."""

    theirs: tuple[Contender, ...]
    ours: tuple[Contender, ...]
    above: int

    @classmethod
    def of(cls, line: QueueLine, chain: Sequence[QueueNode]) -> _Sides:
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

LINES = 64
"""Queues that are asked about in one part of the work."""

LINE = 8
"""Work of one of them, in nodes looked at."""


class OwedRules:
    """Who owes the unit what, as the outlook says it now. ``blocked``: the limit that holds it back; None: it is asked
    for all that the unit asks for, in the whole cluster."""

    def __init__(self, outlook: QueueOutlook, unit: WaitingUnit, blocked: Blocked | None) -> None:
        self._outlook = outlook
        self._asked = dict(unit.amounts)
        self._chain = _chain(unit.line)
        self._home = self._chain[0]
        self.short = (blocked.resource,) if blocked is not None else tuple(self._asked)
        self.top = blocked.node if blocked is not None else self._chain[-1]
        self.fair = self._home.queue.reclaim_up_to is ReclaimUpTo.FAIR_SHARE

    def sides(self, line: QueueLine) -> _Sides:
        """The line, as it stands to the unit."""
        return _Sides.of(line, self._chain)

    def allow(self, sides: _Sides, item: Item | None) -> bool:
        """Whether any of them lets the item go (None: as of ``_Test``)."""
        return self.s1(sides, item) or (self.fair and (self.s2a(sides, item) or self.s2b(sides, item)))

    def may_come_to_owe(self, sides: _Sides) -> bool:
        """Whether any may, once others have given: what is above us uses less then."""
        return self.fair or any(self._borrows(sides, name) for name in self._asked)

    def _borrows(self, sides: _Sides, name: str) -> bool:
        """Whether each of their queues uses more of it than its guarantee."""
        used = self._outlook.used
        return all(used(theirs, name) > theirs.guaranteed.get(name, 0) for theirs in sides.theirs)

    def s1(self, sides: _Sides, item: Item | None) -> bool:
        """See above. A limit of one resource lets a unit take back for the sake of another that it is guaranteed."""
        used = self._outlook.used
        if item is not None and not any(name in item.amounts for name in self.short):
            return False
        return any(
            (item is None or name in item.amounts)
            and any(name in ours.guaranteed for ours in sides.ours)
            and self._borrows(sides, name)
            and all(used(ours, name) + self._asked.get(name, 0) <= ours.guaranteed.get(name, 0) for ours in sides.ours)
            for name in self._asked
        )

    def s2a(self, sides: _Sides, item: Item | None) -> bool:
        """See above."""
        if item is not None and not any(name in item.amounts for name in self.short):
            return False
        without = self._outlook.share(sides.theirs[-1], minus=item.amounts if item is not None else {})
        return without >= self._mine(sides)

    def s2b(self, sides: _Sides, item: Item | None) -> bool:
        """See above."""
        if item is not None and not any(name in item.amounts for name in self.short):
            return False
        return self._outlook.share(sides.theirs[-1]) > self._mine(sides)

    def _mine(self, sides: _Sides) -> Fraction:
        """Our share with the unit."""
        return self._outlook.share(sides.ours[-1] if sides.ours else self._home.own, plus=self._asked)


def givers(outlook: QueueOutlook, unit: WaitingUnit) -> Generator[int, None, list[QueueLine]]:
    """Lines of which a pod may be owed to the unit, at once or when others have given; none where nobody would give
    first."""
    rules, found, begins = OwedRules(outlook, unit, None), list[QueueLine](), False
    for number, line in enumerate(lines_of(rules.top), 1):
        if line.charges and line is not unit.line and rules.may_come_to_owe(sides := rules.sides(line)):
            found.append(line)
            begins = begins or rules.allow(sides, None)
        if number % LINES == 0:
            yield LINE * LINES
    return found if begins else []


class Others:
    """Who borrowed gives back, by one rule after the other."""

    def __init__(self, outlook: QueueOutlook, unit: WaitingUnit, blocked: Blocked | None, stock: Stock) -> None:
        self._outlook = outlook
        self._stock = stock
        self._rules = rules = OwedRules(outlook, unit, blocked)
        self._sides = {
            line: rules.sides(line) for line in lines_of(rules.top) if line is not unit.line and stock.may_give(line)
        }
        self._initial = {line: self._excess(line) for line in self._sides}
        last = sorted(self._sides, key=lambda line: line.name, reverse=True)
        self._tie = {line: number for number, line in enumerate(last)}
        self._stacks: dict[QueueLine, Stack] = {}
        self._beyond: dict[int, list[QueueLine]] = {}

    def choices(self) -> Iterator[Item | int]:
        """Victims in order, each left out before the next is chosen; between them the work of putting pods in order."""
        rules = self._rules
        yield from self._by(rules.s1, proportional=True)
        if rules.fair:
            yield from self._by(rules.s2a)
            yield from self._by(rules.s2b, once=True)

    def allow(self, item: Item) -> bool:
        """Whether the item may be taken by any of the rules."""
        sides = self._sides.get(item.line)
        return sides is not None and self._rules.allow(sides, item)

    def _by(self, test: _Test, *, proportional: bool = False, once: bool = False) -> Iterator[Item | int]:
        """The line that owes most gives first. What a line owes only falls, so an old key is put right at the top."""
        heap = [(self._key(line, proportional=proportional), line) for line in self._sides]
        heapq.heapify(heap)
        for stack in self._stacks.values():
            stack.anew()
        refused = set[QueueLine]()
        while heap:
            known, line = heap[0]
            key = self._key(line, proportional=proportional)
            if key != known:
                heapq.heapreplace(heap, (key, line))
                continue
            heapq.heappop(heap)
            sides = self._sides[line]
            if not test(sides, None) or (yield from self._first(line, sides, test)) is None:
                refused.add(line)
                continue
            for taken in self._stacks[line].take():
                self._outlook.shift(line, taken.amounts, 1)
                yield taken
            if not once:
                heapq.heappush(heap, (self._key(line, proportional=proportional), line))
            # what is above us and below the queue in common with those further away uses less now: they may give again
            for one in self._further(sides.above):
                if one in self._stacks:
                    self._stacks[one].anew()
                if one in refused:
                    refused.discard(one)
                    heapq.heappush(heap, (self._key(one, proportional=proportional), one))

    def _further(self, above: int) -> list[QueueLine]:
        """Lines that have less in common with ours than one that is so far above."""
        if (found := self._beyond.get(above)) is None:
            found = self._beyond[above] = [line for line, sides in self._sides.items() if sides.above > above]
        return found

    def _first(self, line: QueueLine, sides: _Sides, test: _Test) -> Generator[int, None, Item | None]:
        """What goes first of what the rule lets go: who frees nothing that is short, or too much, is passed over."""
        if (stack := self._stacks.get(line)) is None:
            yield from self._stock.weigh(line)
            stack = self._stacks[line] = self._stock.of(line)
        refused: set[frozenset[tuple[str, int]]] = set()
        while (item := stack.first) is not None:
            amounts = frozenset(item.amounts.items())
            if amounts not in refused and test(sides, item):
                break
            refused.add(amounts)
            stack.pass_over()
            self._stock.weighed += len(item.pods)
            yield WEIGHED * len(item.pods)
        return item

    def _key(self, line: QueueLine, *, proportional: bool) -> Key:
        """Smaller gives first: in proportion to what was borrowed, then the worst offender."""
        initial = self._initial[line]
        left = self._excess(line) / initial if proportional and initial else Fraction(0)
        return -left, -self._outlook.share(self._sides[line].theirs[-1]), self._tie[line]

    def _excess(self, line: QueueLine) -> Fraction:
        return excess(self._outlook, line, self._rules.short)


def _chain(line: QueueLine) -> list[QueueNode]:
    found, node = [], line.parent
    while node is not None:
        found.append(node)
        node = node.parent
    return found


def excess(outlook: QueueOutlook, line: QueueLine, short: Iterable[str]) -> Fraction:
    """What a line's queue uses beyond its guarantee of the resources that are short, over what there is."""
    node, capacity = line.parent, outlook.tree.capacity
    assert node is not None
    parts = [
        Fraction(max(0, outlook.used(line, name) - node.guaranteed.get(name, 0)), capacity[name])
        for name in short
        if capacity.get(name, 0) > 0
    ]
    return max(parts, default=Fraction(0))
