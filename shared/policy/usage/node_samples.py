"""A measurement of one node into the store that policies read: amounts to shares, with the node's own limits.

Coordinator and agents keep such stores, the one for the cluster's means, the others for their own nodes; both must
count alike. Disk and network, which the metrics API does not tell, stay 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shared.policy.usage.class_usage import PARTS, REFERENCE, FloatArray
from shared.policy.usage.utilisation import Measured
from shared.scheduling.state.node_table import CPU_COLUMN, MEMORY_COLUMN, PODS_COLUMN, NodeTable

MOST_SHARE = 16.0
"""No node uses more of what it has: beyond it the amounts are wrong, or the node says it has next to nothing."""


def shares_of(table: NodeTable, row: int, cpu_millis: int, memory_bytes: int) -> list[float]:
    """The shares [PARTS] of the allocatable of the node of ``row`` that these amounts are."""
    cpu, memory = (float(max(1, table.allocatable[column, row])) for column in (CPU_COLUMN, MEMORY_COLUMN))
    return [min(MOST_SHARE, cpu_millis / cpu), min(MOST_SHARE, memory_bytes / memory), 0.0, 0.0]


def sample_of(table: NodeTable, row: int, shares: Sequence[float], at_s: float) -> Measured | None:
    """The sample of the node of ``row`` by shares of its allocatable, taken at ``at_s``; of another length: None."""
    if len(shares) != PARTS:
        return None
    pods = int(table.requested[PODS_COLUMN, row])
    return Measured(table.names[row], shares, at_s, scale_of(table, row), pods)


def scale_of(table: NodeTable, row: int) -> FloatArray:
    """float64 [PARTS]: what the node of ``row`` has, in reference nodes; 1 of what its allocatable does not tell."""
    scale = np.ones(PARTS)
    scale[0] = table.allocatable[CPU_COLUMN, row] / REFERENCE[0]
    scale[1] = table.allocatable[MEMORY_COLUMN, row] / REFERENCE[1]
    return scale
