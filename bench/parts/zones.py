"""What nodes' zones add to a decision at 5,000 nodes: filter, score and assume one pod, with and without zones known.

    .venv/bin/python -m bench.parts.zones [NODES]

CPU time, medians over 400 pods, both clusters asked in turn in one run. ``like``: every machine and pod of one make;
``mixed``: four makes of machines and pods of eight sizes, so that what is free differs from node to node. ``dedicated
cores``: machines that Katalyst tells of, pods of eight sizes, each fourth of which wants zones alone. ``verdicts``:
what all kubelets say, asked before the decision; target: 25 us. The rest of what a decision costs more is that
of every rule beyond the nodes themselves: its nodes are ranked anew for each pod (``bench.parts.filters``).
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from functools import cache

import numpy as np

from bench.parts.filters import best_row
from shared.model.constraints import PodClass
from shared.model.node import Node
from shared.model.node_topology import (
    ContainerKind,
    ContainerNeeds,
    Dedicated,
    NodeTopology,
    PodNeeds,
    TopologyPolicy,
    TopologyScope,
    TopologySource,
    Zone,
)
from shared.model.pod import Pod
from shared.policy.heuristics import KubeDefault
from shared.policy.ranking import Ranker
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.numa.rule import prepare
from shared.scheduling.numa.zones import NodeZones
from shared.scheduling.state.cluster_state import ClusterState

PODS = 400
GI = 2**30
SIZES = tuple((cpus, memory * GI) for cpus in (1, 2, 3, 4) for memory in (2, 5))
MAKES = ((2, TopologyPolicy.SINGLE_NUMA_NODE), (2, TopologyPolicy.RESTRICTED), (4, TopologyPolicy.SINGLE_NUMA_NODE),
         (8, TopologyPolicy.SINGLE_NUMA_NODE))  # fmt: skip
KATALYST = ((2, TopologyPolicy.NUMERIC), (4, TopologyPolicy.NUMERIC), (8, TopologyPolicy.NUMERIC))


class ZonedCluster:
    """Nodes of 64 CPUs and 256 GiB in ``makes`` of zones; ``zones`` False: nobody tells of them."""

    def __init__(self, nodes: int, makes: tuple[tuple[int, TopologyPolicy], ...], *, zones: bool) -> None:
        self.state = ClusterState()
        self.state.cache.zones = keeper = NodeZones(self.state.cache)
        for index in range(nodes):
            name, (count, policy) = f"node-{index}", makes[index % len(makes)]
            self.state.upsert_node(Node(name, allocatable={"cpu": 64_000, "memory": 256 * GI, "pods": 110}))
            amounts = {"cpu": 64 // count, "memory": 256 * GI // count}
            found = tuple(Zone(number, amounts, amounts, amounts) for number in range(count))
            if zones:
                katalyst = policy is TopologyPolicy.NUMERIC
                source = TopologySource.KATALYST if katalyst else TopologySource.KUBELET
                sockets = {number: str(2 * number // count) for number in range(count)} if katalyst else {}
                item = NodeTopology(name, policy, TopologyScope.CONTAINER, found, resource_version="1", source=source,
                                    sockets=sockets)  # fmt: skip
                keeper.put(name, item)
        self.feasibility = FeasibilityCache(self.state.table)
        self.ranker = Ranker(self.state.table, self.feasibility, KubeDefault(), random.Random(1))

    def place(self, pod: Pod) -> tuple[float, float]:
        """Microseconds of CPU until the pod is assumed, and of those for the verdicts of all nodes' kubelets."""
        before = time.process_time_ns()
        rule = prepare(self.state, pod)
        if rule is not None:
            rule.mask()
        judged = time.process_time_ns()
        row = best_row(self.state, self.feasibility, self.ranker, pod)
        assert row is not None
        self.state.assume(pod, self.state.table.names[row], 0.0)
        return (time.process_time_ns() - judged) / 1000, (judged - before) / 1000


@cache
def class_of(size: tuple[int, int], *, aligned: bool) -> PodClass:
    """Copies of a pod share one."""
    cpus, memory = size
    bound = Dedicated(cpus, memory, exclusive=(cpus, memory) in SIZES[::4])
    needs = (
        PodNeeds((ContainerNeeds("main", ContainerKind.MAIN, cpus, (("memory", memory),)),), bound) if aligned else None
    )
    return PodClass((("cpu", cpus * 1000), ("memory", memory)), cpus * 1000, memory, needs=needs)


def make_pod(number: int, size: tuple[int, int], *, aligned: bool) -> Pod:
    """A Guaranteed pod, or a Burstable one of the same size."""
    return Pod(f"p{number}", "default", f"p{number}", "1", class_of(size, aligned=aligned))


def compared(
    nodes: int, makes: tuple[tuple[int, TopologyPolicy], ...], sizes: tuple[tuple[int, int], ...], *, aligned: bool
) -> tuple[float, float, float]:
    """Us of a decision without zones, of one with them, and of the verdicts in it."""
    plain, zoned = ZonedCluster(nodes, makes, zones=False), ZonedCluster(nodes, makes, zones=True)
    rng = random.Random(2)
    spent: tuple[list[float], ...] = ([], [], [])
    for number in range(PODS + len(sizes)):
        pod = make_pod(number, sizes[number] if number < len(sizes) else rng.choice(sizes), aligned=aligned)
        before, _ = plain.place(pod)
        after, verdicts = zoned.place(pod)
        for times, one in zip(spent, (before, after, verdicts), strict=True):
            times.append(one)
    before, after, verdicts = (statistics.median(times[len(sizes) :]) for times in spent)
    return before, after, verdicts


def parked(nodes: int, makes: tuple[tuple[int, TopologyPolicy], ...]) -> float:
    """Us of CPU for what a parked pod costs: why no node takes it, and where evicting might help."""
    cluster, rng = ZonedCluster(nodes, makes, zones=True), random.Random(3)
    for number in range(4 * nodes):
        size = rng.choice(SIZES)
        cluster.state.assume(make_pod(number, size, aligned=True), f"node-{number % nodes}", 0.0)
    spent, rows = [], np.arange(nodes)
    for number in range(50):
        pod = make_pod(-number, (33 + number % 8, GI), aligned=True)
        cluster.state.assume(make_pod(4 * nodes + number, SIZES[0], aligned=True), f"node-{number}", 0.0)
        before = time.process_time_ns()
        rule = prepare(cluster.state, pod)
        assert rule is not None
        refused = rows[~rule.mask()[:nodes]]
        rule.tally(refused)
        rule.resolvable(refused)
        spent.append((time.process_time_ns() - before) / 1000)
    return statistics.median(spent)


def main() -> None:
    """Print the table."""
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    print(f"{nodes} nodes{'':>26}{'no zones':>10}{'zones':>10}{'verdicts':>10}   (us CPU)")
    for name, makes, sizes, aligned in (
        ("like, 2 zones", MAKES[:1], SIZES[3:4], True),
        ("like, 8 zones", MAKES[3:], SIZES[3:4], True),
        ("mixed", MAKES, SIZES, True),
        ("dedicated cores", KATALYST, SIZES, True),
        ("mixed, pods that nothing aligns", MAKES, SIZES, False),
    ):
        before, after, verdicts = compared(nodes, makes, sizes, aligned=aligned)
        print(f"  {name:<34}{before:>10.0f}{after:>10.0f}{verdicts:>10.1f}")
    print(f"  {'a parked pod: why, and who may go':<34}{'':>10}{parked(nodes, MAKES):>10.0f}")


if __name__ == "__main__":
    main()
