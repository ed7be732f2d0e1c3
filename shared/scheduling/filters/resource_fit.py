"""NodeResourcesFit: requests of all pods on a node stay within its allocatable, and so does their number."""

from __future__ import annotations

import numpy as np

from shared.model.constraints import PodClass
from shared.scheduling.cycle.framework import Code
from shared.scheduling.state.node_table import PODS_COLUMN, BoolArray, IntArray, NodeTable, Rows


class ResourceFit:
    """Resources and the pod count."""

    name = "NodeResourcesFit"
    static = False

    def applies(self, table: NodeTable, pod_class: PodClass) -> bool:  # noqa: ARG002
        """Always: the pod count is checked for every pod."""
        return True

    def mask(self, table: NodeTable, pod_class: PodClass, rows: Rows) -> BoolArray:
        """True where the pod and every request above zero fit beside what is there."""
        allocatable, requested = table.allocatable, table.requested
        count = table.rows
        passing: BoolArray = requested[PODS_COLUMN, :count][rows] < allocatable[PODS_COLUMN, :count][rows]
        for name, amount in pod_class.requests:
            column = table.column_of.get(name)
            if column is None:
                return np.zeros_like(passing)
            passing &= allocatable[column, :count][rows] - requested[column, :count][rows] >= amount
        return passing

    def reasons(self, table: NodeTable, pod_class: PodClass, row: int) -> tuple[Code, tuple[str, ...]]:
        """Every resource that is short; unresolvable when one (never the pod count) is short even on an empty node."""
        reasons, code = [], Code.UNSCHEDULABLE
        if int(table.requested[PODS_COLUMN, row]) + 1 > int(table.allocatable[PODS_COLUMN, row]):
            reasons.append("Too many pods")
        for name, amount in pod_class.requests:
            column = table.column_of.get(name)
            total = 0 if column is None else int(table.allocatable[column, row])
            used = 0 if column is None else int(table.requested[column, row])
            if amount > total - used:
                reasons.append(f"Insufficient {name}")
                if amount > total:
                    code = Code.UNRESOLVABLE
        return code, tuple(reasons)

    def tally(self, table: NodeTable, pod_class: PodClass, rows: IntArray) -> dict[str, int]:
        """Per resource, the rows on which it is short."""
        full = table.requested[PODS_COLUMN, rows] + 1 > table.allocatable[PODS_COLUMN, rows]
        counts = {"Too many pods": int(full.sum())}
        for name, amount in pod_class.requests:
            column = table.column_of.get(name)
            if column is None:
                counts[f"Insufficient {name}"] = len(rows)
            else:
                free = table.allocatable[column, rows] - table.requested[column, rows]
                counts[f"Insufficient {name}"] = int((free < amount).sum())
        return {reason: count for reason, count in counts.items() if count}
