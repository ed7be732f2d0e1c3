"""How many volumes of each CSI driver a node attaches, by what its CSINode says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from shared.model.resources import MAX_INT64
from shared.scheduling.state.node_table import IntArray, NodeTable

_NONE: dict[str, int] = {}


class AttachLimits:
    """Limits by node and driver. ``drivers``: on how many nodes each has one."""

    def __init__(self, table: NodeTable) -> None:
        self.drivers: Counter[str] = Counter()
        self.table = table
        self._by_node: dict[str, Mapping[str, int]] = {}
        self._least: IntArray = np.zeros(0, np.int64)
        self._seen = -1
        self._moved: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self.drivers)

    def of(self, node: str) -> Mapping[str, int]:
        """The limits of one node by driver; empty: none."""
        return self._by_node.get(node, _NONE)

    def put(self, node: str, limits: Mapping[str, int]) -> Mapping[str, int] | None:
        """What the node's CSINode says now; returned is what it said before."""
        before = self.drop(node)
        self._by_node[node] = limits
        self.drivers.update(limits.keys())
        return before

    def drop(self, node: str) -> Mapping[str, int] | None:
        """The CSINode is gone; an unknown one is fine."""
        before = self._by_node.pop(node, None)
        for driver in before or ():
            self.drivers[driver] -= 1
            if not self.drivers[driver]:
                del self.drivers[driver]
        self._moved.add(node)
        return before

    def least(self) -> IntArray:
        """``[rows]``: the lowest limit of each row, whatever the driver; kept, and read anew where rows or limits
        changed."""
        table, row_of = self.table, self.table.row_of
        if len(self._least) < table.capacity:
            self._least, self._seen = np.full(table.capacity, MAX_INT64), -1
        rows = table.changed_since(self._seen).tolist()
        rows += [row for name in self._moved if (row := row_of.get(name)) is not None]
        for row in rows:
            self._least[row] = min(self.of(table.names[row]).values(), default=MAX_INT64)
        self._moved.clear()
        self._seen = table.clock
        return self._least[: table.rows]
