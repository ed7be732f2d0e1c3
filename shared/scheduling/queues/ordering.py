"""Who goes first in every queue of the tree, put right along one path after each change; and what a limit holds back.

Each queue with children keeps a heap of those in its order. Whoever changed is pushed anew with a new stamp, and what
is stale is thrown away when it comes to the top, so a change costs O(depth x log children).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from shared.scheduling.queues.nodes import Amounts, Blocked, Contender, QueueLine, QueueNode, WaitingUnit


def blocked(line: QueueLine, amounts: Amounts) -> Blocked | None:
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
            # What stays within what this queue keeps is counted above already: asked for there once more, a unit would
            # be held back from what nobody else may have.
            if more := max(kept, inner + amount) - max(kept, inner):
                above[name] = more
        node, rest = node.parent, above
    while node is not None:  # it fits into what the queue keeps; whether those above are usable still matters
        if node.problem:
            return Blocked(node, problem=node.problem)
        node = node.parent
    return None


def foremost(node: QueueNode, firsts: Mapping[QueueLine, WaitingUnit]) -> WaitingUnit | None:
    """Of these, by line, the one that goes first below the node."""
    sent: list[tuple[Contender, WaitingUnit | None]] = [
        (child, foremost(child, firsts)) for child in node.children.values()
    ]
    sent.append((node.own, firsts.get(node.own)))
    ranked = [(child.rank(node.queue.strategy, unit), unit) for child, unit in sent if unit is not None]
    return min(ranked, key=lambda item: item[0])[1] if ranked else None


class Ordering:
    """The heaps of one tree."""

    def __init__(self) -> None:
        self._stamp = 0

    def _order_all(self, nodes: Mapping[str, QueueNode]) -> None:
        # Deepest first: whom a queue sends is one of those whom its children send.
        for node in sorted(nodes.values(), key=lambda node: -node.depth):
            node.heap.clear()
            self._refresh(node.own)
            for child in node.contenders():
                self._push(node, child)
            node.first = self._first(node)

    def _refresh(self, line: QueueLine) -> None:
        """Let the first unit of the line that is not held back any more stand in its order."""
        if line.held:
            self._free(line)
        shape = line.head()
        head = shape.head() if shape is not None else None
        line.first = head[1] if head is not None else None

    def _free(self, line: QueueLine) -> None:
        # Each shape once: one that another limit holds back by now would be asked about for ever.
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
            found = blocked(line, shape.amounts)
            if found is None:
                line.free(shape)
                return
            line.hold(shape, found)

    def _touch(self, line: QueueLine) -> None:
        """The line, or what counts in it, has changed: put right who goes first, up to the root."""
        self._refresh(line)
        child: Contender = line
        while (node := child.parent) is not None:
            self._push(node, child)
            node.first = self._first(node)
            child = node

    def _push(self, node: QueueNode, child: Contender) -> None:
        if not node.children:
            return
        # Before it is asked whether it sends anybody: what stands of it in the heap is stale either way.
        self._stamp += 1
        child.stamp = self._stamp
        if child.first is None:
            return
        rank = child.rank(node.queue.strategy, child.first)
        # The stamp stands before the child, which has no order; no two items have the same.
        heap, item = node.heap, (rank, self._stamp, child)
        if heap and heap[0][2] is child:
            heapq.heapreplace(heap, item)  # the one that goes stands first, and now elsewhere
            return
        heapq.heappush(heap, item)
        if len(heap) > 4 * len(node.children) + 64:
            node.heap = [item for item in heap if item[2].stamp == item[1]]
            heapq.heapify(node.heap)

    @staticmethod
    def _first(node: QueueNode) -> WaitingUnit | None:
        if not node.children:
            return node.own.first
        heap = node.heap
        while heap and heap[0][2].stamp != heap[0][1]:
            heapq.heappop(heap)
        return heap[0][2].first if heap else None
