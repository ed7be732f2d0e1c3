"""CPU of one decision in an agent: filter and score of all its nodes, best slots taken. No I/O.

    .venv/bin/python -m bench.kernel

CPU time, median of 1,000. "class seen": the class was judged before and one node changed since; "new class": never
seen before.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from shared.model.constraints import PodClass
from shared.model.node import Node
from shared.policy.ranking import Ranker
from shared.policy.registry import POLICIES, make_policy
from shared.scheduling.cycle.conflicts import check_placement
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.state.cache import ClusterCache

RUNS = 1000


def cluster(nodes: int) -> ClusterCache:
    """A cluster of 32-CPU nodes in three zones."""
    cache = ClusterCache()
    for index in range(nodes):
        labels = {"kubernetes.io/hostname": f"node-{index}", "topology.kubernetes.io/zone": f"z{index % 3}"}
        amounts = {"cpu": 32_000, "memory": 128 << 30, "pods": 110}
        cache.upsert_node(Node(f"node-{index}", labels=labels, allocatable=amounts))
    return cache


def pod_class(number: int) -> PodClass:
    """Pod classes differ in their requests."""
    cpu, memory = 100 + number, 256 << 20
    return PodClass(
        (("cpu", cpu), ("memory", memory)), cpu, memory, node_selector=(("topology.kubernetes.io/zone", "z1"),)
    )


def median_us(action: Callable[[int], object]) -> float:
    """Median CPU microseconds of one call."""
    samples = []
    for number in range(RUNS):
        before = time.process_time_ns()
        action(number)
        samples.append((time.process_time_ns() - before) / 1000)
    return statistics.median(samples)


def main() -> None:
    """Print the table."""
    print(f"{'nodes':>6} {'policy':>16} {'class seen':>12} {'new class':>12} {'64 of a class, each':>20}   (us CPU)")
    for nodes in (100, 1213, 5000):
        for name in sorted(POLICIES):
            cache = cluster(nodes)
            ranker = Ranker(cache.table, FeasibilityCache(cache.table), make_policy(name), np.random.default_rng(1))

            def seen(number: int, cache: ClusterCache = cache, ranker: Ranker = ranker) -> None:
                slot = ranker.slots(pod_class(0), 1, extra=2)[0]
                cache.assume(f"uid-{number}", cache.table.names[slot.row], pod_class(0), 0.0)

            def new(number: int, ranker: Ranker = ranker) -> None:
                ranker.slots(pod_class(1 + number), 1, extra=2)

            seen(-1)
            row = (median_us(seen), median_us(new))
            before = time.process_time_ns()
            for _ in range(20):
                ranker.slots(pod_class(0), 64, extra=2)
            each = (time.process_time_ns() - before) / 1000 / 20 / 64
            print(f"{nodes:>6} {name:>16} {row[0]:>12.0f} {row[1]:>12.0f} {each:>20.1f}")
    cache = cluster(5000)
    feasibility = FeasibilityCache(cache.table)
    check = median_us(lambda number: check_placement(feasibility, pod_class(0), f"node-{number * 3 + 1}"))
    print(f"binder's check of one placement, 5,000 nodes: {check:.1f} us")


if __name__ == "__main__":
    main()
