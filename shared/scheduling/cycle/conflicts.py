"""The one rule for "fits": does a node, as accounted now, take this pod class? Binder and coordinator both ask here.

Scalar over one row, since a commit asks about one node at a time and numpy's per-call cost would dominate; a property
test holds it equal to the vectorised filters. Static filters come from the class's cached mask; filters that the user
brings have no scalar form and are asked as they are.
"""

from __future__ import annotations

import numpy as np

from shared.model.constraints import PodClass, ignores
from shared.model.resources import GPU_MILLI
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.filters.accounted import conflicts
from shared.scheduling.framework import Code, Rejection
from shared.scheduling.state.node_table import PODS_COLUMN, NodeTable

NODE_GONE = Rejection("NodeName", Code.UNRESOLVABLE, ("node does not exist",))


def fits(feasibility: FeasibilityCache, pod_class: PodClass, row: int) -> bool:
    """Whether what is accounted on the row takes the class: every filter but the static ones."""
    table = feasibility.table
    requested, allocatable = table.requested, table.allocatable
    # >=: one more is asked for. In `within` the pod is counted already, hence > there.
    if requested[PODS_COLUMN, row] >= allocatable[PODS_COLUMN, row]:
        return False
    for name, amount in pod_class.requests:
        column = table.column_of.get(name)
        if column is None or amount > allocatable[column, row] - requested[column, row]:
            # A node that offers none of it gives devices by claim (KEP-5004); one that has too few left does not.
            if name in pod_class.by_class and (column is None or not allocatable[column, row]):
                continue
            if ignores(pod_class, name):
                continue
            return False
        # The sum does not do: a share must fit on one device, and whole ones be wholly free.
        if name == GPU_MILLI and not table.pick_devices(row, amount):
            return False
    if pod_class.host_ports and conflicts(pod_class.host_ports, table.ports[row]):
        return False
    brought = feasibility.profile.brought
    return not brought or all(rule.mask(table, pod_class, np.array([row]))[0] for rule in brought)


def within(table: NodeTable, pod_class: PodClass, row: int) -> bool:
    """Whether the row holds no more than it has of what the class, which is counted there already, asks for."""
    requested, allocatable = table.requested, table.allocatable
    if requested[PODS_COLUMN, row] > allocatable[PODS_COLUMN, row]:
        return False
    for name, amount in pod_class.requests:
        column = table.column_of[name]
        if amount and requested[column, row] > allocatable[column, row]:
            if name in pod_class.by_class and not allocatable[column, row]:
                continue
            if ignores(pod_class, name):
                continue
            return False
    return True


def check_placement(feasibility: FeasibilityCache, pod_class: PodClass, node_name: str) -> Rejection | None:
    """Every node-local filter against the node as it is now: None when it takes the class, else why not.

    A node that does not exist rejects (the API server would accept a Binding to it).
    """
    table = feasibility.table
    row = table.row_of.get(node_name)
    if row is None:
        return NODE_GONE
    if feasibility.static_verdict(pod_class).mask[row] and fits(feasibility, pod_class, row):
        return None
    # Only to name the reason: by arrays one row costs more than the whole check above.
    return feasibility.rejection(pod_class, row)
