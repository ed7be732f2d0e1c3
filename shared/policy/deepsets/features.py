"""What a Deep Sets policy sees of each candidate node: one row of numbers per node, the same in training and serving.

One definition, used by the training environment and by the policy in an agent, so that the two cannot drift apart.
Every number is a share, a flag or a clipped ratio, so that clusters of any size and nodes of any shape look alike. It
refuses nothing: which rows are candidates is the filters' business.

*Load* of a node: the mean of the requested shares of cpu and memory, as kube-scheduler's LeastAllocated counts it
(``plugins/noderesources/least_allocated.go``), but without its truncation. A *step* is the load that this very pod
would add to this very node.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shared.model.constraints import PodClass
from shared.model.resources import CPU, MEMORY
from shared.scheduling.state.node_table import CPU_COLUMN, MEMORY_COLUMN, PODS_COLUMN, IntArray, NodeTable

Floats = NDArray[np.float32]

FEATURES = (
    "cpu_share",  # requested / allocatable, before the pod
    "memory_share",
    "pods_share",
    "load_after",  # load with the pod
    "in_use",  # 1 when a pod runs there
    "steps_above_least",  # load above the least loaded candidate, in steps, clipped at MAX_STEPS, / MAX_STEPS
    "steps_below_fullest",  # load below the most loaded candidate, likewise
    "latency_to_soft",  # latency / soft limit, clipped at MAX_RATIO, / MAX_RATIO; 0 when the pod names no limit
    "latency_to_hard",
    "within_soft",  # 1 when the latency is at most the limit, or there is none
    "within_hard",
)
"""The features in order. An unknown latency counts as MAX_RATIO times any limit."""

FEATURE_COUNT = len(FEATURES)
WITHIN_HARD = FEATURES.index("within_hard")
MAX_STEPS = 8.0
MAX_RATIO = 2.0


def node_features(table: NodeTable, pod_class: PodClass, rows: IntArray, out: Floats | None = None) -> Floats:
    """float32 ``[candidates, FEATURE_COUNT]`` for ``rows`` of ``table``; written into ``out`` where given."""
    x = np.empty((len(rows), FEATURE_COUNT), np.float32) if out is None else out
    if not len(rows):
        return x
    allocatable = table.allocatable[:4].take(rows, axis=1)
    np.maximum(allocatable, 1, out=allocatable)
    share = table.requested[:4].take(rows, axis=1) / allocatable
    cpu, memory = _requests(pod_class)
    step = (cpu / allocatable[CPU_COLUMN] + memory / allocatable[MEMORY_COLUMN]) * 0.5
    np.maximum(step, 1e-6, out=step)
    load = (share[CPU_COLUMN] + share[MEMORY_COLUMN]) * 0.5
    x[:, 0] = share[CPU_COLUMN]
    x[:, 1] = share[MEMORY_COLUMN]
    x[:, 2] = share[PODS_COLUMN]
    x[:, 3] = load + step
    x[:, 4] = share[PODS_COLUMN] > 0
    step *= MAX_STEPS
    x[:, 5] = (load - load.min()) / step
    x[:, 6] = (load.max() - load) / step
    np.minimum(x[:, 5:7], 1, out=x[:, 5:7])
    soft, hard = pod_class.latency_soft_us, pod_class.latency_hard_us
    if not soft and not hard:
        x[:, 7:9] = 0
        x[:, 9:11] = 1
        return x
    latency = table.latency_to(pod_class.latency_target, rows)
    for column, limit in ((7, soft), (8, hard)):
        if limit:
            ratio = np.where(latency < 0, MAX_RATIO, latency / limit)
            x[:, column] = np.minimum(ratio / MAX_RATIO, 1)
            x[:, column + 2] = ratio <= 1
        else:
            x[:, column] = 0
            x[:, column + 2] = 1
    return x


def node_load(table: NodeTable, rows: IntArray) -> NDArray[np.float64]:
    """float64 ``[candidates]``: the load of ``rows``."""
    allocatable = np.maximum(table.allocatable[:2].take(rows, axis=1), 1)
    share = table.requested[:2].take(rows, axis=1) / allocatable
    load: NDArray[np.float64] = (share[0] + share[1]) * 0.5
    return load


def _requests(pod_class: PodClass) -> tuple[int, int]:
    """(milli-cores, bytes) that the pod requests."""
    cpu = memory = 0
    for name, amount in pod_class.requests:
        if name == CPU:
            cpu = amount
        elif name == MEMORY:
            memory = amount
    return cpu, memory
