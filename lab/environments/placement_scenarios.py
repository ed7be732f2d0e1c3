"""Scenarios of the Deep Sets policies: the thesis' two tests at any size, and what training draws from.

Training and tests share no seed: training draws scenarios from seeds of 1000 and more. Sizes in training end where the
tests only begin, so that what works on a hundred nodes was not learned there.
"""

from __future__ import annotations

import numpy as np

from lab.environments.placement import MIB, NodeSize, Scenario

PODS_PER_NODE = 10
"""The thesis' 30 pods on 3 nodes, kept at any number of nodes."""

SOFT_US, HARD_US = 20_000, 30_000
"""The thesis' limits."""

MOST_TRAINING_NODES = 16
TRAINING_DECISIONS = 150

MOST_SHARE = 0.9
"""No more than this share of the room is asked for in training, so that some node always takes the pod."""


def waves(nodes: int, decisions: int, *, pods: int | None = None) -> Scenario:
    """Test 1: create ten pods per node (or ``pods`` in all), delete them all, again and again."""
    pods = PODS_PER_NODE * nodes if pods is None else pods
    return Scenario((NodeSize(),) * nodes, pods=pods, turnover="waves", decisions=decisions)


def replacing(nodes: int, decisions: int, *, pods: int | None = None) -> Scenario:
    """Test 2: keep ten pods per node (or ``pods`` in all), replace the oldest."""
    pods = PODS_PER_NODE * nodes if pods is None else pods
    return Scenario((NodeSize(),) * nodes, pods=pods, turnover="replace", decisions=decisions)


def filled(nodes: int, decisions: int, *, pods: int) -> Scenario:
    """Pods of 100m and 256Mi on random nodes of 4 cores and 16Gi; the oldest is replaced."""
    return Scenario(
        (NodeSize(4_000, 16_384 * MIB),) * nodes,
        pod_cpu_millis=100,
        pod_memory_bytes=256 * MIB,
        pods=pods,
        turnover="replace",
        filled=True,
        decisions=decisions,
    )


def moving_latency(nodes: int, decisions: int, *, pods: int | None = None) -> Scenario:
    """Test 2 of ``el``: 20 pods per 3 nodes (or ``pods`` in all), limits of 20 and 30 ms, latencies that change at
    two instants."""
    return Scenario(
        (NodeSize(),) * nodes,
        pods=max(1, 20 * nodes // 3) if pods is None else pods,
        turnover="replace",
        decisions=decisions,
        latency_soft_us=SOFT_US,
        latency_hard_us=HARD_US,
    )


UNEVEN_CORES = (4, 8, 8, 16, 16, 16, 32, 32, 4, 8, 16, 32)


def uneven(decisions: int) -> Scenario:
    """Test 2 on twelve nodes of 4 to 32 cores, of which the pods ask for half."""
    sizes = tuple(
        NodeSize(cores * 1000, cores * (2 + place % 3) * 1024 * MIB) for place, cores in enumerate(UNEVEN_CORES)
    )
    pods = sum(UNEVEN_CORES) * 1000 // 2 // 500
    return Scenario(
        sizes, pod_cpu_millis=500, pod_memory_bytes=768 * MIB, pods=pods, turnover="replace", decisions=pods + decisions
    )


def training_scenario(rng: np.random.Generator, *, latency: bool, filled: bool = False) -> Scenario:
    """One of many: 2 to 16 nodes, alike or not, any pod, any fill, either turnover, with limits if ``latency``;
    ``filled``: half of them with the pods there from the beginning."""
    nodes = round(float(np.exp(rng.uniform(np.log(2), np.log(MOST_TRAINING_NODES)))))
    alike = rng.random() < 0.5
    kinds = [_node_size(rng) for _ in range(1 if alike else nodes)]
    sizes = tuple(kinds * nodes if alike else kinds)
    cpu = int(rng.integers(2, 41)) * 50
    memory = int(rng.integers(1, 65)) * 32 * MIB
    room = sum(min(s.cpu_millis // cpu, s.memory_bytes // memory, s.pods) for s in sizes)
    pods = max(1, int(room * rng.uniform(0.1, MOST_SHARE)))
    soft, hard = _limits(rng) if latency else (0, 0)
    kind = rng.random()
    return Scenario(
        sizes,
        pod_cpu_millis=cpu,
        pod_memory_bytes=memory,
        pods=pods,
        turnover="waves" if kind < (0.25 if filled else 0.5) else "replace",
        filled=filled and kind >= 0.5,
        decisions=TRAINING_DECISIONS,
        latency_soft_us=soft,
        latency_hard_us=hard,
        latency_changes=4,
    )


def _node_size(rng: np.random.Generator) -> NodeSize:
    cpu = int(rng.integers(4, 33))
    return NodeSize(cpu * 1000, int(cpu * rng.uniform(1, 8) * 1024) * MIB, 110)


def _limits(rng: np.random.Generator) -> tuple[int, int]:
    """(soft, hard): usually both, sometimes one of them."""
    soft = int(rng.integers(5_000, 60_000))
    hard = int(soft * rng.uniform(1.2, 2.5))
    kind = rng.random()
    return (soft, hard) if kind < 0.8 else (soft, 0) if kind < 0.9 else (0, hard)
