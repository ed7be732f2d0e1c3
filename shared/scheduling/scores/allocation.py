"""NodeResourcesFit (least / most allocated) and NodeResourcesBalancedAllocation, in integer arithmetic.

Source: kube-scheduler 1.36 ``plugins/noderesources/{least_allocated,most_allocated,balanced_allocation}.go``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shared.model.constraints import PodClass
from shared.model.resources import CPU, MEMORY
from shared.scheduling.scores import MAX_SCORE
from shared.scheduling.state.node_table import CPU_COLUMN, MEMORY_COLUMN, IntArray, NodeTable, Rows


def least_allocated(table: NodeTable, pod_class: PodClass, rows: Rows) -> IntArray:
    """``[rows]`` 0..100: mean over cpu and memory of the free share after the pod, truncating."""
    return _mean(table, pod_class, rows, most=False)


def most_allocated(table: NodeTable, pod_class: PodClass, rows: Rows) -> IntArray:
    """``[rows]`` 0..100: mean over cpu and memory of the used share after the pod, truncating."""
    return _mean(table, pod_class, rows, most=True)


def balanced_allocation(table: NodeTable, pod_class: PodClass, rows: Rows) -> IntArray:
    """``[rows]`` 0..100: how much the pod evens out cpu and memory; 0 when it requests neither.

    b = int((1 - |cpu share - memory share| / 2) * 100); score = 50 + (50 + b(with pod) - b(without)) / 2.
    """
    cpu = memory = 0
    for name, amount in pod_class.requests:
        if name == CPU:
            cpu = amount
        elif name == MEMORY:
            memory = amount
    if not cpu and not memory:
        return np.zeros(len(table.present[: table.rows][rows]), np.int64)
    change = 50 + _balance(table, rows, cpu, memory) - _balance(table, rows, 0, 0)
    return 50 + np.trunc(change / 2).astype(np.int64)


def _mean(table: NodeTable, pod_class: PodClass, rows: Rows, *, most: bool) -> IntArray:
    total: IntArray | None = None
    counted: IntArray | None = None
    wanted = (pod_class.score_cpu_millis, pod_class.score_memory_bytes)
    for column in (CPU_COLUMN, MEMORY_COLUMN):
        allocatable = table.allocatable[column, : table.rows][rows]
        used = table.score_requested[column, : table.rows][rows] + wanted[column]
        has = allocatable > 0
        divisor = np.maximum(allocatable, 1)
        if most:
            share = np.minimum(used, allocatable) * MAX_SCORE // divisor
        else:
            share = np.maximum(allocatable - used, 0) * MAX_SCORE // divisor
        share *= has
        total = share if total is None else total + share
        counted = has.astype(np.int64) if counted is None else counted + has
    assert total is not None
    assert counted is not None
    return total // np.maximum(counted, 1)


def _balance(table: NodeTable, rows: Rows, cpu: int, memory: int) -> IntArray:
    shares: list[NDArray[np.float64]] = []
    known = np.ones(len(table.present[: table.rows][rows]), np.bool_)
    for column, amount in ((CPU_COLUMN, cpu), (MEMORY_COLUMN, memory)):
        allocatable = table.allocatable[column, : table.rows][rows]
        used = table.requested[column, : table.rows][rows] + amount
        known &= allocatable > 0
        shares.append(np.minimum(used / np.maximum(allocatable, 1), 1.0))
    spread = np.where(known, np.abs(shares[0] - shares[1]) / 2, 0.0)
    return ((1 - spread) * MAX_SCORE).astype(np.int64)
