"""A measurement of one node into the store that policies read: amounts to shares, with the node's own limits.

Coordinator and agents keep such stores, the one for the cluster's means, the others for their own nodes; both must
count alike. Disk and network, which the metrics API does not tell, stay 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shared.policy.class_usage import PARTS, REFERENCE
from shared.policy.utilisation import UtilisationStore
from shared.scheduling.node_table import CPU_COLUMN, MEMORY_COLUMN, PODS_COLUMN, NodeTable

MOST_SHARE = 16.0
"""No node uses more of what it has: beyond it the amounts are wrong, or the node says it has next to nothing."""


def take_sample(
    store: UtilisationStore, table: NodeTable, row: int, cpu_millis: int, memory_bytes: int, at_s: float
) -> list[float]:
    """Measure the node of ``row`` by amounts; the shares [PARTS] of its allocatable that they are."""
    cpu, memory = (float(max(1, table.allocatable[column, row])) for column in (CPU_COLUMN, MEMORY_COLUMN))
    shares = [min(MOST_SHARE, cpu_millis / cpu), min(MOST_SHARE, memory_bytes / memory), 0.0, 0.0]
    take_shares(store, table, row, shares, at_s)
    return shares


def take_shares(store: UtilisationStore, table: NodeTable, row: int, shares: Sequence[float], at_s: float) -> None:
    """Measure the node of ``row`` by shares of its allocatable, taken at ``at_s``; of another length: ignored."""
    if len(shares) != PARTS:
        return
    name = table.names[row]
    scale = np.ones(PARTS)
    scale[0] = table.allocatable[CPU_COLUMN, row] / REFERENCE[0]
    scale[1] = table.allocatable[MEMORY_COLUMN, row] / REFERENCE[1]
    store.slot(name)  # made before its limits are set
    store.limits(name, scale)
    store.measure(name, np.array(shares, np.float64), at_s=at_s, pods=int(table.requested[PODS_COLUMN, row]))
