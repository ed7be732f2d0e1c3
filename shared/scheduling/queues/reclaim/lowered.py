"""What goes when a limit falls below the use: of the queue and those below it, in proportion to what each has beyond
its guarantee, within a queue in the order of ``victims.py``. It may be most of what runs, so it is found in parts.
"""

from __future__ import annotations

import heapq
from fractions import Fraction

from shared.scheduling.queues.nodes import QueueLine, lines_of
from shared.scheduling.queues.outlook import QueueOutlook
from shared.scheduling.queues.reclaim.owed import Key, excess
from shared.scheduling.queues.reclaim.search import CHOSEN, Reclaim, Work, pods_of, put_back
from shared.scheduling.queues.reclaim.victims import WEIGHED, Item, Stack, Stock
from shared.scheduling.queues.tree import QueueTree


def over_limit(tree: QueueTree, name: str, stock: Stock) -> Work[Reclaim]:
    """Whom to evict where a queue uses more than its limits since they were lowered."""
    node = tree.structure.nodes[name]
    if not node.queue.reclaim:
        return Reclaim(reason=f"queue {name}: spec.reclaim is off")
    if all(node.used.get(resource, 0) <= limit.amount for resource, limit in node.limits.items()):
        return Reclaim(reason=f"queue {name} is within its limits", fits=True)
    outlook = QueueOutlook(tree, coming=False)

    def too_much() -> list[str]:
        return [resource for resource, limit in node.limits.items() if outlook.used(node, resource) > limit.amount]

    # By the outlook: who leaves already counts as gone, or each look would take as much again.
    over, chosen = too_much(), list[Item]()
    lines = [line for line in lines_of(node) if line.charges] if over else []
    initial = {line: excess(outlook, line, over) for line in lines}
    tie = {line: number for number, line in enumerate(sorted(lines, key=lambda line: line.name, reverse=True))}

    def key(line: QueueLine) -> Key:
        beyond = excess(outlook, line, over)
        # -1: who has nothing beyond its guarantee gives last. The tie is one line's own: lines have no order.
        return -(beyond / initial[line] if initial[line] else Fraction(-1)), -beyond, tie[line]

    heap = [(key(line), line) for line in lines]
    heapq.heapify(heap)
    stacks: dict[QueueLine, Stack] = {}
    while over and heap:
        known, line = heap[0]
        if (owes := key(line)) != known:
            heapq.heapreplace(heap, (owes, line))
            continue
        heapq.heappop(heap)
        if line not in stacks:
            yield from stock.weigh(line)
            stacks[line] = stock.of(line)
        stack = stacks[line]
        while (item := stack.first) is not None and item.amounts.keys().isdisjoint(over):
            stack.pass_over()
            stock.weighed += len(item.pods)
            yield WEIGHED * len(item.pods)
        # Not pushed back: what is over only shrinks, so who frees nothing of it now never will.
        if item is None:
            continue
        taken = stack.take()
        for one in taken:
            outlook.shift(line, one.amounts, 1)
        chosen += taken
        over = too_much()
        heapq.heappush(heap, (key(line), line))
        yield CHOSEN * len(taken)
    left = set(over)
    chosen = yield from put_back(outlook, chosen, lambda _: left.issuperset(too_much()))
    return Reclaim(tuple(pods_of(chosen)))
