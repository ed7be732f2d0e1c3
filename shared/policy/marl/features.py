"""What a marl-dqn agent looks at: its node, the cluster, the pod. One row per node, the same for training and the mesh.

The thesis' state (section 4.1.2): local cpu, memory, disk I/O, health, pods; global cpu, memory, disk; the pod's cpu
and memory; network delay. Added, and why, in docs/policies/marl-dqn.md: network use, what the pod's workload is
expected to use, what is young, and differences from the cluster's mean, which are what balance is about and keep their
meaning at any number of nodes. Pure; shares of a node's limits throughout.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shared.model.constraints import PodClass
from shared.policy.networks import Floats
from shared.policy.usage.class_usage import FloatArray
from shared.policy.usage.kept_views import KeptViews
from shared.policy.usage.utilisation import UtilisationStore
from shared.policy.usage.views import NodeView, PodView, most_used, pod_view, summary
from shared.scheduling.state.node_table import IntArray, NodeTable

FEATURES = (
    "cpu", "memory", "disk", "network", "healthy", "pods", "delay",
    "cluster_cpu", "cluster_memory", "cluster_disk", "cluster_network", "cluster_spread",
    "pod_cpu_requested", "pod_memory_requested", "pod_cpu", "pod_memory", "pod_disk", "pod_network", "pod_known",
    "measured", "above_mean", "above_mean_with_pod", "modelled_above_mean", "modelled_above_mean_with_pod",
    "young_above_mean", "young_above_mean_with_pod", "younger_above_mean", "younger_above_mean_with_pod",
    "requested_above_mean", "pods_above_mean",
)  # fmt: skip
OUTRANKED = "outranked"
"""What an agent sees beside them and no network is given: see ``outranked``."""
SHORT, NOTHING_LEFT = 0.8, 1.0
"""A part of a node is short from this share of use on, and wholly so at that one."""
MAGNIFY = 10.0
"""Differences are a few points; the network sees them at the size of the other inputs."""
DELAY_UNIT_MS = 10.0
TINY = 1e-9
CLIP = 5.0
"""No input is larger: an odd node must not throw the network out of the range it has seen."""

Features = NDArray[np.float32]


class Observer:
    """Rows of one table to features; ``store`` None: by requests alone."""

    def __init__(self, store: UtilisationStore | None) -> None:
        self.store = store
        self._unmeasured = UtilisationStore()
        self._kept = KeptViews()

    def of(self, table: NodeTable, pod_class: PodClass, rows: IntArray) -> Features:
        """float32 [rows, len(FEATURES)]: what the agents of ``rows`` see of a pod of ``pod_class``."""
        return self._see(table, pod_class, rows)[0]

    def ranked(self, table: NodeTable, pod_class: PodClass, rows: IntArray) -> Features:
        """float32 [rows, len(FEATURES) + 1]: and how much they are ``outranked``; 0 where nobody told the priority of
        the pod's workload."""
        seen, short = self._see(table, pod_class, rows)
        found, store = np.zeros(len(rows), np.float32), self.store
        if store is not None and (priority := store.priorities.get(pod_class.workload)) is not None:
            places = np.flatnonzero(short.any(axis=1))
            if len(places):
                slots = np.array([store.nodes.get(table.names[row], -1) for row in rows[places].tolist()], np.int64)
                found[places] = outranked(short[places], store.above(slots, priority))
        return np.column_stack((seen, found))

    def _see(self, table: NodeTable, pod_class: PodClass, rows: IntArray) -> tuple[Features, FloatArray]:
        """And how ``short`` each row's parts would be."""
        told = self.store.cluster if self.store is not None else None
        looked = table.live_rows() if told is None else rows
        pod = pod_view(pod_class, self.store)
        view = self._kept.of(table, looked, pod, self.store or self._unmeasured)
        seen, short = features(view, summary(view) if told is None else told, pod), shortage(view, pod)
        if len(seen) == len(rows):
            return seen, short
        places = np.searchsorted(looked, rows)
        return seen[places], short[places]


def shortage(view: NodeView, pod: PodView) -> FloatArray:
    """float64 [nodes, PARTS], 0 to 1: how short a part would be with the pod; a part counts by how much of the pod's
    use it is."""
    expected = pod.expected / view.use.scale
    short: FloatArray = np.clip((view.use.parts[:, 0] + expected - SHORT) / (NOTHING_LEFT - SHORT), 0.0, 1.0)
    short *= expected / np.maximum(expected.max(axis=1, keepdims=True), TINY)
    return short


def outranked(short: FloatArray, above: FloatArray) -> Floats:
    """float32 [nodes], 0 to 1: how much of what the pod would get on a node is taken from pods of higher priority: how
    ``short`` a part would be (see ``shortage``), times the share of the node's part that ``above`` [nodes, PARTS]
    uses; of the part where this is the most."""
    found: Floats = (short * np.minimum(above, 1.0)).max(axis=1).astype(np.float32)
    return found


def features(view: NodeView, cluster: FloatArray, pod: PodView) -> Features:
    """float32 [nodes, len(FEATURES)] of the nodes of ``view``, in ``FEATURES``' order."""
    parts = view.use.parts
    expected = pod.expected / view.use.scale
    out = np.empty((len(FEATURES), len(parts)), np.float32).T  # a column is written at once, so let it lie together
    out[:, 0:4] = parts[:, 0]
    out[:, 4] = view.healthy
    out[:, 5] = view.pods
    out[:, 6] = view.use.delay_ms / DELAY_UNIT_MS
    out[:, 7:11] = cluster[0:4]
    out[:, 11] = cluster[10] * MAGNIFY
    out[:, 12:14] = pod.requested[:2] / view.use.scale[:, :2] * MAGNIFY
    out[:, 14:18] = expected * MAGNIFY
    out[:, 18] = pod.known
    out[:, 19] = view.use.known
    out[:, 20:28:2] = (view.highest - cluster[4:8]) * MAGNIFY
    out[:, 21:28:2] = (most_used(parts + expected[:, None]) - cluster[4:8]) * MAGNIFY
    out[:, 28] = (0.5 * (view.requested[:, 0] + view.requested[:, 1]) - cluster[8]) * MAGNIFY
    out[:, 29] = (view.pods - cluster[9]) * MAGNIFY
    return np.clip(out, -CLIP, CLIP, out=out)
