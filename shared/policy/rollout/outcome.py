"""What a choice is worth, so that two policies can be compared on the same decision without acting on both.

A *goal* gives each feasible node a cost: what the cluster would look like with the pod there. The *value* of a choice
is where it lies between the worst and the best feasible node: 1 the best, 0 the worst. So a window's mean value has one
meaning in any cluster, and does not drown in what the choice cannot change. Sampled decisions where the goal tells no
node from another say nothing and are left out.

Both policies are measured by the same goal, whatever either was made for: ``neutral``, and beside it the one that the
operator names. ``neutral`` adds the two ways in which a placement may harm what comes later, both as shares of the
cluster, so both of the order of one pod's share of it:

    neutral = imbalance of the nodes with the pod there (``balance``) + room that the pod takes (``policy.room``)

Counterfactual: it looks one placement ahead on what is requested, not at usage that nobody has measured yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from shared.model.constraints import PodClass
from shared.model.resources import CPU, MEMORY
from shared.policy.rollout.room import Room
from shared.scheduling.state.node_table import CPU_COLUMN, MEMORY_COLUMN, IntArray, NodeTable

Costs = NDArray[np.float64]
Goal = Callable[[NodeTable, PodClass, IntArray, Room], Costs]
"""(table, class, feasible rows, room) to the cost of each row, lower is better."""

NEUTRAL = "neutral"

INDIFFERENT = 1e-9
"""Costs closer together than this count as equal."""


def balance(table: NodeTable, pod_class: PodClass, rows: IntArray) -> Costs:
    """Imbalance after the placement: population s.d. over all nodes of the mean requested share of cpu and memory."""
    live = table.live_rows()
    load = _load(table, live)
    count, total, squares = len(live), load.sum(), np.square(load).sum()
    before, added = _load(table, rows), _added(table, pod_class, rows)
    mean = (total + added) / count
    variance = (squares + 2 * before * added + np.square(added)) / count - np.square(mean)
    return np.asarray(np.sqrt(np.maximum(variance, 0.0)), np.float64)


def packing(table: NodeTable, pod_class: PodClass, rows: IntArray) -> Costs:
    """Room left on the node after the placement: few, full nodes leave others free for large pods, or to be off."""
    return np.asarray(1.0 - _load(table, rows) - _added(table, pod_class, rows), np.float64)


GOALS: Mapping[str, Goal] = {
    NEUTRAL: lambda table, pod_class, rows, room: balance(table, pod_class, rows) + room.taken(table, pod_class, rows),
    "balance": lambda table, pod_class, rows, _: balance(table, pod_class, rows),
    "packing": lambda table, pod_class, rows, _: packing(table, pod_class, rows),
    "room": lambda table, pod_class, rows, room: room.taken(table, pod_class, rows),
}
"""By the name that an operator gives. None belongs to a policy: nobody is measured by a scale of its own."""


def values(costs: Costs) -> Costs | None:
    """The value of choosing each candidate, 0 to 1; None where they are all the same."""
    if not len(costs):
        return None
    best, worst = costs.min(), costs.max()
    if not worst - best > INDIFFERENT:
        return None
    return np.asarray((worst - costs) / (worst - best), np.float64)


def _load(table: NodeTable, rows: IntArray) -> Costs:
    """Mean requested share of cpu and memory, float64 [rows]."""
    columns = [CPU_COLUMN, MEMORY_COLUMN]
    there = np.maximum(table.allocatable[columns][:, rows], 1)
    return np.asarray((table.requested[columns][:, rows] / there).mean(axis=0), np.float64)


def _added(table: NodeTable, pod_class: PodClass, rows: IntArray) -> Costs:
    requests = dict(pod_class.requests)
    columns = [CPU_COLUMN, MEMORY_COLUMN]
    wanted = np.array([[requests.get(CPU, 0)], [requests.get(MEMORY, 0)]], np.float64)
    there = np.maximum(table.allocatable[columns][:, rows], 1)
    return np.asarray((wanted / there).mean(axis=0), np.float64)
