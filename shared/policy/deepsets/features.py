"""What a Deep Sets policy sees of a node: the node, the pod, and the cluster it is compared with.

One definition, used by the training environment and by the policy in an agent, so that the two cannot drift apart.
Deep Sets (Zaheer et al., NeurIPS 2017, theorem 2): a member is judged by its own features and by what the whole set
pools to. Here the set is the cluster, not the candidates at hand: the coordinator pools it and tells it with every
offer, so a row's features are the same whichever agent looks, and stay while neither the row nor these loads change.
Every number is a share, a flag or a clipped ratio, so that clusters of any size and nodes of any shape look alike. It
refuses nothing: which rows are candidates is the filters' business.

*Load* of a node: the mean of the shares in use of what is watched, measured where somebody measures, else requested
(``usage.load``). Weights know no parts: one that is not watched is shown as the load.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.model.constraints import PodClass
from shared.model.load import DEFAULT, PARTS, LoadParts
from shared.policy.usage.load import added_load, mean_of, node_load, used_shares
from shared.policy.usage.views import LOADS, REQUESTED_LOADS, SUMMARY, loads
from shared.scheduling.state.node_table import PODS_COLUMN, IntArray, NodeTable

Floats = NDArray[np.float32]

FEATURES = (
    "cpu_share",  # in use / allocatable, before the pod; the load where it is not watched
    "memory_share",
    "pods_share",
    "load_after",  # load with the pod
    "in_use",  # 1 when a pod runs there
    "above_mean",  # load less the cluster's mean load, times MAGNIFY, clipped at MOST_APART
    "above_mean_with_pod",
    "cluster_load",  # over all healthy nodes, in steps of LOAD_STEP: their mean load
    "cluster_least",
    "cluster_most",
    "cluster_in_use",  # share of the nodes that have a pod
    "latency_to_soft",  # latency / soft limit, clipped at MAX_RATIO, / MAX_RATIO; 0 when the pod names no limit
    "latency_to_hard",
    "within_soft",  # 1 when the latency is at most the limit, or there is none
    "within_hard",
)
"""The features in order. An unknown latency counts as MAX_RATIO times any limit."""

FEATURE_COUNT = len(FEATURES)
WITHIN_HARD = FEATURES.index("within_hard")
MAGNIFY, MOST_APART = 4.0, 4.0
MAX_RATIO = 2.0
LOAD_STEP = 1 / 32
"""Of the cluster's loads: coarser than a pod's part in them, so that nodes judged before stay judged while the cluster
is about as it was. Noisy readings of many nodes move their least and greatest by a step often, and all rows are judged
anew then. What is the same for all nodes moves all their scores, so it need not be finer."""

_TOLD, _REQUESTED = (np.array([SUMMARY.index(name) for name in names]) for names in (LOADS, REQUESTED_LOADS))
_CPU, _MEMORY, _PODS = (PARTS.index(part) for part in ("cpu", "memory", "pods"))


class ClusterLoads(NamedTuple):
    """The cluster, in ``LOAD_STEP``s."""

    load: int
    least: int
    most: int
    in_use: int


def cluster_loads(told: NDArray[np.float64] | None, table: NodeTable, parts: LoadParts = DEFAULT) -> ClusterLoads:
    """What the coordinator ``told`` of the cluster (``usage.views.SUMMARY``), an older one by requests alone, as its
    agents judge then; of the nodes of ``table`` where it told nothing, or less."""
    if told is not None and len(told) > _REQUESTED.max():
        found = told[_TOLD if len(told) > _TOLD.max() else _REQUESTED]
    else:
        rows = np.flatnonzero(table.present[: table.rows] & ~table.unschedulable[: table.rows])
        found = loads(node_load(table, rows, parts), table.requested[PODS_COLUMN].take(rows))
    return ClusterLoads(*np.rint(np.clip(found, 0.0, MOST_APART) / LOAD_STEP).astype(int).tolist())


def node_features(
    table: NodeTable, pod_class: PodClass, rows: IntArray, cluster: ClusterLoads | None = None,
    parts: LoadParts = DEFAULT,
) -> Floats:  # fmt: skip
    """float32 ``[candidates, FEATURE_COUNT]`` for ``rows`` of ``table``. ``cluster`` None: the table is all of it;
    ``parts``: those that are watched."""
    x = np.empty((FEATURE_COUNT, len(rows)), np.float32).T  # a column is written at once, so let it lie together
    if not len(rows):
        return x
    all_nodes = np.array(cluster_loads(None, table, parts) if cluster is None else cluster) * LOAD_STEP
    share = used_shares(table, rows)
    load = mean_of(share, parts)
    after = load + added_load(table, pod_class, rows, parts)
    x[:, 0] = share[_CPU] if "cpu" in parts else load
    x[:, 1] = share[_MEMORY] if "memory" in parts else load
    x[:, 2] = share[_PODS]
    x[:, 3] = after
    x[:, 4] = share[_PODS] > 0
    x[:, 5] = (load - all_nodes[0]) * MAGNIFY
    x[:, 6] = (after - all_nodes[0]) * MAGNIFY
    x[:, 7:11] = all_nodes
    np.clip(x[:, :11], -MOST_APART, MOST_APART, out=x[:, :11])
    soft, hard = pod_class.latency_soft_us, pod_class.latency_hard_us
    if not soft and not hard:
        x[:, 11:13] = 0
        x[:, 13:15] = 1
        return x
    latency = table.latency_to(pod_class.latency_target, rows)
    for column, limit in ((11, soft), (12, hard)):
        if limit:
            ratio = np.where(latency < 0, MAX_RATIO, latency / limit)
            x[:, column] = np.minimum(ratio / MAX_RATIO, 1)
            x[:, column + 2] = ratio <= 1
        else:
            x[:, column] = 0
            x[:, column + 2] = 1
    return x
