"""Nodes that evicting pods may open for a pod that no node takes: where to look for preemption candidates.

The same as the codes of ``filtering.rejection_of`` over all nodes, by arrays: static filters and requests above
allocatable can never be resolved, ports, devices and amounts in use can. Of those nodes only the ones whose pods of
lower priority hold enough need a dry run.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from shared.model.constraints import fitted
from shared.model.resources import PODS
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.filtering import run_filters
from shared.scheduling.cycle.prefilter import Prefiltered
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.node_table import PODS_COLUMN, BoolArray, IntArray

NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
"""kube-scheduler 1.36 ``framework/preemption/preemption.go``."""


@dataclass(frozen=True, slots=True)
class Openable:
    """``rows``: nodes that evicting may open, ascending; ``reasons``: why not, of the others, as the user is told."""

    rows: list[int]
    reasons: Counter[str]


def resolvable_rows(state: ClusterState, feasibility: FeasibilityCache, prefiltered: Prefiltered) -> IntArray:
    """Rows whose rejection is ``UNSCHEDULABLE``, ascending."""
    if prefiltered.rejection is not None:
        return np.zeros(0, np.int64)
    table, pod = state.table, prefiltered.pod
    local = feasibility.of(pod.pod_class)
    resolvable: BoolArray = local.static_mask.copy()
    if prefiltered.named is not None:
        named: BoolArray = np.zeros(table.rows, np.bool_)
        named[[table.row_of[name] for name in prefiltered.named if name in table.row_of]] = True
        resolvable &= named
    filtered = run_filters(state, feasibility, prefiltered)
    hopeless: BoolArray = np.zeros(table.rows, np.bool_)
    for name, amount in fitted(pod.pod_class):
        column = table.column_of.get(name)
        if name in pod.pod_class.by_class:  # none at all is a node that gives devices for it
            total = table.allocatable[column, : table.rows] if column is not None else np.zeros(table.rows, np.int64)
            hopeless |= (total > 0) & (total < amount)
            continue
        hopeless |= True if column is None else table.allocatable[column, : table.rows] < amount
    resolvable &= ~filtered.mask & (local.mask | ~hopeless)
    contested = filtered.contested
    resolvable &= ~contested.unresolvable
    # amounts, ports or devices in use are free when the node is empty; a rule that rejects speaks for itself
    rows = np.flatnonzero(resolvable & local.mask & ~contested.mask)
    for rule in prefiltered.rules:
        passing = rule.mask()[rows]
        rejected = rows[~passing]
        resolvable[rejected] = rule.resolvable(rejected)
        rows = rows[passing]
    return np.flatnonzero(resolvable)


def openable(state: ClusterState, feasibility: FeasibilityCache, prefiltered: Prefiltered) -> Openable:
    """The resolvable rows on which pods of lower priority hold what the pod lacks."""
    table, index, pod = state.table, state.index, prefiltered.pod
    index.sync()
    rows = resolvable_rows(state, feasibility, prefiltered)
    reasons = Counter({NOT_HELPFUL: len(table.row_of) - len(rows)})
    occupied = index.removable.below(pod.priority, PODS)[rows] > 0
    reasons[NO_VICTIMS] = int((~occupied).sum())
    rows = rows[occupied]
    if pod.pod_class.host_ports or not len(rows):
        return Openable(rows.tolist(), +reasons)  # a port may be the first reason: the dry run tells
    enough: BoolArray = np.ones(len(rows), np.bool_)
    for name, amount in ((PODS, 1), *fitted(pod.pod_class)):
        if name in pod.pod_class.by_class:
            continue  # the dry run tells
        column = PODS_COLUMN if name == PODS else table.column_of[name]
        free = table.allocatable[column, rows] - table.requested[column, rows]
        short = free + index.removable.below(pod.priority, name)[rows] < amount
        if short.any():
            reasons["Too many pods" if name == PODS else f"Insufficient {name}"] += int(short.sum())
            enough &= ~short
    return Openable(rows[enough].tolist(), +reasons)
