"""Scores by a profile's arguments, against kube-scheduler's arithmetic written down once more, node by node."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
from msgspec.structs import replace

from shared.model.constraints import PodClass
from shared.model.scheduling_profile import FitScoring, SchedulingProfile, ShapePoint, Weighted
from shared.policy.heuristics import KubeDefault
from shared.policy.observation import Observation
from shared.scheduling.scores.profiled import balanced_score, fit_score
from shared.scheduling.state.cluster_state import ClusterState
from tests.builders import make_node, make_pod

RESOURCES = ("cpu", "memory", "e.com/x", "ephemeral-storage")
Amounts = dict[str, int]


def cluster(rng: Random) -> tuple[ClusterState, list[Amounts], list[Amounts], list[Amounts]]:
    """And of each node what it has, what is requested of it, and what scores count."""
    state, has, used, counted = ClusterState(), [], [], []
    for number in range(12):
        there = {"cpu": rng.randrange(1, 9) * 1000, "memory": rng.randrange(1, 9) << 30, "ephemeral-storage": 9 << 30}
        there["e.com/x"] = rng.choice((0, 4, 8))
        given = {name: str(amount) for name, amount in there.items() if name != "cpu"}
        state.upsert_node(make_node(f"n{number}").allocatable(cpu=f"{there['cpu']}m", **given).node())
        sums, scored = dict.fromkeys(RESOURCES, 0), dict.fromkeys(RESOURCES, 0)
        for one in range(rng.randrange(3)):
            pod = random_pod(rng, f"p{number}-{one}").on(f"n{number}").pod()
            state.observe(pod)
            for name, amount in pod.pod_class.requests:
                sums[name] += amount
            for name, amount in with_defaults(pod.pod_class).items():
                scored[name] += amount
        has.append(there)
        used.append(sums)
        counted.append(scored)
    return state, has, used, counted


def random_pod(rng: Random, name: str) -> object:
    pod = make_pod(name)
    if rng.random() < 0.8:
        pod.cpu(f"{rng.randrange(1, 30) * 100}m")
    if rng.random() < 0.8:
        pod.memory(f"{rng.randrange(1, 30) * 100}Mi")
    if rng.random() < 0.5:
        pod.request(**{"e.com/x": str(rng.randrange(1, 4))})
    if rng.random() < 0.5:
        pod.request(**{"ephemeral-storage": f"{rng.randrange(1, 4)}Gi"})
    return pod


def with_defaults(pod_class: PodClass) -> Amounts:
    asked = dict.fromkeys(RESOURCES, 0) | dict(pod_class.requests)
    return asked | {"cpu": pod_class.score_cpu_millis, "memory": pod_class.score_memory_bytes}


def worth(fit: FitScoring, used: int, there: int) -> int:
    if fit.strategy == "LeastAllocated":
        return 0 if used > there else (there - used) * 100 // there
    if fit.strategy == "MostAllocated":
        return min(used, there) * 100 // there
    percent = 100 if used > there else used * 100 // there
    for at, point in enumerate(fit.shape):
        if percent <= point.utilization:
            if at == 0:
                return point.score
            before = fit.shape[at - 1]
            rise = (point.score - before.score) * (percent - before.utilization)
            return before.score + math.trunc(rise / (point.utilization - before.utilization))
    return fit.shape[-1].score


def naive_fit(fit: FitScoring, pod: PodClass, has: Amounts, counted: Amounts) -> int:
    total = weights = 0
    for resource in fit.resources:
        asked, there = with_defaults(pod)[resource.name], has[resource.name]
        if not there or (resource.name == "e.com/x" and not asked):
            continue
        score = worth(fit, counted[resource.name] + asked, there)
        if fit.strategy != "RequestedToCapacityRatio" or score > 0:
            total, weights = total + resource.weight * score, weights + resource.weight
    if not weights:
        return 0
    return math.floor(total / weights + 0.5) if fit.strategy == "RequestedToCapacityRatio" else total // weights


def naive_balance(names: tuple[str, ...], asked: Amounts, has: Amounts, used: Amounts, adds: bool) -> int:
    shares = [
        min((used[name] + asked.get(name, 0) * adds) / has[name], 1.0)
        for name in names
        if has[name] and (name != "e.com/x" or asked.get(name))
    ]
    spread = 0.0
    if len(shares) == 2:
        spread = abs((shares[0] - shares[1]) / 2)
    elif len(shares) > 2:
        mean = sum(shares) / len(shares)
        spread = math.sqrt(sum((share - mean) ** 2 for share in shares) / len(shares))
    return int((1 - spread) * 100)


FITS = [
    FitScoring("LeastAllocated", (Weighted("cpu", 3), Weighted("e.com/x", 2), Weighted("ephemeral-storage"))),
    FitScoring("MostAllocated", (Weighted("memory"),)),
    FitScoring("MostAllocated", (Weighted("cpu"), Weighted("memory", 2), Weighted("e.com/x", 5), Weighted("no/y"))),
    FitScoring(
        "RequestedToCapacityRatio", (Weighted("cpu"), Weighted("e.com/x", 3)), (ShapePoint(0, 0), ShapePoint(100, 100))
    ),
    FitScoring(
        "RequestedToCapacityRatio", (Weighted("cpu"), Weighted("memory", 2)),
        (ShapePoint(10, 100), ShapePoint(43, 30), ShapePoint(80, 70)),
    ),
]  # fmt: skip


@pytest.mark.parametrize("fit", FITS, ids=lambda fit: f"{fit.strategy}-{len(fit.resources)}")
@pytest.mark.parametrize("seed", [1, 2])
def test_node_resources_fit_scores_as_kube_scheduler_does(fit: FitScoring, seed: int) -> None:
    rng = Random(seed)
    state, has, _, counted = cluster(rng)
    known = replace(fit, resources=tuple(one for one in fit.resources if one.name in RESOURCES))
    for number in range(8):
        pod_class = replace(random_pod(rng, f"own{number}").pod().pod_class, profile=SchedulingProfile("a", fit=fit))
        rows = np.arange(12)
        found = fit_score(state.table, pod_class, rows).tolist()
        assert found == [naive_fit(known, pod_class, has[row], counted[row]) for row in rows]


@pytest.mark.parametrize(
    "names", [("memory", "e.com/x"), ("cpu", "memory", "e.com/x"), RESOURCES, ("e.com/x",)], ids=len
)
def test_balanced_allocation_scores_as_kube_scheduler_does(names: tuple[str, ...]) -> None:
    rng = Random(3)
    state, has, used, _ = cluster(rng)
    for number in range(16):
        pod_class = random_pod(rng, f"own{number}").pod().pod_class
        pod_class = replace(pod_class, profile=SchedulingProfile("a", balanced=names))
        asked = dict(pod_class.requests)
        found = balanced_score(state.table, pod_class, np.arange(12)).tolist()
        for row in range(12):
            after, before = (naive_balance(names, asked, has[row], used[row], adds) for adds in (True, False))
            wanted = 50 + math.trunc((50 + after - before) / 2) if any(asked.get(name) for name in names) else 0
            assert found[row] == wanted, (row, asked)


def test_weights_of_a_profile_count_and_0_counts_nothing() -> None:
    state, *_ = cluster(Random(4))
    rows, pod_class = np.arange(12), make_pod("own").cpu("1").memory("1Gi").pod().pod_class

    def scored(*weights: tuple[str, int]) -> list[float]:
        seen = replace(pod_class, profile=SchedulingProfile("a", weights=weights))
        scores: list[float] = KubeDefault().decide(Observation(state.table, seen, rows), Random(0)).score.tolist()
        return scores

    others = ("NodeResourcesBalancedAllocation", 0), ("TaintToleration", 0)
    once = scored(("NodeResourcesFit", 1), *others)
    assert scored(("NodeResourcesFit", 7), *others) == [7 * score for score in once]
    assert set(scored(("NodeResourcesFit", 0), *others)) == {0.0}
    plain = KubeDefault().decide(Observation(state.table, pod_class, rows), Random(0)).score.tolist()
    assert scored(("ImageLocality", 5)) == plain
