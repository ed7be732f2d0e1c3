"""How many pods of a class all nodes together have room for: at most, where more than amounts decides."""

from __future__ import annotations

import numpy as np

from shared.model.constraints import PodClass
from shared.scheduling.state.node_table import PODS_COLUMN, BoolArray, NodeTable


def room_for(table: NodeTable, pod_class: PodClass, mask: BoolArray) -> int:
    """Places on the rows of ``mask``, each of which takes at least one."""
    rows = np.flatnonzero(mask)
    count = table.allocatable[PODS_COLUMN, rows] - table.requested[PODS_COLUMN, rows]
    for name, amount in pod_class.requests:
        column = table.column_of.get(name)
        if column is None:
            return 0
        np.minimum(count, (table.allocatable[column, rows] - table.requested[column, rows]) // amount, out=count)
    if pod_class.host_ports:
        np.minimum(count, 1, out=count)
    return int(np.maximum(count, 0).sum())
