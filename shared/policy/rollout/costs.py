"""What a placement costs on each node by one aim: float64 ``[rows]``, lower is better. Pure.

Each looks at the cluster as it would be with the pod there: joules and room on what is requested, loads and latency on
what is measured, where it is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shared.model.constraints import PodClass
from shared.model.load import DEFAULT, LoadParts
from shared.model.resources import CPU
from shared.policy.power import NodePower
from shared.policy.usage.load import added_load, node_load
from shared.scheduling.state.node_table import PODS_COLUMN, IntArray, NodeTable

Costs = NDArray[np.float64]


def balance(table: NodeTable, pod_class: PodClass, rows: IntArray, parts: LoadParts = DEFAULT) -> Costs:
    """Imbalance after the placement: population s.d. over all nodes of their load (``usage.load``)."""
    live = table.live_rows()
    load = node_load(table, live, parts)
    count, total, squares = len(live), load.sum(), np.square(load).sum()
    before, added = node_load(table, rows, parts), added_load(table, pod_class, rows, parts)
    mean = (total + added) / count
    variance = (squares + 2 * before * added + np.square(added)) / count - np.square(mean)
    return np.asarray(np.sqrt(np.maximum(variance, 0.0)), np.float64)


def packing(table: NodeTable, pod_class: PodClass, rows: IntArray, parts: LoadParts = DEFAULT) -> Costs:
    """Room left on the node after the placement, by its load: few, full nodes leave others free for large pods, or to
    be off."""
    return np.asarray(1.0 - node_load(table, rows, parts) - added_load(table, pod_class, rows, parts), np.float64)


def nodes(table: NodeTable, pod_class: PodClass, rows: IntArray, parts: LoadParts = DEFAULT) -> Costs:
    """Nodes in use after the placement: 1 where it is the first pod of a node; between others the room that is left
    there, since pods that fill the fullest nodes let others run empty."""
    first = table.requested[PODS_COLUMN, rows] == 0
    return np.asarray(first + np.clip(packing(table, pod_class, rows, parts), 0.0, 1.0), np.float64)


def watts(table: NodeTable, pod_class: PodClass, rows: IntArray, power: NodePower) -> Costs:
    """Watts that the placement adds, by what is requested: joules for each second that the pod runs. The user says what
    nodes draw; else a published server's curve holds, which is off without pods."""
    return power.added(table, rows, dict(pod_class.requests).get(CPU, 0), power.gpus(table, rows, pod_class))


def latency(table: NodeTable, pod_class: PodClass, rows: IntArray) -> Costs:
    """Limits of the pod that the node breaks: the soft one and the hard one count half each. A latency that is not
    known keeps none; a pod without limits tells no node from another."""
    broken = np.zeros(len(rows))
    there = table.latency_to(pod_class.latency_target, rows)
    for limit in (pod_class.latency_soft_us, pod_class.latency_hard_us):
        if limit:
            broken += 0.5 * ((there < 0) | (there > limit))
    return broken
