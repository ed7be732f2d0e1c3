"""What a policy looks at of use: a node, the pending pod and the cluster, as shares of what each has.

Coordinator and agents look alike: the one for the means over all nodes and for what it samples, the others at their own
nodes. A part that nobody measures (the metrics API tells neither disk nor network) is masked: what its node's pods are
known to use stands for it. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from shared.model.constraints import PodClass
from shared.model.qos import CPU_NAMES, is_lent
from shared.model.resources import CPU, MEMORY
from shared.policy.usage.class_usage import PARTS, REFERENCE, FloatArray
from shared.policy.usage.node_use import NodeMeasurement, NodeUseEstimate
from shared.policy.usage.utilisation import UtilisationStore
from shared.scheduling.state.node_table import CPU_COLUMN, MEMORY_COLUMN, PODS_COLUMN, IntArray, NodeTable

SUMMARY = (
    "cpu", "memory", "disk", "network", "highest", "modelled", "young", "younger", "requested", "pods", "spread",
    "least_requested", "most_requested", "in_use", "load", "least_load", "most_load",
)  # fmt: skip
"""What of the whole cluster an agent must know: ``summary``'s order. Only appended to: agents of another release read
it by place."""
HIGHEST = SUMMARY.index("highest")
REQUESTED_LOADS = ("requested", "least_requested", "most_requested", "in_use")
LOADS = ("load", "least_load", "most_load", "in_use")
"""Of it what ``loads`` tells, in its order: by requests of cpu and memory, and of what is watched (``usage.load``)."""
MOST_SHARE = 16.0
"""No node uses more of what it has: beyond it the amounts are wrong, or the node says it has next to nothing."""
BALANCE_UNIT = 0.05
"""A distance from the mean that costs 1."""
MOST_COST = 25.0
_EMPTY = UtilisationStore()


class NodeView(Struct, frozen=True):
    """Raw quantities of some rows of one table."""

    use: NodeUseEstimate
    requested: FloatArray
    """[nodes, 2]: cpu and memory."""
    pods: FloatArray
    """[nodes]: share of the pods allowed."""
    healthy: FloatArray
    highest: FloatArray
    """[nodes, len(VIEWS)]: the most used part in each view."""


class PodView(Struct, frozen=True):
    """``requested`` and ``expected`` [PARTS] of the pending pod, as shares of a reference node; ``known`` 0..1."""

    requested: FloatArray
    expected: FloatArray
    known: float


NO_POD = PodView(np.zeros(PARTS), np.zeros(PARTS), 0.0)
"""Where nodes are looked at as they are."""


def requested_of(pod_class: PodClass) -> FloatArray:
    """float64 [PARTS]: cpu and memory requests, also of what is lent, as shares of a reference node."""
    shares = np.zeros(PARTS)
    for name, amount in pod_class.requests:
        if name == CPU:
            shares[0] += amount / REFERENCE[0]
        elif name == MEMORY:
            shares[1] += amount / REFERENCE[1]
        elif "/" in name and is_lent(name):
            part = 0 if name.rpartition("/")[2] in CPU_NAMES else 1
            shares[part] += amount / REFERENCE[part]
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
    full = NodeUseEstimate(parts, use.known, use.pods, use.delay_ms, use.scale)
    return NodeView(full, requested, count / allocatable[PODS_COLUMN], healthy, most_used(parts))


def most_used(parts: FloatArray) -> FloatArray:
    """[nodes, views, PARTS] to [nodes, views]: the most used part. A maximum along so short an axis is slow."""
    most: FloatArray = parts[..., 0]
    for part in range(1, PARTS):
        most = np.maximum(most, parts[..., part])
    return most


def summary(view: NodeView, load: FloatArray | None = None) -> FloatArray:
    """float64 [len(SUMMARY)]: means over the healthy nodes of ``view``, and the spread of their highest parts.
    ``load`` [nodes]: of each; None: by its requests."""
    nodes = int(view.healthy.sum())
    if not nodes:
        return np.zeros(len(SUMMARY))
    columns = np.concatenate(
        (view.use.parts[:, 0], view.highest, view.requested, view.pods[:, None], view.highest[:, :1] ** 2), axis=1
    )
    if nodes < len(columns):
        healthy = view.healthy > 0
        columns, load = columns[healthy], None if load is None else load[healthy]
    mean = columns.sum(axis=0) / nodes
    out = np.empty(len(SUMMARY))
    out[:8] = mean[:8]
    out[9] = mean[10]
    out[10] = math.sqrt(max(0.0, mean[11] - mean[4] * mean[4]))
    requested = 0.5 * (columns[:, 8] + columns[:, 9])
    out[8], *out[11:14] = loads(requested, columns[:, 10])
    out[14:17] = loads(requested if load is None else load, columns[:, 10])[:3]
    return out


def loads(load: FloatArray, pods: FloatArray | IntArray) -> FloatArray:
    """float64 [len(LOADS)] of nodes of such ``load`` that have such ``pods``, by number or share: its mean, least and
    greatest, and the share of the nodes that have any. A node counts as full at most: one that says it has nothing,
    while pods stand there, is not many full ones."""
    if not len(load):
        return np.zeros(len(LOADS))
    load = np.minimum(load, 1.0)
    return np.array((load.mean(), load.min(), load.max(), np.count_nonzero(pods > 0) / len(load)))


def sample_of(
    table: NodeTable, row: int, shares: Sequence[float], at_s: float, unmeasured: int = 0, newest_s: float | None = None
) -> NodeMeasurement | None:
    """The sample of the node of ``row`` by shares of its allocatable, taken at ``at_s``; of another length: None.
    ``unmeasured``: bit i is set where part i was not measured."""
    if len(shares) != PARTS:
        return None
    pods = int(table.requested[PODS_COLUMN, row])
    return NodeMeasurement(table.names[row], shares, at_s, scale_of(table, row), pods, unmeasured, newest_s)


def scale_of(table: NodeTable, row: int) -> FloatArray:
    """float64 [PARTS]: what the node of ``row`` has, in reference nodes; 1 of what its allocatable does not tell."""
    scale = np.ones(PARTS)
    scale[0] = table.allocatable[CPU_COLUMN, row] / REFERENCE[0]
    scale[1] = table.allocatable[MEMORY_COLUMN, row] / REFERENCE[1]
    return scale


def balance_of(table: NodeTable, row: int, store: UtilisationStore, mean: float) -> float:
    """The balance potential of the node of ``row`` as it is now: minus the squared distance of its most used part from
    ``mean`` (over all nodes), in units of ``BALANCE_UNIT``, at most ``MOST_COST``."""
    highest = float(view_now(table, row, store).highest[0, 0])
    return -float(min(((highest - mean) / BALANCE_UNIT) ** 2, MOST_COST))


def view_now(table: NodeTable, row: int, store: UtilisationStore) -> NodeView:
    """The node of ``row`` as it is now, without any pod to come."""
    slot = store.nodes.get(table.names[row], -1)
    return node_view(table, np.array([row], np.int64), np.array([slot], np.int64), NO_POD, store)
