"""What a marl-dqn agent looks at: its node, the cluster, the pod. One row per node, the same for training and the mesh.

The thesis' state (section 4.1.2): local cpu, memory, disk I/O, health, pods; global cpu, memory, disk; the pod's cpu
and memory; network delay. Added, and why, in docs/policies/marl-dqn.md: network use, what the pod's workload is
expected to use, what is young, and differences from the cluster's mean, which are what balance is about and keep their
meaning at any number of nodes. Pure; shares of a node's limits throughout.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared.model.constraints import PodClass
from shared.model.resources import CPU, MEMORY
from shared.policy.class_usage import PARTS, FloatArray
from shared.policy.utilisation import NodeUse, UtilisationStore
from shared.scheduling.node_table import CPU_COLUMN, MEMORY_COLUMN, PODS_COLUMN, IntArray, NodeTable

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


@dataclass(frozen=True, slots=True)
class NodeView:
    """Raw quantities of some rows of one table; shapes as in ``NodeUse``."""

    use: NodeUse
    requested: FloatArray
    """[nodes, 2]: cpu and memory."""
    pods: FloatArray
    """[nodes]: share of the pods allowed."""
    healthy: FloatArray


@dataclass(frozen=True, slots=True)
class PodView:
    """``requested`` and ``expected`` [rows, PARTS] of the pending pod, as shares of each row's limits; ``known`` 0..1."""

    requested: FloatArray
    expected: FloatArray
    known: float


def pod_view(table: NodeTable, rows: IntArray, pod_class: PodClass, store: UtilisationStore | None) -> PodView:
    """What the pod asks for, and what its workload is expected to use."""
    requested = np.zeros((len(rows), PARTS))
    for name, amount in pod_class.requests:
        if name in (CPU, MEMORY):
            column = CPU_COLUMN if name == CPU else MEMORY_COLUMN
            requested[:, 0 if name == CPU else 1] = amount / np.maximum(table.allocatable[column, rows], 1)
    if store is None or not pod_class.workload:
        return PodView(requested, requested, 0.0)
    column = store.column(pod_class.workload, requested[0] if len(rows) else None)
    expected = np.broadcast_to(store.usage.use[column], requested.shape)
    return PodView(requested, expected, store.usage.evidence(column))


def node_view(table: NodeTable, rows: IntArray, slots: IntArray, pod: PodView, store: UtilisationStore | None) -> NodeView:
    """The rows as of now. Pods that the table counts beyond the store's are taken to be like the pending one; a node
    without a sample counts by its requests."""
    allocatable = np.maximum(table.allocatable[:, rows], 1)
    requested = (table.requested[[CPU_COLUMN, MEMORY_COLUMN]][:, rows] / allocatable[[CPU_COLUMN, MEMORY_COLUMN]]).T
    count = table.requested[PODS_COLUMN, rows]
    by_requests = np.zeros((len(rows), PARTS))
    by_requests[:, :2] = requested
    use = (store or UtilisationStore()).look(slots)
    beyond = np.where(use.known, count - use.pods, 0)[:, None] * pod.expected
    known = use.known[:, None]
    now = np.where(known, np.maximum(use.now + beyond, 0.0), by_requests)
    modelled = np.where(known, np.maximum(use.modelled + beyond, 0.0), by_requests)
    young = np.where(known[:, None], np.maximum(use.young + beyond[:, None], 0.0), 0.0)
    healthy = (table.present[rows] & ~table.unschedulable[rows]).astype(np.float64)
    full = NodeUse(now, modelled, young, use.known, use.pods, use.delay_ms)
    return NodeView(full, requested, count / allocatable[PODS_COLUMN], healthy)


def summary(view: NodeView) -> FloatArray:
    """float64 [len(SUMMARY)]: means over the nodes of ``view``, and the spread of their highest parts."""
    use = view.use
    if not len(use.now):
        return np.zeros(len(SUMMARY))
    highest = use.now.max(axis=1)
    young = use.young.max(axis=2).mean(axis=0)
    return np.array(
        [
            *use.now.mean(axis=0), highest.mean(), use.modelled.max(axis=1).mean(), young[1], young[0],
            view.requested.mean(), view.pods.mean(), highest.std(),
        ]
    )  # fmt: skip


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
        pod = pod_view(table, live, pod_class, self.store)
        view = node_view(table, live, self._slots_of(table)[live], pod, self.store)
        shared_view = self.store.cluster if self.store is not None else None
        seen = features(view, summary(view) if shared_view is None else shared_view, pod)
        return seen if everybody else seen[np.searchsorted(live, rows)]

    def _slots_of(self, table: NodeTable) -> IntArray:
        nodes = self.store.nodes if self.store is not None else {}
        known = (id(table), table.static_stamp, len(nodes))
        if known != self._known:
            self._slots = np.array([nodes.get(name, -1) for name in table.names], np.int64)
            self._known = known
        return self._slots


def features(view: NodeView, cluster: FloatArray, pod: PodView) -> Features:
    """float32 [nodes, len(FEATURES)] of the nodes of ``view``, in ``FEATURES``' order."""
    use = view.use
    out = np.empty((len(use.now), len(FEATURES)))
    out[:, 0:4] = use.now
    out[:, 4] = view.healthy
    out[:, 5] = view.pods
    out[:, 6] = use.delay_ms / 10.0
    out[:, 7:11] = cluster[0:4]
    out[:, 11] = cluster[10] * MAGNIFY
    out[:, 12:14] = pod.requested[:, :2] * MAGNIFY
    out[:, 14:18] = pod.expected * MAGNIFY
    out[:, 18] = pod.known
    out[:, 19] = use.known
    for column, (own, mean) in enumerate(
        ((use.now, cluster[4]), (use.modelled, cluster[5]), (use.young[:, 1], cluster[6]), (use.young[:, 0], cluster[7]))
    ):
        out[:, 20 + 2 * column] = (own.max(axis=1) - mean) * MAGNIFY
        out[:, 21 + 2 * column] = ((own + pod.expected).max(axis=1) - mean) * MAGNIFY
    out[:, 28] = (view.requested.mean(axis=1) - cluster[8]) * MAGNIFY
    out[:, 29] = (view.pods - cluster[9]) * MAGNIFY
    return np.clip(out, -CLIP, CLIP).astype(np.float32)
