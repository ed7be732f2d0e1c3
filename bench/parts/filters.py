"""CPU of filter and score of one pod over all nodes, every plugin of the default profile, best node taken. No I/O.

The coordinator's PreFilter and the ranking of one agent that owns every node.

    .venv/bin/python -m bench.parts.filters

CPU time, median of 1,000. "class seen": the class was judged before and one node changed since (the last pod was
placed); "new class": never seen before. Targets at 5,000 nodes: 150 us and 1 ms; 400 us with required anti-affinity
or with spread over 3 zones.
"""

from __future__ import annotations

import itertools
import random
import statistics
import sys
import time
from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from shared.model.constraints import PodClass
from shared.model.node import Node
from shared.model.pod import Pod
from shared.model.terms.labels import LabelSelector, selector_of_labels
from shared.model.terms.relations import AffinityTerm, Relations, SpreadConstraint, WeightedTerm
from shared.policy.heuristics import KubeDefault
from shared.policy.ranking import Ranker
from shared.scheduling.cycle.constraints import guidance_for, needs_guidance
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.scoring import norms_of
from shared.scheduling.state.cluster_state import ClusterState

RUNS = 1000
STANDING = 20_000
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def cluster(nodes: int) -> ClusterState:
    """32-CPU nodes in three zones with ten images each; 20,000 pods of 200 applications stand on them, of
    which 100 keep to one pod per node."""
    state = ClusterState()
    for index in range(nodes):
        labels = {HOSTNAME: f"node-{index}", ZONE: f"z{index % 3}"}
        amounts = {"cpu": 32_000, "memory": 128 << 30, "pods": 110}
        images = {f"registry.example/app-{(index + i) % 200}:v1": 200 << 20 for i in range(10)}
        state.upsert_node(Node(f"node-{index}", labels=labels, allocatable=amounts), images)
    avoiding = [Relations(anti_affinity=(AffinityTerm(HOSTNAME, of_app(app), ("default",)),)) for app in range(200)]
    for number in range(STANDING):
        app = number % 200
        pod = make_pod(f"s{number}", app, avoiding[app] if app >= 100 else None)
        state.observe(replace(pod, node_name=f"node-{number * 7 % nodes}", phase="Running"))
    return state


def make_pod(uid: str, app: int, relations: Relations | None = None, cpu: int = 100) -> Pod:
    """A pod of one application."""
    pod_class = PodClass((("cpu", cpu), ("memory", 256 << 20)), cpu, 256 << 20)
    return Pod(
        uid, "default", uid, "1", pod_class, labels={"app": f"app-{app}"}, relations=relations,
        images=(f"registry.example/app-{app}:v1",),
    )  # fmt: skip


def of_app(app: int) -> LabelSelector:
    """The pods of one application."""
    return selector_of_labels({"app": f"app-{app}"})


def relations(app: int) -> dict[str, Relations | None]:
    """The shapes that are measured."""
    selector = of_app(app)
    on_host, in_zone = AffinityTerm(HOSTNAME, selector, ("default",)), AffinityTerm(ZONE, selector, ("default",))
    return {
        "nothing": None,
        "required anti-affinity, hostname": Relations(anti_affinity=(on_host,)),
        "required anti-affinity, zone": Relations(anti_affinity=(AffinityTerm(ZONE, selector, ("other",)),)),
        "required affinity, zone": Relations(affinity=(in_zone,)),
        "preferred anti-affinity, hostname": Relations(preferences=(WeightedTerm(-50, on_host),)),
        "hard spread, 3 zones": Relations(spread=(SpreadConstraint(1, ZONE, hard=True, selector=selector),)),
        "soft spread, 3 zones": Relations(spread=(SpreadConstraint(1, ZONE, hard=False, selector=selector),)),
    }


def best_row(state: ClusterState, feasibility: FeasibilityCache, ranker: Ranker, pod: Pod) -> int | None:
    """The row that the pod goes to; None where no node takes it."""
    if not needs_guidance(state, feasibility, pod):
        slots = ranker.slots(pod.pod_class, 1, extra=0, norms=norms_of(feasibility, pod.pod_class))
        return slots[0].row if slots else None
    guidance = guidance_for(state, feasibility, pod)
    rows = np.flatnonzero(feasibility.of(pod.pod_class).mask if guidance.mask is None else guidance.mask)
    added = np.zeros(state.table.rows) if guidance.scores is None else guidance.scores.astype(np.float64)
    slots = ranker.guided(pod.pod_class, 1, rows, added, norms=guidance.norms)
    return slots[0].row if slots else None


def measure(nodes: int) -> Iterator[tuple[str, float, float]]:
    """(shape, us with the class seen, us for a new class)."""
    numbers = itertools.count()
    for name, shape in relations(7).items():
        state = cluster(nodes)
        feasibility = FeasibilityCache(state.table)
        ranker = Ranker(state.table, feasibility, KubeDefault(), random.Random(1))
        times = []
        for fresh in (False, True):
            spent = []
            for _ in range(RUNS + 1):
                number = next(numbers)
                pod = make_pod(f"p{number}", 7, shape, cpu=200 + number if fresh else 150)
                before = time.process_time_ns()
                best = best_row(state, feasibility, ranker, pod)
                spent.append((time.process_time_ns() - before) / 1000)
                node_name = "" if best is None else state.table.names[best]
                if node_name and len(spent) % 2:
                    state.observe(replace(pod, node_name=node_name, phase="Running"))
                elif node_name:
                    state.observe(replace(make_pod(pod.uid, 9), node_name=node_name, phase="Running"))
            times.append(statistics.median(spent[1:]))
        yield name, times[0], times[1]


def main() -> None:
    """Print the table."""
    for nodes in [int(argument) for argument in sys.argv[1:]] or [100, 1213, 5000]:
        print(f"{nodes} nodes, {STANDING} pods: {'':>14} {'class seen':>12} {'new class':>12}   (us CPU)")
        for name, seen, new in measure(nodes):
            print(f"  {name:<36} {seen:>12.0f} {new:>12.0f}")


if __name__ == "__main__":
    main()
