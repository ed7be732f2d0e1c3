"""How much room evicting would make on each node, by the preemptor's priority: never less than it really would.

A preemption candidate must offer its amounts at least once every pod of lower priority is gone. Summed up per priority
while pods come and go, that is one array comparison over all nodes, where a dry run asks one node at a time.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shared.model.constraints import fitted
from shared.model.pod import Pod
from shared.model.resources import PODS
from shared.scheduling.state.node_table import PODS_COLUMN, BoolArray, IntArray, NodeTable

FloatArray: TypeAlias = NDArray[np.float64]

MOST_LACKING = 0.999
"""Keeps the share that is lacking below the next rank."""

MAX_LEVELS = 16
"""Priorities told apart. Pods of a further one count with the next lower, so that the sums become too large at most."""


class Removable:
    """What pods that may be evicted use, ``[resources, rows]`` per level of priority."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._columns: dict[str, int] = {PODS: 0}
        self._levels: list[int] = []
        self._used: dict[int, IntArray] = {}

    def count(self, pod: Pod, row: int, sign: int) -> None:
        """``pod`` stands on ``row`` (1), or no longer (-1)."""
        if not pod.preemptible:
            return
        columns = self._columns
        for name, _ in pod.pod_class.requests:
            if name not in columns:
                columns[name] = len(columns)
        level = pod.priority if pod.priority in self._used else self._new_level(pod.priority)
        used = self._used[level]
        if len(used) < len(columns) or used.shape[1] <= row:
            wider, more = max(0, self._table.capacity - used.shape[1]), len(columns) - len(used)
            used = self._used[level] = np.pad(used, ((0, more), (0, wider)))
        used[0, row] += sign
        for name, amount in pod.pod_class.requests:
            used[columns[name], row] += sign * amount

    def below(self, priority: int, name: str) -> IntArray:
        """``[rows]``: how much of a resource (``pods``: how many of them) evicting all of lower priority would free."""
        total: IntArray = np.zeros(self._table.rows, np.int64)
        column = self._columns.get(name)
        if column is None:
            return total
        for level, used in self._used.items():
            if level < priority and column < len(used):
                width = min(used.shape[1], len(total))
                total[:width] += used[column, :width]
        return total

    def least_price(self, pod: Pod) -> list[float]:
        """``[rows]``: what making room for the pod costs at the least, for comparing rows that have pods to evict.

        The whole part is the rank of the lowest priority up to which evicting could suffice: a victim as important as
        that is needed. The rest is the share of what the pod asks for that the node lacks: the less, the fewer victims.
        """
        table = self._table
        needs = [(PODS, 1), *fitted(pod.pod_class)]
        price: FloatArray = np.zeros(table.rows)
        frees = []
        for name, amount in needs:
            column = PODS_COLUMN if name == PODS else table.column_of.get(name)
            if column is not None:
                has = table.allocatable[column, : table.rows]
                free = has - table.requested[column, : table.rows]
                if name in pod.pod_class.by_class:  # where there is none of it, devices are given for it
                    free = np.where(has > 0, free, amount)
                frees.append((name, amount, free))
                np.maximum(price, (amount - free) / amount, out=price)
        np.clip(price, 0.0, MOST_LACKING, out=price)
        for level in self._levels:
            short: BoolArray = np.zeros(table.rows, np.bool_)
            for name, amount, free in frees:
                short |= free + self.below(level + 1, name) < amount
            if not short.any():
                break
            price += short
        return [float(value) for value in price]

    def below_at(self, priority: int, name: str, row: int) -> int:
        """The same for one row."""
        column = self._columns.get(name)
        if column is None:
            return 0
        return sum(
            int(used[column, row])
            for level, used in self._used.items()
            if level < priority and column < len(used) and row < used.shape[1]
        )

    def _new_level(self, priority: int) -> int:
        at = bisect_right(self._levels, priority)
        if len(self._levels) < MAX_LEVELS or not at:
            self._levels.insert(at, priority)
            self._used[priority] = np.zeros((len(self._columns), self._table.capacity), np.int64)
            return priority
        return self._levels[at - 1]
