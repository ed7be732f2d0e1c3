"""How many pods of a class nodes have room for by what is accounted there: at most, where more than amounts decides."""

from __future__ import annotations

import numpy as np

from shared.model.constraints import PodClass, fitted
from shared.model.resources import GPU_MILLI, MILLI_PER_DEVICE
from shared.scheduling.state.node_table import PODS_COLUMN, BoolArray, IntArray, NodeTable


def places(table: NodeTable, pod_class: PodClass, rows: IntArray, *, singly: bool = False) -> IntArray:
    """``[len(rows)]``: how many pods of the class each of the rows, which take one, takes by what is accounted there.

    Of shares of a device at most so many, and of what a device class gives any number. ``singly``: never more than one.
    """
    count: IntArray = table.allocatable[PODS_COLUMN, rows] - table.requested[PODS_COLUMN, rows]
    for name, amount in fitted(pod_class):
        column = table.column_of.get(name)
        if name in pod_class.by_class:
            if column is not None:
                total = table.allocatable[column, rows]
                left = np.where(total > 0, (total - table.requested[column, rows]) // amount, count)
                np.minimum(count, left, out=count)
            continue
        if column is None:
            return np.zeros(len(rows), np.int64)
        np.minimum(count, (table.allocatable[column, rows] - table.requested[column, rows]) // amount, out=count)
        if name == GPU_MILLI and amount >= MILLI_PER_DEVICE:
            # Thousandths that are free on several devices make no whole one.
            np.minimum(count, table.device_whole[rows] // (amount // MILLI_PER_DEVICE), out=count)
    if pod_class.host_ports or singly:
        np.minimum(count, 1, out=count)
    # Others may have filled a node beyond what it has (I2): less than nothing must not cancel room elsewhere.
    np.maximum(count, 0, out=count)
    return count


def room_for(table: NodeTable, pod_class: PodClass, mask: BoolArray) -> int:
    """Places on the rows of ``mask``, each of which takes at least one, together."""
    return int(places(table, pod_class, np.flatnonzero(mask)).sum())
