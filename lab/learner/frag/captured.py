"""A captured cluster's GPU nodes, and what its pods ask for, as ``frag`` learns from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lab.learner.frag.kernel import WIDTH
from lab.worlds.placement.captured_cluster import CapturedCluster
from shared.errors import ConfigError
from shared.model.gpu_shares import DEFAULT
from shared.policy.frag.policy import request_of
from shared.policy.frag.view import GpuView, model_codes
from shared.policy.rehearsal.submission import DEMAND, GpuNodes, GpuPods, empty_states, pods_of
from shared.scheduling.state.node_table import CPU_COLUMN, MEMORY_COLUMN, NodeTable

MIB = 1 << 20
MOST_SUBMITTED = 200_000
"""Pods of one episode."""
NO_MODEL = ""


def lists_of(cluster: CapturedCluster, name: str) -> tuple[GpuNodes, GpuPods, GpuPods]:
    """(the nodes with GPUs, the pods of the days to learn from, those of the days held back). Raises ``ConfigError``
    where there are no GPUs, or too few pods ask for one."""
    table = NodeTable(cluster.nodes)
    for node in cluster.cluster.nodes:
        table.upsert(node)
    view = GpuView(table, DEFAULT)
    devices = [len(view.free(row)) for row in range(cluster.nodes)]
    rows = [row for row, count in enumerate(devices) if count]
    if not rows:
        raise ConfigError(f"{name}: no node has a GPU, and frag is for GPUs; train ee, el, lb or marl-dqn")
    if max(devices) > WIDTH:
        raise ConfigError(f"{name}: a node has {max(devices)} GPUs, training knows up to {WIDTH}; leave such nodes out")
    models, codes = model_codes(table)
    models = models | ({NO_MODEL: len(models)} if (codes[rows] < 0).any() else {})
    amounts = [
        (
            int(table.allocatable[CPU_COLUMN, row]), int(table.allocatable[MEMORY_COLUMN, row]) // MIB, devices[row],
            int(codes[row]) if codes[row] >= 0 else models[NO_MODEL],
        )
        for row in rows
    ]  # fmt: skip
    nodes = GpuNodes(tuple(table.names[row] for row in rows), empty_states(np.array(amounts, np.int64)), models)
    found = [
        _asked(cluster, spans, models, nodes, f"{name}: the days {which}")
        for spans, which in ((cluster.training, "to learn from"), (cluster.held_back, "held back"))
    ]
    return nodes, found[0], found[1]


def _asked(
    cluster: CapturedCluster, spans: Sequence[tuple[float, float]], models: dict[str, int], nodes: GpuNodes, what: str
) -> GpuPods:
    came = [at for since, until in spans for at in cluster.between(since, until)]
    pods = pods_of([request_of(cluster.lives.classes[at], models) for at in came])
    asked = int(pods.gpu.sum())
    if not asked:
        raise ConfigError(f"{what}: no pod asks for a GPU; capture the cluster while its GPUs are used")
    if DEMAND * nodes.capacity * len(came) / asked > MOST_SUBMITTED:
        raise ConfigError(f"{what}: too few of its {len(came)} pods ask for a GPU; capture for longer")
    return pods
