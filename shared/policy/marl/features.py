"""What a marl-dqn agent looks at: its node, the cluster, the pod. One row per node, the same for training and the mesh.

The thesis' state (section 4.1.2): local cpu, memory, disk I/O, health, pods; global cpu, memory, disk; the pod's cpu
and memory; network delay. Added, and why, in docs/policies/marl-dqn.md: network use, what the pod's workload is
expected to use, what is young, and differences from the cluster's mean, which are what balance is about and keep their
meaning at any number of nodes. Pure; shares of a node's limits throughout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared.model.constraints import PodClass
from shared.model.resources import CPU, MEMORY
from shared.policy.usage.class_usage import PARTS, REFERENCE, FloatArray
from shared.policy.usage.utilisation import NodeUse, UtilisationStore
from shared.scheduling.state.node_table import PODS_COLUMN, IntArray, NodeTable

FEATURES = (
    "cpu", "memory", "disk", "network", "healthy", "pods", "delay",
    "cluster_cpu", "cluster_memory", "cluster_disk", "cluster_network", "cluster_spread",
    "pod_cpu_requested", "pod_memory_requested", "pod_cpu", "pod_memory", "pod_disk", "pod_network", "pod_known",
    "measured", "above_mean", "above_mean_with_pod", "modelled_above_mean", "modelled_above_mean_with_pod",
    "young_above_mean", "young_above_mean_with_pod", "younger_above_mean", "younger_above_mean_with_pod",
    "requested_above_mean", "pods_above_mean",
)  # fmt: skip
SUMMARY = (
    "cpu", "memory", "disk", "network", "highest", "modelled", "young", "younger", "requested", "pods", "spread",
)  # fmt: skip
"""What of the whole cluster an agent must know: ``summary``'s order."""
MAGNIFY = 10.0
"""Differences are a few points; the network sees them at the size of the other inputs."""
CLIP = 5.0
"""No input is larger: an odd node must not throw the network out of the range it has seen."""

Features = NDArray[np.float32]
_EMPTY = UtilisationStore()


@dataclass(frozen=True, slots=True)
class NodeView:
    """Raw quantities of some rows of one table."""

    use: NodeUse
    requested: FloatArray
    """[nodes, 2]: cpu and memory."""
    pods: FloatArray
    """[nodes]: share of the pods allowed."""
    healthy: FloatArray
    highest: FloatArray
    """[nodes, len(VIEWS)]: the most used part in each view."""


@dataclass(frozen=True, slots=True)
class PodView:
    """``requested`` and ``expected`` [PARTS] of the pending pod, as shares of a reference node; ``known`` 0..1."""

    requested: FloatArray
    expected: FloatArray
    known: float


def requested_of(pod_class: PodClass) -> FloatArray:
    """float64 [PARTS]: cpu and memory requests as shares of a reference node."""
    shares = np.zeros(PARTS)
    for name, amount in pod_class.requests:
        if name == CPU:
            shares[0] = amount / REFERENCE[0]
        elif name == MEMORY:
            shares[1] = amount / REFERENCE[1]
    return shares


def pod_view(pod_class: PodClass, store: UtilisationStore | None) -> PodView:
    """What the pod asks for, and what its workload is expected to use."""
    requested = requested_of(pod_class)
    if store is None or not pod_class.workload:
        return PodView(requested, requested, 0.0)
    column = store.column(pod_class.workload, requested)
    return PodView(requested, store.usage.use[column], store.usage.evidence(column))


def node_view(
    table: NodeTable, rows: IntArray, slots: IntArray, pod: PodView, store: UtilisationStore | None
) -> NodeView:
    """The rows as of now. Pods that the table counts beyond the store's are taken to be like the pending one; a node
    without a sample counts by its requests."""
    allocatable = np.maximum(table.allocatable[:, rows], 1)
    used = table.requested[:, rows]
    requested = (used[:2] / allocatable[:2]).T
    count = used[PODS_COLUMN]
    use = (store or _EMPTY).look(slots)
    parts = use.parts
    beyond = count - use.pods
    if beyond.any():
        parts = np.maximum(parts + (beyond[:, None] * (pod.expected / use.scale))[:, None], 0.0)
    if not use.known.all():
        by_requests = np.zeros_like(parts)
        by_requests[:, :2, :2] = requested[:, None]
        parts = np.where(use.known[:, None, None], parts, by_requests)
    healthy = (table.present[rows] & ~table.unschedulable[rows]).astype(np.float64)
    full = NodeUse(parts, use.known, use.pods, use.delay_ms, use.scale)
    return NodeView(full, requested, count / allocatable[PODS_COLUMN], healthy, parts.max(axis=2))


def summary(view: NodeView) -> FloatArray:
    """float64 [len(SUMMARY)]: means over the healthy nodes of ``view``, and the spread of their highest parts."""
    nodes = int(view.healthy.sum())
    if not nodes:
        return np.zeros(len(SUMMARY))
    columns = np.concatenate(
        (view.use.parts[:, 0], view.highest, view.requested, view.pods[:, None], view.highest[:, :1] ** 2), axis=1
    )
    mean = (columns if nodes == len(columns) else columns[view.healthy > 0]).sum(axis=0) / nodes
    out = np.empty(len(SUMMARY))
    out[:8] = mean[:8]
    out[8] = 0.5 * (mean[8] + mean[9])
    out[9] = mean[10]
    out[10] = math.sqrt(max(0.0, mean[11] - mean[4] * mean[4]))
    return out


class Observer:
    """Rows of one table to features. Remembers which node is which slot of the store until the table's nodes change."""

    def __init__(self, store: UtilisationStore | None) -> None:
        self.store = store
        self._known: tuple[int, int, int] = (-1, -1, -1)
        self._slots: IntArray = np.zeros(0, np.int64)

    def of(self, table: NodeTable, pod_class: PodClass, rows: IntArray) -> Features:
        """float32 [rows, len(FEATURES)]: what the agents of ``rows`` see of a pod of ``pod_class``."""
        live = table.live_rows()
        everybody = len(rows) == len(live)
        pod = pod_view(pod_class, self.store)
        view = node_view(table, live, self._slots_of(table)[live], pod, self.store)
        shared_view = self.store.cluster if self.store is not None else None
        seen = features(view, summary(view) if shared_view is None else shared_view, pod)
        return seen if everybody else seen[np.searchsorted(live, rows)]

    def _slots_of(self, table: NodeTable) -> IntArray:
        nodes = self.store.nodes if self.store is not None else {}
        known = (id(table), table.static_stamp, self.store.changes if self.store is not None else 0)
        if known != self._known:
            self._slots = np.array([nodes.get(name, -1) for name in table.names], np.int64)
            self._known = known
        return self._slots


def features(view: NodeView, cluster: FloatArray, pod: PodView) -> Features:
    """float32 [nodes, len(FEATURES)] of the nodes of ``view``, in ``FEATURES``' order."""
    parts = view.use.parts
    expected = pod.expected / view.use.scale
    out = np.empty((len(parts), len(FEATURES)))
    out[:, 0:4] = parts[:, 0]
    out[:, 4] = view.healthy
    out[:, 5] = view.pods
    out[:, 6] = view.use.delay_ms / 10.0
    out[:, 7:11] = cluster[0:4]
    out[:, 11] = cluster[10] * MAGNIFY
    out[:, 12:14] = pod.requested[:2] / view.use.scale[:, :2] * MAGNIFY
    out[:, 14:18] = expected * MAGNIFY
    out[:, 18] = pod.known
    out[:, 19] = view.use.known
    out[:, 20:28:2] = (view.highest - cluster[4:8]) * MAGNIFY
    out[:, 21:28:2] = ((parts + expected[:, None]).max(axis=2) - cluster[4:8]) * MAGNIFY
    out[:, 28] = (0.5 * (view.requested[:, 0] + view.requested[:, 1]) - cluster[8]) * MAGNIFY
    out[:, 29] = (view.pods - cluster[9]) * MAGNIFY
    np.maximum(out, -CLIP, out=out)
    return np.minimum(out, CLIP, out=out).astype(np.float32)
