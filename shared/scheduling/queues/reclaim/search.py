"""Whom to evict so that a queue gets back what was borrowed from it.

Whoever owes it gives, in the order of ``owed.py``; within a queue in that of ``victims.py``. Victims that turn out to
be needless are put back.

Victims are chosen by the queues' sums alone; nodes are asked (``ReclaimRoom``) about the first of them, then about
twice as many, and about halves between, so rarely. Work comes in parts (``search`` yields what each was), between which
the cluster goes on: what was chosen over some turns is asked once more of the moment (``still_owed``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct

from shared.scheduling.parts import in_one_go
from shared.scheduling.queues.nodes import Amounts, Blocked, Charge, QueueLine, QueueNode, WaitingUnit
from shared.scheduling.queues.outlook import QueueOutlook
from shared.scheduling.queues.reclaim.owed import Others
from shared.scheduling.queues.reclaim.victims import Item, Stock, may_leave, whole
from shared.scheduling.queues.tree import QueueTree

CHOSEN = 75
"""Work of one victim that is chosen or put back, in nodes looked at: 0.4 us."""

T = TypeVar("T")

Work = Generator[int, None, T]


class ReclaimRoom(Protocol):
    """What the nodes say. ``work``: nodes looked at so far."""

    work: int

    def fits(self, gone: Sequence[Charge]) -> bool:
        """Whether the unit finds room once these pods are gone, beside those that are leaving already."""

    def spares(self, back: Sequence[Charge]) -> bool:
        """Whether it still does though these, that the last question left out, stay: if so, they stay from now on."""


class Reclaim(Struct, frozen=True):
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
    unit: WaitingUnit,
    now: float, *,
    waited_s: float,
    room: ReclaimRoom | None = None,
    blocked: Blocked | None = None,
    stock: Stock | None = None,
) -> Reclaim:  # fmt: skip
    """``search``, in one go."""
    return in_one_go(search(tree, unit, now, waited_s=waited_s, room=room, blocked=blocked, stock=stock))


def search(
    tree: QueueTree,
    unit: WaitingUnit,
    now: float, *,
    waited_s: float,
    room: ReclaimRoom | None = None,
    blocked: Blocked | None = None,
    stock: Stock | None = None,
    gone: Iterable[Charge] = (),
) -> Work[Reclaim]:  # fmt: skip
    """Whom to evict for the unit. ``waited_s``: for how long nothing else has kept it; ``room``: what the nodes say;
    None: only a limit keeps it; ``blocked``: that limit, None where only the nodes do; ``stock``: who may be evicted,
    None: whoever may as of ``now``; ``gone``: pods that go in any case."""
    tree.structure  # noqa: B018 (brings the tree up to date)
    home = unit.line.parent
    assert home is not None
    queue = home.queue
    # Nobody's going helps: the queue cannot be used, or the unit alone asks for more than the limit.
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

    outlook = QueueOutlook(tree)
    for pod in gone:
        # Who leaves already is out of the outlook's sums.
        if pod.line is not None and not pod.leaving:
            outlook.shift(pod.line, dict(pod.amounts), 1)
    if _admits(outlook, unit, blocked) and (room is None or room.fits(())):
        return Reclaim(reason="there is room for it without", fits=True)
    if room is not None:
        yield room.work
    # The minimum run time protects from giving back what was borrowed, not from the queue's own more important pods.
    others = None if within else Others(outlook, unit, blocked, stock or Stock(tree, now))
    choices = _own(outlook, unit, home, Stock(tree, now, protect=False)) if others is None else others.choices()
    chosen = yield from _enough(outlook, unit, blocked, choices, room)
    if not chosen:
        return Reclaim(reason=f"queue {home.name}: what others borrowed and may be evicted is not enough")

    def goes_without(item: Item) -> bool:
        return _admits(outlook, unit, blocked) and (room is None or room.spares(item.pods))

    needed = yield from put_back(outlook, chosen, goes_without, room)
    if others is not None and len(needed) < len(chosen) and not (yield from _owed_in_turn(outlook, others, needed)):
        return Reclaim(reason=f"queue {home.name}: what would make room is owed only once others gave as well")
    return Reclaim(tuple(pods_of(needed)))


def _owed_in_turn(outlook: QueueOutlook, others: Others, chosen: Iterable[Item]) -> Work[bool]:
    """Whether each is owed when it goes, in some order, though some were put back that went before. The outlook is left
    as it was where so."""
    left = list(chosen)
    for item in left:
        outlook.shift(item.line, item.amounts, -1)
    while left:
        stay = list[Item]()
        for item in left:
            yield CHOSEN
            if others.allow(item):
                outlook.shift(item.line, item.amounts, 1)
            else:
                stay.append(item)
        if len(stay) == len(left):
            return False
        left = stay
    return True


def _admits(outlook: QueueOutlook, unit: WaitingUnit, blocked: Blocked | None) -> bool:
    return blocked is None or outlook.admits(unit.line, unit.amounts)


def _enough(
    outlook: QueueOutlook,
    unit: WaitingUnit,
    blocked: Blocked | None,
    choices: Iterator[Item | int],
    room: ReclaimRoom | None,
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
            # By sums alone until they let it go: no node need be asked about a unit that a limit holds back still.
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
    # Once more: `spares`, and where members would go, are of the last question.
    if asked != enough:
        room.fits(pods_of(chosen[:enough]))
    for item in chosen[enough:]:
        outlook.shift(item.line, item.amounts, -1)
    return chosen[:enough]


def pods_of(items: Iterable[Item]) -> list[Charge]:
    """The pods that these items take."""
    return [pod for item in items for pod in item.pods]


def put_back(
    outlook: QueueOutlook, chosen: list[Item], goes_without: Callable[[Item], bool], room: ReclaimRoom | None = None
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


def by_own_pods(unit: WaitingUnit, blocked: Blocked) -> bool:
    """Whether it is pods of the unit's own queue that fill the limit, which is its own."""
    home = unit.line.parent
    return home is not None and _within(home, blocked)


def _within(home: QueueNode, blocked: Blocked | None) -> bool:
    """Whether it is the queue's own pods that fill its limit."""
    return blocked is not None and blocked.node is home and not _by_others(home, blocked)


def _by_others(home: QueueNode, blocked: Blocked) -> bool:
    """Whether queues below, not the queue's own pods, fill its limit."""
    return bool(home.children) and home.own.used.get(blocked.resource, 0) < home.used.get(blocked.resource, 0)


def _own(outlook: QueueOutlook, unit: WaitingUnit, home: QueueNode, stock: Stock) -> Iterator[Item | int]:
    """Pods of lower priority in the same queue make room."""
    yield from stock.weigh(home.own)
    stack = stock.of(home.own)
    while stack.first is not None:
        for item in stack.take():
            # <: of equals who stands stays, or two pods of one priority would evict each other in turns.
            if max(pod.priority for pod in item.pods) < unit.priority:
                outlook.shift(item.line, item.amounts, 1)
                yield item


def still_owed(
    tree: QueueTree,
    unit: WaitingUnit,
    victims: Sequence[Charge],
    blocked: Blocked | None = None,
    *,
    nodes: bool = False,
) -> bool:
    """Whether the victims may leave still, no gang among them keeps too few, each is owed to the unit by one of the
    rules without the others, and the limit that holds the unit back lets it go then. ``nodes``: they hold it back too.
    Costs as victims, and the rules as the kinds of them."""
    home = unit.line.parent
    assert home is not None
    if not may_leave(tree.charges, victims) or not whole(tree, victims):
        return False
    kinds: Counter[tuple[QueueLine, Amounts]] = Counter(
        (pod.line, pod.amounts) for pod in victims if pod.line is not None
    )
    one_of = {(pod.line, pod.amounts): pod for pod in victims}
    outlook = QueueOutlook(tree)
    for (line, amounts), count in kinds.items():
        outlook.shift(line, {name: count * amount for name, amount in amounts}, 1)
    if not _admits(outlook, unit, blocked):
        return False
    if _within(home, blocked):
        return all(pod.priority < unit.priority for pod in victims)
    stock = Stock(tree, 0.0, among=[pod.uid for pod in victims])
    rules = [Others(outlook, unit, why, stock) for why in ((blocked, None) if nodes else (blocked,))]
    for line, amounts in kinds:
        # Each without itself, the others gone: whatever goes last must still be owed.
        item = Item(line, (one_of[line, amounts],), dict(amounts), breaks=False)
        outlook.shift(line, item.amounts, -1)
        if not any(one.allow(item) for one in rules):
            return False
        outlook.shift(line, item.amounts, 1)
    return True
