"""Nodes that evicting pods may open for a pod that no node takes: where to look for preemption candidates.

The same as the codes of ``filtering.rejection_of`` over all nodes, by arrays where the node alone decides: static
filters and requests above allocatable can never be cured, ports, devices and amounts in use can.
"""

from __future__ import annotations

import numpy as np

from shared.scheduling.cluster_state import ClusterState
from shared.scheduling.feasibility import FeasibilityCache
from shared.scheduling.filtering import run_filters
from shared.scheduling.framework import Code
from shared.scheduling.node_table import BoolArray
from shared.scheduling.prefilter import Prefiltered


def curable_rows(state: ClusterState, feasibility: FeasibilityCache, prefiltered: Prefiltered) -> list[int]:
    """Rows whose rejection is ``UNSCHEDULABLE``, ascending."""
    if prefiltered.rejection is not None:
        return []
    table, pod = state.table, prefiltered.pod
    local = feasibility.of(pod.pod_class)
    looked_at: BoolArray = local.static_mask.copy()
    if prefiltered.named is not None:
        named: BoolArray = np.zeros(table.rows, np.bool_)
        named[[table.row_of[name] for name in prefiltered.named if name in table.row_of]] = True
        looked_at &= named
    filtered = run_filters(state, feasibility, prefiltered)
    hopeless: BoolArray = np.zeros(table.rows, np.bool_)
    for name, amount in pod.pod_class.requests:
        column = table.column_of.get(name)
        hopeless |= True if column is None else table.allocatable[column, : table.rows] < amount
    rows = []
    for row in np.flatnonzero(looked_at & ~filtered.mask & (local.mask | ~hopeless)).tolist():
        contested = filtered.contested.get(row)
        if contested is not None:
            code = contested.code
        elif not local.mask[row]:
            code = Code.UNSCHEDULABLE  # amounts, ports or devices in use; the node would have them when empty
        else:
            verdicts = (rule.verdict(row) for rule in prefiltered.rules)
            code = next((verdict[0] for verdict in verdicts if verdict is not None), Code.UNSCHEDULABLE)
        if code is Code.UNSCHEDULABLE:
            rows.append(row)
    return rows
