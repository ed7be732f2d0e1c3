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

import heapq
from collections.abc import Iterator, Mapping

from shared.model.queue import Queue, Strategy
from shared.scheduling.queues.history import History
from shared.scheduling.queues.nodes import Amounts, Blocked, Charge, Contender, Line, Node, Waiting
from shared.scheduling.queues.structure import Structure, bindings_of, build

CHECKS_AT_ONCE = 256
"""Shapes that one question finds held back at most; ``more`` says that there may be others to try."""


class QueueTree:
    """The queues of one cluster. Without any Queue object it holds one line, the root's."""

    def __init__(self, strategy: Strategy = Strategy.DRF) -> None:
        self.queues: dict[str, Queue] = {}
        self.capacity: dict[str, int] = {}
        self.history = History()
        self.units: dict[str, Waiting] = {}
        self.charges: dict[str, Charge] = {}
        self.lines: dict[str, Line] = {"": Line("")}
        self.more = False
        """The last question ended early: ask again."""
        self.strategy = strategy
        self._last: dict[str, Queue] = {}
        self._namespaces: dict[str, dict[str, None]] = {}
        self._bindings: dict[str, str] = {}
        self._stamp = 0
        self._structure: Structure | None = None

    def __len__(self) -> int:
        return len(self.units)

    # --- the tree itself ----------------------------------------------------------------------------------------

    def put_queue(self, queue: Queue) -> None:
        """A Queue object was made or changed."""
        self.queues[queue.name] = queue
        self._last.pop(queue.name, None)
        self._changed()

    def drop_queue(self, name: str) -> None:
        """A Queue object is gone; what counts in it goes on to count."""
        if (queue := self.queues.pop(name, None)) is not None:
            self._last[name] = queue
            self._changed()

    def set_capacity(self, totals: Mapping[str, int]) -> None:
        """The cluster's allocatable totals."""
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
            if (unit := self.units.get(key)) is not None:
                line = self._line(unit.label, namespace)
                unit.line.remove(unit)
                line.add(unit)
            if (charge := self.charges.get(key)) is not None and charge.line is not None:
                self._count_line(charge, -1)
                charge.line = self._line(charge.label, namespace)
                self._count_line(charge, +1)

    @property
    def structure(self) -> Structure:
        """The tree as it is now."""
        if (found := self._structure) is None:
            for name in [n for n, line in self.lines.items() if n and not line.units and not line.charges]:
                if name not in self.queues:
                    del self.lines[name]
            named = {queue.parent for queue in self.queues.values()} | self.lines.keys()
            self._last = {name: queue for name, queue in self._last.items() if name in named}
            found = self._structure = build(self.queues, self.lines, self._last, self.capacity, self.strategy)
            self.history.count_in(found.nodes)
            self._order_all(found.nodes)
        return found

    def _order_all(self, nodes: Mapping[str, Node]) -> None:
        for node in sorted(nodes.values(), key=lambda node: -node.depth):
            node.heap.clear()
            self._refresh(node.own)
            for child in node.contenders():
                self._push(node, child)
            node.first = self._first(node)

    def advance(self, now: float) -> None:
        """Bring past use up to date; costs as queues, and only so often."""
        nodes = self.structure.nodes
        if self.history.advance(nodes, now):
            self.history.count_in(nodes)
            self._order_all(nodes)

    # --- units that wait ----------------------------------------------------------------------------------------

    def add(self, unit: Waiting) -> Blocked | None:
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
        return line.held.get(unit.shape) if unit.shape is not None else None

    def remove(self, key: str) -> Waiting | None:
        """The unit waits no longer; an unknown one is fine."""
        unit = self.units.pop(key, None)
        if unit is None:
            return None
        line = unit.line
        line.remove(unit)
        self._forget_namespace(unit.namespace, key)
        if self._structure is not None:
            for node in _path(line):
                node.pending -= 1
            self._touch(line)
            self._left(line)
        return unit

    def front(self) -> Waiting | None:
        """The unit that goes next; None: no unit may go (or ``more``: ask again)."""
        root, self.more = self.structure.root, False
        for _ in range(CHECKS_AT_ONCE):
            if (unit := root.first) is None:
                return None
            line = unit.line
            blocked = self.blocked(line, unit.amounts)
            if blocked is None:
                return unit
            assert unit.shape is not None
            line.hold(unit.shape, blocked)
            self._touch(line)
        self.more = root.first is not None
        return None

    def take(self, unit: Waiting, *pods: Charge) -> None:
        """The unit goes: it waits no longer and counts from now on, as ``pods`` or, without any, as a whole."""
        self.remove(unit.key)
        whole = Charge(unit.key, unit.namespace, unit.label, unit.amounts, unit.key, unit.priority)
        self.charge(*(pods or (whole,)))

    def held(self, key: str) -> Blocked | None:
        """Why a waiting unit is held back, as last found; None: it is not known to be."""
        unit = self.units.get(key)
        if unit is None or unit.shape is None:
            return None
        line = unit.line
        found = line.held.get(unit.shape)
        if found is None and (first := line.fifo_head()) is not None:
            found = line.held.get(first)  # those behind the first of a FIFO queue wait for the same
        return found

    def blocked(self, line: Line, amounts: Amounts) -> Blocked | None:
        """Which limit, of the line's queue or of one above, these amounts would exceed; None: they may go."""
        node, asked = line.parent, dict(amounts)
        rest = asked
        while node is not None and rest:
            if node.problem:
                return Blocked(node, problem=node.problem)
            above: dict[str, int] = {}
            for name, amount in rest.items():
                if amount > node.room(name):
                    limit, used = node.limits[name], node.used.get(name, 0)
                    reserved = node.inner.get(name, 0) - used
                    return Blocked(node, name, asked[name], used, reserved, limit.amount, limit.kind)
                kept, inner = node.kept.get(name, 0), node.inner.get(name, 0)
                if more := max(kept, inner + amount) - max(kept, inner):
                    above[name] = more
            node, rest = node.parent, above
        while node is not None:  # it fits into what the queue keeps; whether those above are usable still matters
            if node.problem:
                return Blocked(node, problem=node.problem)
            node = node.parent
        return None

    # --- pods that count ----------------------------------------------------------------------------------------

    def charge(self, *pods: Charge) -> None:
        """The pods count from now on; those that do already count as they are told now (another queue, amounts)."""
        for pod in pods:
            line, known = self._line(pod.label, pod.namespace), self.charges.get(pod.uid)
            if known is not None:
                if known.line is line and known.amounts == pod.amounts:
                    known.unit, known.priority, known.least = pod.unit, pod.priority, pod.least
                    known.evictable, known.leaving = pod.evictable, known.leaving or pod.leaving
                    known.since = known.since if pod.since is None else pod.since
                    continue
                self.release(pod.uid)
            self.charges[pod.uid] = pod
            pod.line = line
            if not pod.label:
                self._namespaces.setdefault(pod.namespace, {})[pod.uid] = None
            self._count(pod, +1)

    def release(self, *uids: str) -> None:
        """The pods are gone, or were given back; unknown ones are fine."""
        for uid in uids:
            pod = self.charges.pop(uid, None)
            if pod is not None:
                self._forget_namespace(pod.namespace, uid)
                self._count(pod, -1)

    def _count_line(self, pod: Charge, sign: int) -> Line:
        line = pod.line
        assert line is not None
        for name, amount in pod.amounts:
            line.used[name] = line.used.get(name, 0) + sign * amount
        if sign > 0:
            line.charges[pod.uid] = pod
        else:
            del line.charges[pod.uid]
        return line

    def _count(self, pod: Charge, sign: int) -> None:
        line = self._count_line(pod, sign)
        if self._structure is None:
            return
        takes, path = dict(pod.amounts), list(_path(line))
        for node in path:
            above: dict[str, int] = {}
            for name, amount in pod.amounts:
                node.used[name] = node.used.get(name, 0) + sign * amount
            for name, amount in takes.items():
                kept, before = node.kept.get(name, 0), node.inner.get(name, 0)
                after = node.inner[name] = before + sign * amount
                if more := abs(max(kept, after) - max(kept, before)):
                    above[name] = more
            takes = above
        self._touch(line)
        for node in path if sign < 0 else path[-1:]:
            for other in list(node.lines):
                if other is not line:
                    self._touch(other)
        if sign < 0:
            self._left(line)

    # --- inside -------------------------------------------------------------------------------------------------

    def _line(self, label: str, namespace: str) -> Line:
        name = label or self._bindings.get(namespace, "")
        line = self.lines.get(name)
        if line is None:
            line = self.lines[name] = Line(name)
            if self._structure is not None and (node := self._structure.nodes.get(name)) is not None:
                self.lines[name] = line = node.own
            else:
                self._structure = None
        return line

    def _forget_namespace(self, namespace: str, key: str) -> None:
        if key in self.units or key in self.charges:
            return
        keys = self._namespaces.get(namespace)
        if keys is not None:
            keys.pop(key, None)
            if not keys:
                del self._namespaces[namespace]

    def _left(self, line: Line) -> None:
        """A queue without a Queue object that nobody uses any more goes."""
        if not line.charges and not line.units and line.name and line.name not in self.queues:
            self._structure = None

    def _refresh(self, line: Line) -> None:
        """Let the first unit of the line that is not held back any more stand in its order."""
        if line.held:
            self._free(line)
        shape = line.head()
        head = shape.head() if shape is not None else None
        line.first = head[1] if head is not None else None

    def _free(self, line: Line) -> None:
        tried: set[int] = set()
        while True:
            first = line.fifo_head()
            shapes = line.held if first is None else [first]
            heads = [
                (head[0], shape)
                for shape in shapes
                if shape in line.held and id(shape) not in tried and line.held[shape].may_fit()
                and (head := shape.head()) is not None
            ]  # fmt: skip
            if not heads:
                return
            key, shape = min(heads, key=lambda item: item[0])
            ready = line.head()
            if ready is not None and (head := ready.head()) is not None and head[0] < key:
                return  # whether it fits after that one is asked when that one has gone
            tried.add(id(shape))
            blocked = self.blocked(line, shape.amounts)
            if blocked is None:
                line.free(shape)
                return
            line.hold(shape, blocked)

    def _touch(self, line: Line) -> None:
        """The line, or what counts in it, has changed: put right who goes first, up to the root."""
        self._refresh(line)
        child: Contender = line
        while (node := child.parent) is not None:
            self._push(node, child)
            node.first = self._first(node)
            child = node

    def _push(self, node: Node, child: Contender) -> None:
        if not node.children:
            return
        self._stamp += 1
        child.stamp = self._stamp
        if (rank := child.rank(node.queue.strategy)) is not None:
            heapq.heappush(node.heap, (rank, self._stamp, child))
            if len(node.heap) > 4 * len(node.children) + 64:
                node.heap = [item for item in node.heap if item[2].stamp == item[1]]
                heapq.heapify(node.heap)

    @staticmethod
    def _first(node: Node) -> Waiting | None:
        if not node.children:
            return node.own.first
        heap = node.heap
        while heap and heap[0][2].stamp != heap[0][1]:
            heapq.heappop(heap)
        return heap[0][2].first if heap else None

    # --- checks -------------------------------------------------------------------------------------------------

    def validate(self) -> Iterator[str]:
        """What is broken between sums, lines and charges; nothing while all is well. Costs as all units and pods."""
        for name, line in self.lines.items():
            used: dict[str, int] = {}
            for pod in line.charges.values():
                for resource, amount in pod.amounts:
                    used[resource] = used.get(resource, 0) + amount
            if used != {resource: amount for resource, amount in line.used.items() if amount}:
                yield f"queue-use: queue {name or 'none'} counts {line.used}, its pods use {used}"
            for key in line.units:
                if self.units.get(key) is None or self.units[key].line is not line:
                    yield f"queue-line: {key} stands in the line of {name or 'no queue'} and is not known there"
        for key, unit in self.units.items():
            if key not in unit.line.units:
                yield f"queue-line: {key} waits and stands in no line"
        for uid, pod in self.charges.items():
            if pod.line is None or pod.line.charges.get(uid) is not pod:
                yield f"queue-use: {uid} counts and no queue knows it"
        yield from self._validate_sums()

    def _validate_sums(self) -> Iterator[str]:
        for name, node in self.structure.nodes.items():
            parts = node.contenders()
            for resource in {resource for part in parts for resource in part.used}:
                total = sum(part.used.get(resource, 0) for part in parts)
                if node.used.get(resource, 0) != total:
                    yield f"queue-sum: queue {name or 'root'} counts {node.used.get(resource)} {resource}, not {total}"
            if node.pending != len(node.own.units) + sum(child.pending for child in node.children.values()):
                yield f"queue-sum: queue {name or 'root'} counts {node.pending} waiting units wrongly"


def _path(line: Line) -> Iterator[Node]:
    """The line's queue and those above it."""
    node = line.parent
    while node is not None:
        yield node
        node = node.parent
