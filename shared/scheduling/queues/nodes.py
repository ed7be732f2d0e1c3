"""The parts of the tree: queues (``QueueNode``), each with a line of its own units (``QueueLine``), and why a unit is
held back.

Units of one line that ask for the same amounts are one ``QueueShape``: a quota admits or holds them alike, so it is
asked once per shape. A queue's own line takes part in the order among its children as a child of weight 1: so units of
a queue that has children, and units without any queue (the root's own line), need no rule of their own.

Per resource, a queue keeps two sums: ``used``, and ``inner``, which also counts what queues below keep for themselves
and do not use (``kept``: guaranteed and not lent). Limits hold for ``inner``, so nobody takes what is not lent.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from msgspec import Struct
from msgspec.structs import replace

from shared.model.resources import amount_text
from shared.model.units.queue import Queue, QueueStrategy, UnitOrder
from shared.scheduling.queues.share import with_half

Amounts = tuple[tuple[str, int], ...]
"""Resource and amount, sorted by resource, each above zero: what a unit asks for as a whole."""

Rank = tuple[int, int | Fraction, int]
"""Which child comes first: 0 within its guarantee, 1 beyond; twice its share with half of its first unit; when that
arrived."""

NO_LIMIT = float("inf")


class Limit(Struct, frozen=True):
    """At most ``amount`` of a resource. ``kind``: what of the Queue says so."""

    amount: int
    kind: str


class Blocked(Struct, frozen=True):
    """Why a unit is held back: the queue that does it; a resource and its limit there, or a ``problem`` in words.
    ``behind``: it is not the unit that asks for so much, but the first of its FIFO queue."""

    node: QueueNode
    resource: str = ""
    asked: int = 0
    used: int = 0
    reserved: int = 0
    limit: int = 0
    kind: str = ""
    problem: str = ""
    behind: bool = False

    @property
    def queue(self) -> str:
        """The queue's name; "" is the root: the whole cluster."""
        return self.node.name

    @property
    def never(self) -> bool:
        """Whether it can never go as things are written: it alone asks for more than the limit."""
        return bool(self.resource) and self.asked > self.limit

    @property
    def why(self) -> tuple[str, str, str, str, bool, bool, bool]:
        """What of it is the reason; the rest is figures."""
        return self.queue, self.resource, self.kind, self.problem, self.never, bool(self.reserved), self.behind

    def text(self) -> str:
        """For people: what is used of what, what the unit asks for, and what would help."""
        if self.problem:
            return f"queue {self.queue}: {self.problem}"
        name = self.resource
        of, used = amount_text(name, self.limit), amount_text(name, self.used)
        where = f"queue {self.queue}: {name} {used} of {self.kind} {of} is used"
        remedy = f"the {self.kind} is raised"
        if not self.queue:
            where, remedy = f"cluster: {name} {used} of {of} is used", "nodes are added"
        if self.reserved:
            where += f" and {amount_text(name, self.reserved)} is kept for queues that do not lend it"
        asker = "it goes after the first of its queue (order FIFO), which" if self.behind else "it"
        asks = f"{asker} asks for {amount_text(name, self.asked)}"
        if self.never:
            return f"{where}; {asks}, which never fits unless it asks for less or {remedy}"
        return f"{where}; {asks} and waits until pods there end or {remedy}"

    def may_fit(self) -> bool:
        """Whether what held it back has changed enough to ask again; never False where it would fit."""
        if not self.resource:
            return False
        # what a queue on the way keeps for itself may take a part of it meanwhile
        return self.node.room(self.resource) >= self.asked - self.node.slack.get(self.resource, 0)


@dataclass(slots=True, eq=False)
class WaitingUnit:
    """A unit that waits. ``label``: the queue it asks for, "" for its namespace's; ``arrival`` counts up."""

    key: str
    namespace: str
    label: str
    priority: int
    arrival: int
    amounts: Amounts
    shape: QueueShape | None = None

    @property
    def line(self) -> QueueLine:
        """The line it stands in."""
        assert self.shape is not None
        return self.shape.line


@dataclass(slots=True, eq=False)
class Charge:
    """A pod that counts: it was taken, assumed or is bound. ``unit``: of which unit it is a member; ``least``: so many
    members the unit must keep, or none. ``since``: seconds of the caller's clock at which it began to run, None before.
    ``evictable`` False: it opted out. ``leaving``: it is being evicted; it counts until it has ended."""

    uid: str
    namespace: str
    label: str
    amounts: Amounts
    unit: str
    priority: int = 0
    since: float | None = None
    least: int = 1
    evictable: bool = True
    leaving: bool = False
    line: QueueLine | None = None


OrderKey = tuple[int, int, str]


class Contender:
    """What stands in a queue's order: a child, or its own line. ``past``: what counts of its past use."""

    __slots__ = ("factors", "first", "guaranteed", "name", "parent", "past", "stamp", "used", "weight")

    def __init__(self, name: str, weight: Fraction, guaranteed: dict[str, int]) -> None:
        self.name = name
        self.weight = weight
        self.guaranteed = guaranteed
        self.parent: QueueNode | None = None
        self.used: dict[str, int] = {}
        self.past: dict[str, int] = {}
        self.first: WaitingUnit | None = None
        """The unit of it that would go first; None: none may go."""
        self.stamp = 0
        self.factors: dict[str, int] = {}
        """What one of each resource adds to its share (``share.ShareScale``)."""

    def within(self, amounts: Amounts) -> bool:
        """Whether it stays within its guarantee with these amounts: in each resource that the guarantee names, and of
        one of these it asks for something."""
        guaranteed, used, named = self.guaranteed, self.used, False
        for name, amount in amounts if guaranteed else ():
            if (most := guaranteed.get(name)) is not None:
                if used.get(name, 0) + amount > most:
                    return False
                named = True
        return named

    def rank(self, strategy: QueueStrategy, unit: WaitingUnit) -> Rank:
        """Its place among its siblings where it sends this unit, by its share with half of the unit
        (``share.with_half``)."""
        within = self.within(unit.amounts)
        fair = strategy is QueueStrategy.FAIR
        used, asked = self.used, dict(unit.amounts)
        if within and fair:
            named = [(name, most) for name, most in self.guaranteed.items() if most]
            return 0, max(Fraction(with_half(used.get(n, 0), asked.get(n, 0)), most) for n, most in named), unit.arrival
        past, guaranteed = self.past, self.guaranteed if fair else {}
        share = 0
        for name, factor in self.factors.items():
            counts = used.get(name, 0) + past.get(name, 0) - guaranteed.get(name, 0)
            if counts > 0:
                share = max(share, with_half(counts, asked.get(name, 0)) * factor)
        return (0 if within else 1), share, unit.arrival


class QueueShape:
    """Units of one line that ask for the same amounts."""

    __slots__ = ("_heap", "amounts", "line", "said", "said_at", "units", "untold")

    def __init__(self, line: QueueLine, amounts: Amounts) -> None:
        self.line = line
        self.amounts = amounts
        self.units: dict[str, WaitingUnit] = {}
        self.untold: dict[str, None] = {}
        """Units that nobody was told about yet, should they be held back."""
        self.said: Blocked | None = None
        self.said_at = 0.0
        """What its units were told last, and when: none of them yet where it is None."""
        self._heap: list[tuple[OrderKey, str]] = []

    def push(self, unit: WaitingUnit) -> None:
        self.units[unit.key] = unit
        self.untold[unit.key] = None
        heapq.heappush(self._heap, (self.line.order_key(unit), unit.key))
        if len(self._heap) > 4 * len(self.units) + 64:
            self.order_anew()  # behind a first unit that waits for long others come and go

    def order_anew(self) -> None:
        """The line's order may have changed."""
        self._heap = [(self.line.order_key(unit), key) for key, unit in self.units.items()]
        heapq.heapify(self._heap)

    def head(self) -> tuple[OrderKey, WaitingUnit] | None:
        """The unit that goes first, with its place."""
        while self._heap:
            key, name = self._heap[0]
            unit = self.units.get(name)
            if unit is not None and self.line.order_key(unit) == key:
                return key, unit
            heapq.heappop(self._heap)
        return None


class QueueLine(Contender):
    """The units of one queue itself, in its order; and the pods of it that count."""

    __slots__ = ("_ready", "_serial", "charges", "held", "order", "shapes", "units", "untold")

    def __init__(self, name: str) -> None:
        super().__init__(name, Fraction(1), {})
        self.order = UnitOrder.PRIORITY
        self.units: dict[str, WaitingUnit] = {}
        self.charges: dict[str, Charge] = {}
        self.shapes: dict[Amounts, QueueShape] = {}
        self.held: dict[QueueShape, Blocked] = {}
        """Shapes that a quota holds back, with the reason."""
        self.untold: dict[QueueShape, None] = {}
        """Shapes with units that nobody was told about yet."""
        self._ready: list[tuple[OrderKey, int, QueueShape]] = []
        self._serial = 0

    def order_key(self, unit: WaitingUnit) -> OrderKey:
        """Smaller goes first."""
        return (0 if self.order is UnitOrder.FIFO else -unit.priority), unit.arrival, unit.key

    def add(self, unit: WaitingUnit) -> None:
        shape = self.shapes.get(unit.amounts)
        if shape is None:
            shape = self.shapes[unit.amounts] = QueueShape(self, unit.amounts)
        unit.shape = shape
        self.units[unit.key] = unit
        shape.push(unit)
        self.untold[shape] = None
        self.offer(shape)

    def remove(self, unit: WaitingUnit) -> None:
        shape = unit.shape
        assert shape is not None
        del self.units[unit.key], shape.units[unit.key]
        shape.untold.pop(unit.key, None)
        if shape.units:
            self.offer(shape)
            return
        del self.shapes[shape.amounts]
        self.untold.pop(shape, None)
        if (blocked := self.held.pop(shape, None)) is not None:
            self._leave(blocked)

    def offer(self, shape: QueueShape) -> None:
        """Its first unit stands where its order says."""
        head = shape.head()
        if head is not None and (shape not in self.held or self.order is UnitOrder.FIFO):
            self._serial += 1
            heapq.heappush(self._ready, (head[0], self._serial, shape))
            if len(self._ready) > 4 * len(self.shapes) + 64:
                self._tidy()

    def _tidy(self) -> None:
        """Only what stands: each shape with its first unit, once."""
        ready: dict[QueueShape, tuple[OrderKey, int, QueueShape]] = {}
        for item in sorted(self._ready):
            head = item[2].head()
            if head is not None and head[0] == item[0] and self.shapes.get(item[2].amounts) is item[2]:
                ready.setdefault(item[2], item)
        self._ready = list(ready.values())

    def hold(self, shape: QueueShape, blocked: Blocked) -> None:
        """A quota holds the shape back."""
        before = self.held.get(shape)
        self.held[shape] = blocked
        if before is None or before.node is not blocked.node:
            blocked.node.lines[self] = blocked.node.lines.get(self, 0) + 1
            if before is not None:
                self._leave(before)

    def reason(self, shape: QueueShape) -> Blocked | None:
        """What holds the shape back, as last found; behind the first of a FIFO line that is what holds the first."""
        found = self.held.get(shape)
        if found is None and self.order is UnitOrder.FIFO and (first := self.fifo_head()) is not None:
            behind = self.held.get(first)
            found = replace(behind, behind=True) if behind is not None and not behind.problem else behind
        return found

    def free(self, shape: QueueShape) -> None:
        """It is not known to be held back any more."""
        self._leave(self.held.pop(shape))
        self.offer(shape)

    def free_all(self) -> None:
        """The tree has changed: nothing is known to be held back."""
        self.held.clear()
        self._ready.clear()
        for shape in self.shapes.values():
            shape.order_anew()
            self.offer(shape)

    def head(self) -> QueueShape | None:
        """The shape whose first unit goes next; None: none, or (FIFO) it is held back."""
        while self._ready:
            key, _, shape = self._ready[0]
            head = shape.head()
            if head is not None and head[0] == key and self.shapes.get(shape.amounts) is shape:
                if shape not in self.held:
                    return shape
                if self.order is UnitOrder.FIFO:
                    return None
            heapq.heappop(self._ready)
        return None

    def _leave(self, blocked: Blocked) -> None:
        """One shape fewer waits for that queue's limits."""
        waiting = blocked.node.lines
        waiting[self] -= 1
        if not waiting[self]:
            del waiting[self]

    def fifo_head(self) -> QueueShape | None:
        """Of a FIFO line: the shape that comes first, held back or not."""
        return None if self.head() is not None or not self._ready else self._ready[0][2]


class QueueNode(Contender):
    """A queue. The root has the name "" and stands for the cluster."""

    __slots__ = ("children", "depth", "heap", "inner", "kept", "limits", "lines", "own", "pending", "problem", "queue",
                 "slack", "totals")  # fmt: skip

    def __init__(self, queue: Queue, own: QueueLine) -> None:
        super().__init__(queue.name, queue.weight if queue.weight > 0 else Fraction(1), queue.guaranteed)
        self.queue = queue
        self.own = own
        own.parent = self
        self.children: dict[str, QueueNode] = {}
        self.depth = 0
        self.problem = queue.problem
        """Why none of its units may go, nor any below it."""
        self.inner: dict[str, int] = {}
        self.kept: dict[str, int] = {}
        """What nobody else gets, used or not: guaranteed and not lent."""
        self.limits: dict[str, Limit] = {}
        self.slack: dict[str, int] = {}
        """What queues below keep: how much less than it asks for a unit may need here."""
        self.lines: dict[QueueLine, int] = {}
        """Lines with units that this queue's limits hold back: how many shapes of each."""
        self.pending = 0
        self.heap: list[tuple[Rank, int, Contender]] = []
        self.totals: dict[str, int] = {}
        """What shares of those in its order are taken of."""

    def room(self, name: str, inner: int | None = None, used: int | None = None) -> float:
        """How much more of a resource its limits leave. ``inner``, ``used``: by these sums in place of its own."""
        limit = self.limits.get(name)
        if limit is None:
            return NO_LIMIT
        inner = self.inner.get(name, 0) if inner is None else inner
        if self.parent is None and inner == (self.used.get(name, 0) if used is None else used):
            return NO_LIMIT  # nobody keeps anything back: whether it fits is the nodes' to say
        return limit.amount - inner

    def contenders(self) -> list[Contender]:
        """Its children and its own line."""
        return [*self.children.values(), self.own]


def lines_of(node: QueueNode) -> Iterator[QueueLine]:
    """The lines of a queue and of all below it."""
    yield node.own
    for child in node.children.values():
        yield from lines_of(child)
