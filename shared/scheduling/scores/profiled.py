"""What a profile makes of NodeResourcesFit, NodeResourcesBalancedAllocation and of the weights of all scores.

Source: kube-scheduler 1.36 ``plugins/noderesources/{resource_allocation,least_allocated,most_allocated,
requested_to_capacity_ratio,balanced_allocation}.go`` and ``plugins/helper/shape_score.go``, integer by integer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from shared.model.constraints import PodClass
from shared.model.resources import CPU, MEMORY
from shared.model.scheduling_profile import FitScoring, ShapePoint
from shared.scheduling.scores import MAX_SCORE, WEIGHTS
from shared.scheduling.scores.allocation import balanced_allocation, least_allocated
from shared.scheduling.state.node_table import CPU_COLUMN, MEMORY_COLUMN, IntArray, NodeTable, Rows

MOST, RATIO = "MostAllocated", "RequestedToCapacityRatio"


def weights_of(pod_class: PodClass) -> dict[str, int]:
    """What each score counts for the class; 0: nothing."""
    profile = pod_class.profile
    return WEIGHTS if profile is None or not profile.weights else {**WEIGHTS, **dict(profile.weights)}


def fit_score(table: NodeTable, pod_class: PodClass, rows: Rows) -> IntArray:
    """``[rows]`` 0..100: NodeResourcesFit, by the strategy of the class's profile."""
    fit = None if pod_class.profile is None else pod_class.profile.fit
    if fit is None:
        return least_allocated(table, pod_class, rows)
    total = weights = np.zeros(len(_rows(table, rows)), np.int64)
    for weight, used, allocatable in _amounts(table, pod_class, rows, fit):
        worth = _worth(fit, used, np.maximum(allocatable, 1))
        counted = (allocatable > 0) & ((worth > 0) if fit.strategy == RATIO else True)
        total = total + weight * worth * counted
        weights = weights + weight * counted
    if fit.strategy != RATIO:
        return total // np.maximum(weights, 1)
    exact = total / np.maximum(weights, 1)
    return np.floor(exact + 0.5).astype(np.int64)


def balanced_score(table: NodeTable, pod_class: PodClass, rows: Rows) -> IntArray:
    """``[rows]`` 0..100: NodeResourcesBalancedAllocation over the resources of the class's profile."""
    names = None if pod_class.profile is None else pod_class.profile.balanced
    if names is None or names == (CPU, MEMORY):
        return balanced_allocation(table, pod_class, rows)
    asked = dict(pod_class.requests)
    at = _rows(table, rows)
    if not any(asked.get(name) for name in names):
        return np.zeros(len(at), np.int64)
    before, after, known = [], [], []
    for name in names:
        column = table.column_of.get(name)
        if column is None or (_scalar(name) and not asked.get(name)):
            continue
        allocatable, used = table.allocatable[column, at], table.requested[column, at]
        divisor = np.maximum(allocatable, 1)
        known.append(allocatable > 0)
        before.append(np.minimum(used / divisor, 1.0))
        after.append(np.minimum((used + asked.get(name, 0)) / divisor, 1.0))
    if not known:
        return np.full(len(at), MAX_SCORE - MAX_SCORE // 4, np.int64)
    there = np.array(known)
    change = 50 + _balance(np.array(after), there) - _balance(np.array(before), there)
    return 50 + np.trunc(change / 2).astype(np.int64)


def _balance(shares: NDArray[np.float64], known: NDArray[np.bool_]) -> IntArray:
    """What resources differ in their shares of use, where a node has them."""
    counted = known.sum(axis=0)
    mean = (shares * known).sum(axis=0) / np.maximum(counted, 1)
    spread = np.sqrt((((shares - mean) * known) ** 2).sum(axis=0) / np.maximum(counted, 1))
    if len(known) >= 2:  # of two the half of what they differ by, which rounds otherwise
        pair = np.sort(np.where(known, shares, -1.0), axis=0)[-2:]
        spread = np.where(counted == 2, np.abs((pair[1] - pair[0]) / 2), spread)
    found: IntArray = ((1 - np.where(counted > 1, spread, 0.0)) * MAX_SCORE).astype(np.int64)
    return found


def _amounts(
    table: NodeTable, pod_class: PodClass, rows: Rows, fit: FitScoring
) -> Iterator[tuple[int, IntArray, IntArray]]:
    """Of each resource that counts: its weight, what is used of it with the pod, and what there is. Extended ones count
    for pods alone that ask for some."""
    asked, at = dict(pod_class.requests), _rows(table, rows)
    for resource in fit.resources:
        name = resource.name
        if name == CPU:
            used = table.score_requested[CPU_COLUMN, at] + pod_class.score_cpu_millis
        elif name == MEMORY:
            used = table.score_requested[MEMORY_COLUMN, at] + pod_class.score_memory_bytes
        elif name in table.column_of and not (_scalar(name) and not asked.get(name)):
            used = table.requested[table.column_of[name], at] + asked.get(name, 0)
        else:
            continue
        yield resource.weight, used, table.allocatable[table.column_of[name], at]


def _worth(fit: FitScoring, used: IntArray, allocatable: IntArray) -> IntArray:
    worth: IntArray
    if fit.strategy == MOST:
        worth = np.minimum(used, allocatable) * MAX_SCORE // allocatable
    elif fit.strategy == RATIO:
        percent = np.where(used > allocatable, MAX_SCORE, np.minimum(used, allocatable) * MAX_SCORE // allocatable)
        worth = _on_line(fit.shape)[percent]
    else:
        worth = np.maximum(allocatable - used, 0) * MAX_SCORE // allocatable
    return worth


def _on_line(shape: Sequence[ShapePoint]) -> IntArray:
    """``[101]``: what each percent of use is worth, on straight lines between the points; truncated towards 0."""
    line = np.full(MAX_SCORE + 1, shape[-1].score, np.int64)
    for percent in range(MAX_SCORE + 1):
        after = next((at for at, point in enumerate(shape) if percent <= point.utilization), None)
        if after is None:
            continue
        here = shape[after]
        if not after:
            line[percent] = here.score
            continue
        before = shape[after - 1]
        rise = (here.score - before.score) * (percent - before.utilization)
        line[percent] = before.score + int(rise / (here.utilization - before.utilization))
    return line


def _scalar(name: str) -> bool:
    """Whether it counts for pods alone that ask for some: extended resources and huge pages."""
    return "/" in name or name.startswith("hugepages-")


def _rows(table: NodeTable, rows: Rows) -> IntArray:
    """Them as numbers."""
    return np.arange(table.rows)[rows]
