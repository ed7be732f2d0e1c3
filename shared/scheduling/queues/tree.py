"""Which unit goes next, and what is held back: the tree of queues with the units that wait and the pods that count.

    put_queue, drop_queue, set_capacity --> (tree is built anew at the next question, once, whatever came)
    add / remove   a unit waits, or not any more          charge / release   a pod counts, or not any more
    front          the unit that goes next                take               it goes: its pods count from now on

Order: in every queue first the children that stay within their guarantee with their next unit, then the lowest share
(DRF or of what was borrowed), ties by arrival. A unit that a limit holds back is out of the order until the queue that
holds it has room again or its limits change.

Cost: an event costs O(depth x (resources + log children)), plus the shapes that wait for the queues it freed; no event
costs as all pending units do, except those that are rare and change the tree itself (as queues and shapes).

Why nobody starves: a unit that fits is passed over by a child only while that child's share is lower or equal and its
unit older; each unit that goes raises its child's share, so of siblings with units each comes first after finitely many
others; and within a line only older or more important units go before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from shared.model.units.queue import Queue, QueueStrategy
from shared.scheduling.queues.checks import broken
from shared.scheduling.queues.decided import QueueCommitments
from shared.scheduling.queues.history import UsageHistory
from shared.scheduling.queues.nodes import Amounts, Blocked, Charge, QueueLine, QueueNode, QueueShape, WaitingUnit
from shared.scheduling.queues.notices import Notices
from shared.scheduling.queues.ordering import Ordering, blocked, foremost
from shared.scheduling.queues.structure import Structure, bindings_of, build

CHECKS_AT_ONCE = 256
"""Shapes that one question finds held back at most; ``more`` says that there may be others to try."""


class QueueTree(Ordering):
    """The queues of one cluster. Without any Queue object it holds one line, the root's."""

    def __init__(self, strategy: QueueStrategy = QueueStrategy.DRF) -> None:
        super().__init__()
        self.queues: dict[str, Queue] = {}
        self.deleted: dict[str, Queue] = {}
        """As they were written last, those that are used still."""
        self.capacity: dict[str, int] = {}
        self.history = UsageHistory()
        self.units: dict[str, WaitingUnit] = {}
        self.charges: dict[str, Charge] = {}
        self.members: dict[str, dict[str, Charge]] = {}
        """Those of them that are not alone, by unit."""
        self.lines: dict[str, QueueLine] = {"": QueueLine("")}
        self.reserved: dict[str, WaitingUnit] = {}
        """Units that count already, while the pods that leave for them still do: nobody takes what is freed."""
        self.due: dict[str, None] = {}
        """Those of them that go next, before all others: nobody leaves for them any more."""
        self.decided = QueueCommitments()
        self.changed: dict[str, None] | None = None
        """Pods that began or ceased to count, or count otherwise, where somebody follows that, who takes them out."""
        self.notices = Notices()
        self.strategy = strategy
        self._namespaces: dict[str, dict[str, None]] = {}
        self._bindings: dict[str, str] = {}
        self._structure: Structure | None = None
        self.cut_short = False
        """The last question about those that wait ended early."""

    def __len__(self) -> int:
        return len(self.units)

    # --- the tree itself ----------------------------------------------------------------------------------------

    def put_queue(self, queue: Queue) -> None:
        """A Queue object was made or changed."""
        self.queues[queue.name] = queue
        self.deleted.pop(queue.name, None)
        self._changed()

    def drop_queue(self, name: str) -> None:
        """A Queue object is gone; what counts in it goes on to count."""
        if (queue := self.queues.pop(name, None)) is not None:
            self.deleted[name] = queue
            self._changed()

    def set_capacity(self, totals: Mapping[str, int]) -> None:
        """The cluster's allocatable totals."""
        # A tree that is built anew ends every look at it: nodes are written all the time, their totals change seldom.
        if self.capacity != totals:
            self.capacity = dict(totals)
            self._structure = None

    def _changed(self) -> None:
        self._structure = None
        bindings, _ = bindings_of(self.queues.values())
        before, self._bindings = self._bindings, bindings
        for namespace in before.keys() | bindings.keys():
            if before.get(namespace) != bindings.get(namespace):
                self._rebind(namespace)

    def _rebind(self, namespace: str) -> None:
        """Units and pods of the namespace that name no queue move to its new one."""
        for key in list(self._namespaces.get(namespace, ())):
            if (reserved := self.reserved.get(key)) is not None:
                self.add(reserved)  # what was reserved was the former queue's
                continue
            if (unit := self.units.get(key)) is not None:
                line = self._line(unit.label, namespace)
                unit.line.remove(unit)
                line.add(unit)
            if (charge := self.charges.get(key)) is not None and charge.line is not None:
                # The lines alone: the structure has been dropped, and its sums are taken from them when it is built.
                self._count_line(charge, charge.line, -1)
                charge.line = self._line(charge.label, namespace)
                self._count_line(charge, charge.line, +1)
                if self.changed is not None:
                    self.changed[key] = None

    @property
    def structure(self) -> Structure:
        """The tree as it is now."""
        if (found := self._structure) is None:
            for name in [n for n, line in self.lines.items() if n and not line.units and not line.charges]:
                if name not in self.queues:
                    del self.lines[name]
            named = {queue.parent for queue in self.queues.values()} | self.lines.keys()
            self.deleted = {name: queue for name, queue in self.deleted.items() if name in named}
            found = self._structure = build(self.queues, self.lines, self.deleted, self.capacity, self.strategy)
            # Before the order is made: past use is a part of it.
            self.history.count_in(found.nodes)
            self._order_all(found.nodes)
        return found

    def advance(self, now: float) -> None:
        """Bring past use up to date; costs as queues, and only so often."""
        nodes = self.structure.nodes
        if self.history.advance(nodes, now):
            self.history.count_in(nodes)
            self._order_all(nodes)

    # --- units that wait ----------------------------------------------------------------------------------------

    def add(self, unit: WaitingUnit) -> Blocked | None:
        """A unit waits. The reason where it is known to be held back."""
        self.remove(unit.key)
        line = self._line(unit.label, unit.namespace)
        self.units[unit.key] = unit
        if not unit.label:
            self._namespaces.setdefault(unit.namespace, {})[unit.key] = None
        line.add(unit)
        if self._structure is not None:
            for node in _path(line):
                node.pending += 1
            self._touch(line)
        blocked = self.held(unit.key)
        if blocked is not None and unit.shape is not None:
            self.notices.add(unit.shape)
        return blocked

    def remove(self, key: str) -> WaitingUnit | None:
        """The unit waits no longer; an unknown one is fine."""
        if (unit := self.reserved.pop(key, None)) is not None:
            self.due.pop(key, None)
            self.release(key)
            return unit
        unit = self._withdraw(key)
        if unit is not None:
            self._settle({unit.line: None}, 0)
        return unit

    @property
    def more(self) -> bool:
        """Whether the last question ended early: ask again. Not while a unit is ``due``, which is the answer until
        somebody takes it; of what was left it is asked after that."""
        return self.cut_short and not self.due

    def front(self) -> WaitingUnit | None:
        """The unit that goes next; None: no unit may go (or ``more``: ask again)."""
        # No limit is asked: they have counted all the time, and would now be refused for their own use.
        if self.due:
            return self.reserved[next(iter(self.due))]
        root, self.cut_short = self.structure.root, False
        # Not until one may go: with thousands of shapes behind one limit a single question would be a whole turn.
        for _ in range(CHECKS_AT_ONCE):
            if (unit := root.first) is None:
                return None
            line = unit.line
            blocked = self.blocked(line, unit.amounts)
            if blocked is None:
                return unit
            assert unit.shape is not None
            line.hold(unit.shape, blocked)
            self.notices.held(unit.shape)
            self._touch(line)
        self.cut_short = root.first is not None
        return None

    def take(self, unit: WaitingUnit, *pods: Charge) -> None:
        """The unit goes: it waits no longer and counts from now on, as ``pods`` or, without any, as a whole."""
        changed: dict[QueueLine, None] = {}
        if unit.key in self.reserved:
            self.remove(unit.key)
        elif self._withdraw(unit.key) is not None:
            changed[unit.line] = None
        whole = Charge(unit.key, unit.namespace, unit.label, unit.amounts, unit.key, unit.priority)
        self._admit(pods or (whole,), changed)
        self._settle(changed, +1)

    def reserve(self, unit: WaitingUnit) -> None:
        """The unit counts from now on, and goes (``due``) when those that leave for it are gone."""
        self.take(unit)
        # After `take`, which gives back the charge of a unit that is reserved.
        self.reserved[unit.key] = unit

    def stand_in(self, unit: WaitingUnit) -> WaitingUnit:
        """The unit as if it stood in its line, to ask about it; it does not."""
        unit.shape = QueueShape(self._line(unit.label, unit.namespace), unit.amounts)
        return unit

    def foremost(self, units: Iterable[WaitingUnit]) -> WaitingUnit:
        """Which of these (``stand_in``, one at least) would go first if only they waited. Costs as units and queues."""
        firsts: dict[QueueLine, WaitingUnit] = {}
        for unit in sorted(units, key=lambda unit: unit.line.order_key(unit)):
            firsts.setdefault(unit.line, unit)
        found = foremost(self.structure.root, firsts)
        assert found is not None
        return found

    def clear(self) -> None:
        """Nobody waits and nothing counts here any more."""
        self.__init__(self.strategy)  # type: ignore[misc]

    @property
    def version(self) -> int:
        """Counts changes of what waits and what counts."""
        return self._stamp

    def line_name(self, label: str, namespace: str) -> str:
        """The queue of units that name this one, or none; "" is no queue."""
        return label or self._bindings.get(namespace, "")

    def held(self, key: str) -> Blocked | None:
        """Why a waiting unit is held back, as last found; None: it is not known to be."""
        unit = self.units.get(key)
        return None if unit is None or unit.shape is None else unit.line.reason(unit.shape)

    def look_again(self, most: int, now: float, repeat_s: float) -> None:
        """Ask anew what holds some units back, so many shapes of them, in turn: where it is something else, they are
        told again; where only figures differ, no sooner than ``repeat_s`` after the last time."""
        for line in self.notices.look_again(self.structure.nodes, most, now, repeat_s):
            self._touch(line)

    def blocked(self, line: QueueLine, amounts: Amounts) -> Blocked | None:
        """Which limit, of the line's queue or of one above, these amounts would exceed; None: they may go."""
        return blocked(line, amounts)

    # --- pods that count ----------------------------------------------------------------------------------------

    def charge(self, *pods: Charge) -> None:
        """The pods count from now on; those that do already count as they are told now (another queue, amounts)."""
        changed: dict[QueueLine, None] = {}
        self._admit(pods, changed)
        self._settle(changed, +1)

    def release(self, *uids: str) -> None:
        """The pods are gone, or were given back; unknown ones are fine."""
        changed: dict[QueueLine, None] = {}
        for uid in uids:
            self._discharge(uid, changed)
        self._settle(changed, -1)

    def leave(self, uid: str, *, leaving: bool = True) -> None:
        """The pod is being evicted: it counts until it has gone; False: it stays after all. Unknown ones are fine."""
        if (pod := self.charges.get(uid)) is not None:
            self.decided.leave(pod, leaving=leaving)
            if self.changed is not None:
                self.changed[uid] = None

    def expect(self, uid: str, pod: Charge | None) -> None:
        """Room is made for the pod, that it has not taken yet; None: not any more."""
        self.decided.expect(uid, pod, counts=uid in self.charges)

    def validate(self) -> Iterator[str]:
        """What is broken between sums, lines and charges; nothing while all is well. Costs as all units and pods."""
        yield from broken(self.lines, self.units, self.charges, self.structure)
        yield from self.decided.broken(self.charges)

    # --- inside -------------------------------------------------------------------------------------------------

    def _withdraw(self, key: str) -> WaitingUnit | None:
        """The unit stands in its line no longer; its line is to be settled."""
        unit = self.units.pop(key, None)
        if unit is None:
            return None
        line = unit.line
        line.remove(unit)
        if not unit.label:
            self._forget_namespace(unit.namespace, key)
        if self._structure is not None:
            for node in _path(line):
                node.pending -= 1
        return unit

    def _admit(self, pods: Sequence[Charge], changed: dict[QueueLine, None]) -> None:
        """The pods count; ``changed``: the lines that are to be settled."""
        if self.changed is not None:
            self.changed.update(dict.fromkeys(pod.uid for pod in pods))
        for pod in pods:
            line, known = self._line(pod.label, pod.namespace), self.charges.get(pod.uid)
            if known is not None:
                if known.line is line and (known.label, known.amounts) == (pod.label, pod.amounts):
                    if known.unit != pod.unit:
                        self._leave_unit(known)
                        known.unit = pod.unit
                        self._join_unit(known)
                    known.priority, known.least = pod.priority, pod.least
                    known.evictable, known.since = pod.evictable, known.since if pod.since is None else pod.since
                    self.decided.leave(known, leaving=known.leaving or pod.leaving)
                    continue
                # Who is on the way out stays so in another queue: taken for one that stays, it would be chosen twice.
                pod.leaving = pod.leaving or known.leaving
                self.release(pod.uid)
            self.charges[pod.uid] = pod
            pod.line = line
            if not pod.label:
                self._namespaces.setdefault(pod.namespace, {})[pod.uid] = None
            self._count(pod, line, +1)
            self._join_unit(pod)
            self.decided.begins(pod)
            changed[line] = None

    def _discharge(self, uid: str, changed: dict[QueueLine, None]) -> None:
        """The pod counts no longer; ``changed``: the lines that are to be settled."""
        pod = self.charges.pop(uid, None)
        if self.changed is not None:
            self.changed[uid] = None
        if pod is not None and pod.line is not None:
            if not pod.label:
                self._forget_namespace(pod.namespace, uid)
            self._count(pod, pod.line, -1)
            self._leave_unit(pod)
            self.decided.ends(pod)
            changed[pod.line] = None

    def _join_unit(self, pod: Charge) -> None:
        if pod.unit != pod.uid:
            self.members.setdefault(pod.unit, {})[pod.uid] = pod

    def _leave_unit(self, pod: Charge) -> None:
        if pod.unit != pod.uid:
            there = self.members[pod.unit]
            del there[pod.uid]
            if not there:
                del self.members[pod.unit]

    def _count_line(self, pod: Charge, line: QueueLine, sign: int) -> None:
        used = line.used
        for name, amount in pod.amounts:
            used[name] = used.get(name, 0) + sign * amount
        if sign > 0:
            line.charges[pod.uid] = pod
        else:
            del line.charges[pod.uid]

    def _count(self, pod: Charge, line: QueueLine, sign: int) -> None:
        self._count_line(pod, line, sign)
        if self._structure is None:
            return
        takes = pod.amounts
        for node in _path(line):
            used, inner, kept = node.used, node.inner, node.kept
            above: list[tuple[str, int]] = []
            for name, amount in pod.amounts:
                used[name] = used.get(name, 0) + sign * amount
            for name, amount in takes:
                before = inner.get(name, 0)
                after = inner[name] = before + sign * amount
                keeps = kept.get(name, 0) if kept else 0
                if more := abs(max(keeps, after) - max(keeps, before)):
                    above.append((name, more))
            takes = tuple(above)

    def _settle(self, changed: Iterable[QueueLine], sign: int) -> None:
        """Put right who goes first after these lines have changed. ``sign``: what counts in them has become more (1) or
        less (-1), or is the same (0). Where it is less, those that wait for limits on the way are asked too; where it
        is more, those that wait at the top: what queues keep there may have been used up."""
        if self._structure is None:
            return
        for line in changed:
            self._touch(line)
            for node in _path(line) if sign else ():
                if node.lines and (sign < 0 or node.parent is None):
                    for other in list(node.lines):
                        if other is not line:
                            self._touch(other)
            self._left(line)

    def _line(self, label: str, namespace: str) -> QueueLine:
        name = self.line_name(label, namespace)
        line = self.lines.get(name)
        if line is None:
            line = self.lines[name] = QueueLine(name)
            # A queue that had no line has an empty one in the tree: it must be that one, or its units are in no order.
            if self._structure is not None and (node := self._structure.nodes.get(name)) is not None:
                self.lines[name] = line = node.own
            else:
                self._structure = None
        return line

    def _forget_namespace(self, namespace: str, key: str) -> None:
        # A lone pod's unit and its charge bear one key: while one of them is there, it moves with its namespace.
        for known in (self.units.get(key), self.charges.get(key)):
            if known is not None and not known.label:
                return
        keys = self._namespaces.get(namespace)
        if keys is not None:
            keys.pop(key, None)
            if not keys:
                del self._namespaces[namespace]

    def _left(self, line: QueueLine) -> None:
        """A queue without a Queue object that nobody uses any more goes."""
        if not line.charges and not line.units and line.name and line.name not in self.queues:
            self._structure = None


def _path(line: QueueLine) -> Iterator[QueueNode]:
    """The line's queue and those above it."""
    node = line.parent
    while node is not None:
        yield node
        node = node.parent
