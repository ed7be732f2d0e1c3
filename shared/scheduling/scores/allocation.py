"""NodeResourcesFit (least / most allocated) and NodeResourcesBalancedAllocation, in integer arithmetic.

Source: kube-scheduler 1.36 ``plugins/noderesources/{least_allocated,most_allocated,balanced_allocation}.go``.
"""

from __future__ import annotations

import numpy as np

from shared.model.constraints import PodClass
from shared.model.resources import CPU, MEMORY
from shared.scheduling.scores import MAX_SCORE
from shared.scheduling.state.node_table import MEMORY_COLUMN, BoolArray, IntArray, NodeTable, Rows


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
    allocatable, requested = _both(table.allocatable, table, rows), _both(table.requested, table, rows)
    if not cpu and not memory:
        return np.zeros(allocatable.shape[1], np.int64)
    known: BoolArray = np.logical_and(allocatable[0] > 0, allocatable[1] > 0)
    divisor = np.maximum(allocatable, 1)
    change = 50 + _balance(requested + _column(cpu, memory), divisor, known) - _balance(requested, divisor, known)
    return 50 + np.trunc(change / 2).astype(np.int64)


def _mean(table: NodeTable, pod_class: PodClass, rows: Rows, *, most: bool) -> IntArray:
    allocatable = _both(table.allocatable, table, rows)
    used = _both(table.score_requested, table, rows) + _column(pod_class.score_cpu_millis, pod_class.score_memory_bytes)
    counted = np.minimum(used, allocatable) if most else np.maximum(allocatable - used, 0)
    shares = counted * MAX_SCORE // np.maximum(allocatable, 1)
    mean: IntArray = (shares[0] + shares[1]) // np.maximum((allocatable > 0).sum(axis=0), 1)
    return mean


def _balance(used: IntArray, allocatable: IntArray, known: BoolArray) -> IntArray:
    shares = np.minimum(used / allocatable, 1.0)
    spread = np.where(known, np.abs(shares[0] - shares[1]) / 2, 0.0)
    balance: IntArray = ((1 - spread) * MAX_SCORE).astype(np.int64)
    return balance


def _both(amounts: IntArray, table: NodeTable, rows: Rows) -> IntArray:
    """``[2, rows]``: of cpu and memory."""
    both = amounts[: MEMORY_COLUMN + 1, : table.rows]
    return both[:, rows] if isinstance(rows, slice) else both.take(rows, axis=1)


def _column(cpu: int, memory: int) -> IntArray:
    return np.array(((cpu,), (memory,)), np.int64)
