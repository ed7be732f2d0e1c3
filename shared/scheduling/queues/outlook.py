"""The queues as they will be: less what is leaving, more what room is made for, and less the victims thought of.

Sums beside the tree's own, which no question changes: what is decided costs as queues do, a victim as its queue is
deep.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from shared.model.units.queue import QueueStrategy
from shared.scheduling.queues.decided import Whose
from shared.scheduling.queues.nodes import Amounts, Contender, QueueLine, QueueNode
from shared.scheduling.queues.share import borrowed_share, dominant_share
from shared.scheduling.queues.tree import QueueTree

NOTHING: Mapping[str, int] = {}


class QueueOutlook:
    """``coming`` False: without those for which room is made."""

    def __init__(self, tree: QueueTree, *, coming: bool = True) -> None:
        self.tree = tree
        self._less: dict[Contender, dict[str, int]] = {}
        self._less_inner: dict[QueueNode, dict[str, int]] = {}
        self._count(tree.decided.goes(), 1)
        if coming:
            self._count(tree.decided.comes(), -1)

    def _count(self, decided: Iterable[tuple[Whose, Mapping[str, int]]], sign: int) -> None:
        structure = self.tree.structure
        for (label, namespace), amounts in decided:
            node = structure.nodes.get(self.tree.line_name(label, namespace), structure.root)
            self.shift(node.own, amounts, sign)

    def shift(self, line: QueueLine, amounts: Mapping[str, int], sign: int) -> None:
        """As if the line used this less (1), or more (-1)."""
        self._add(self._less, line, amounts, sign)
        node, takes = line.parent, amounts
        while node is not None:
            self._add(self._less, node, amounts, sign)
            less, above = self._less_inner.setdefault(node, {}), dict[str, int]()
            for name, amount in takes.items():
                kept, before = node.kept.get(name, 0), node.inner.get(name, 0) - less.get(name, 0)
                less[name] = less.get(name, 0) + sign * amount
                if more := abs(max(kept, before) - max(kept, before - sign * amount)):
                    above[name] = more
            node, takes = node.parent, above

    @staticmethod
    def _add(sums: dict[Contender, dict[str, int]], of: Contender, amounts: Mapping[str, int], sign: int) -> None:
        less = sums.setdefault(of, {})
        for name, amount in amounts.items():
            less[name] = less.get(name, 0) + sign * amount

    def used(self, of: Contender, name: str) -> int:
        """What it will use of one resource."""
        return of.used.get(name, 0) - self._less.get(of, NOTHING).get(name, 0)

    def free(self, name: str) -> int:
        """What nobody in the cluster will use of one resource."""
        return self.tree.capacity.get(name, 0) - self.used(self.tree.structure.root, name)

    def admits(self, line: QueueLine, amounts: Amounts) -> bool:
        """Whether the limits, of the line's queue and of those above, will let these amounts go (``ordering.blocked``
        asks it of the tree as it is)."""
        node, rest = line.parent, dict(amounts)
        while node is not None:
            if node.problem:
                return False
            above, less = dict[str, int](), self._less_inner.get(node, NOTHING)
            for name, amount in rest.items():
                kept, inner = node.kept.get(name, 0), node.inner.get(name, 0) - less.get(name, 0)
                if amount > node.room(name, inner, self.used(node, name)):
                    return False
                if more := max(kept, inner + amount) - max(kept, inner):
                    above[name] = more
            node, rest = node.parent, above
        return True

    def share(self, of: Contender, plus: Mapping[str, int] = NOTHING, minus: Mapping[str, int] = NOTHING) -> Fraction:
        """Its share among its siblings, with and without these amounts."""
        node = of.parent
        assert node is not None
        names = of.used.keys() | self._less.get(of, NOTHING).keys() | plus.keys()
        used = {name: self.used(of, name) + plus.get(name, 0) - minus.get(name, 0) for name in names}
        if node.queue.strategy is QueueStrategy.DRF:
            return dominant_share(used, node.totals, of.weight)
        return borrowed_share(used, of.guaranteed, node.totals, of.weight)
