"""CPU of one decision in an agent: filter and score of all its nodes, best slots taken. No I/O.

    .venv/bin/python -m bench.parts.kernel [POLICY...]

CPU time, median. "class seen": the class was judged before and one node changed since; "new class": never seen before;
"64 of a class": judged before, and each of the 64 nodes chosen last time changed since.
"""

from __future__ import annotations

import shared.runtime.process.one_core  # noqa: F401  first: it must be set before numpy is loaded

# isort: split
import random
import statistics
import sys
import time
from collections.abc import Callable

from shared.model.constraints import PodClass
from shared.model.node import Node
from shared.policy.ranking import Ranker
from shared.policy.registry import POLICIES, make_policy
from shared.scheduling.cycle.conflicts import check_placement
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.state.cache import ClusterCache

RUNS, BATCHES, BATCH = 1000, 30, 64
NODES = (100, 1_000, 5_000, 20_000)


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


def median_us(action: Callable[[int], object], runs: int = RUNS) -> float:
    """Median CPU microseconds of one call."""
    samples = []
    for number in range(runs):
        before = time.process_time_ns()
        action(number)
        samples.append((time.process_time_ns() - before) / 1000)
    return statistics.median(samples)


def batches_us(cache: ClusterCache, ranker: Ranker) -> float:
    """Median CPU microseconds for one of the units of a batch; placing them is not counted."""
    samples = []
    for batch in range(BATCHES):
        before = time.process_time_ns()
        slots = ranker.slots(pod_class(0), BATCH, extra=2)[:BATCH]
        samples.append((time.process_time_ns() - before) / 1000 / BATCH)
        for number, slot in enumerate(slots):
            cache.assume(f"uid-{batch}-{number}", cache.table.names[slot.row], pod_class(0), 0.0)
    return statistics.median(samples)


def main() -> None:
    """Print the table."""
    wanted = sys.argv[1:] or sorted(POLICIES)
    print(f"{'nodes':>6} {'policy':>16} {'class seen':>12} {'new class':>12} {'64 of a class, each':>20}   (us CPU)")
    for nodes in NODES:
        for name in wanted:
            cache = cluster(nodes)
            ranker = Ranker(cache.table, FeasibilityCache(cache.table), make_policy(name), random.Random(1))

            def seen(number: int, cache: ClusterCache = cache, ranker: Ranker = ranker) -> None:
                slot = ranker.slots(pod_class(0), 1, extra=2)[0]
                cache.assume(f"uid-{number}", cache.table.names[slot.row], pod_class(0), 0.0)

            def new(number: int, ranker: Ranker = ranker) -> None:
                ranker.slots(pod_class(1 + number), 1, extra=2)

            runs = RUNS if nodes <= 5_000 else RUNS // 5
            seen(-1)
            row = median_us(seen, runs), median_us(new, runs), batches_us(cache, ranker)
            print(f"{nodes:>6} {name:>16} {row[0]:>12.0f} {row[1]:>12.0f} {row[2]:>20.1f}", flush=True)
    cache = cluster(5000)
    feasibility = FeasibilityCache(cache.table)
    check = median_us(lambda number: check_placement(feasibility, pod_class(0), f"node-{number * 3 + 1}"))
    print(f"binder's check of one placement, 5,000 nodes: {check:.1f} us")


if __name__ == "__main__":
    main()
