"""Rules in arrays against the same rules said plainly, on random clusters; and rules that follow pods in a dry run."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec
import numpy as np
import pytest

from shared.kube import objects as api
from shared.kube.pods.convert import node_from_api, pod_from_api
from shared.model.pod import Pod
from shared.scheduling.filters import interpod_affinity, topology_spread
from shared.scheduling.framework import Code
from shared.scheduling.scores.relations import interpod_sums, normalised, spread_score
from shared.scheduling.state.cluster_load import incoming_pod
from shared.scheduling.state.cluster_state import ClusterState
from tests.unit.shared.scheduling import naive_rules as naive
from tests.unit.shared.scheduling.random_clusters import SPACES, some_cluster, some_pod

SEEDS = range(300)
AFFINITY_TEXTS = {
    "affinity": (Code.UNRESOLVABLE, (interpod_affinity.AFFINITY,)),
    "anti": (Code.UNSCHEDULABLE, (interpod_affinity.ANTI_AFFINITY,)),
    "existing": (Code.UNSCHEDULABLE, (interpod_affinity.EXISTING,)),
    "": None,
}
SPREAD_TEXTS = {
    "label": (Code.UNRESOLVABLE, (topology_spread.NO_LABEL,)),
    "skew": (Code.UNSCHEDULABLE, (topology_spread.SKEWED,)),
    "": None,
}


def to_pod(raw: dict[str, Any]) -> Pod:
    return pod_from_api(msgspec.convert(raw, api.KubePod))


def state_of(nodes: list[dict[str, Any]], pods: list[dict[str, Any]]) -> ClusterState:
    state = ClusterState()
    state.namespaces.update(SPACES)
    for node in nodes:
        state.upsert_node(node_from_api(msgspec.convert(node, api.KubeNode)))
    for raw in pods:
        state.observe(to_pod(raw))
    return state


def asked(raw: dict[str, Any]) -> Pod:
    return incoming_pod(msgspec.convert(raw, api.KubePod))


def counted(rule: Any, rows: list[int]) -> tuple[dict[str, int], list[bool]]:
    """What ``tally`` and ``resolvable`` say in arrays, from verdicts row by row."""
    verdicts = [rule.verdict(row) for row in rows]
    reasons = Counter(reason for verdict in verdicts for reason in verdict[1])
    return dict(reasons), [verdict[0] is Code.UNSCHEDULABLE for verdict in verdicts]


@pytest.mark.parametrize("prepare", [interpod_affinity.prepare, topology_spread.prepare])
def test_reasons_counted_by_arrays_are_those_of_each_row(prepare: Any) -> None:
    checked = 0
    for seed in range(400):
        nodes, pods, raw = some_cluster(seed)
        state, pod = state_of(nodes, pods), asked(raw)
        rule = prepare(state, pod)
        if rule is None:
            continue
        rows = np.flatnonzero(~rule.mask() & state.table.present[: state.table.rows])
        reasons, resolvable = counted(rule, rows.tolist())
        assert rule.tally(rows) == reasons, seed
        assert rule.resolvable(rows).tolist() == resolvable, seed
        checked += len(rows)
    assert checked > 100


@pytest.mark.parametrize("block", range(6))
def test_verdicts_of_affinity_and_spread_are_those_said_plainly(block: int) -> None:
    rejected = 0
    for seed in SEEDS[block::6]:
        nodes, pods, raw = some_cluster(seed)
        state, pod, cluster = state_of(nodes, pods), asked(raw), naive.Cluster(nodes, pods, SPACES)
        for prepare, plainly, texts in (
            (interpod_affinity.prepare, naive.affinity_verdict, AFFINITY_TEXTS),
            (topology_spread.prepare, naive.spread_verdict, SPREAD_TEXTS),
        ):
            rule = prepare(state, pod)
            mask = rule.mask() if rule is not None else np.ones(state.table.rows, np.bool_)
            for name, row in state.table.row_of.items():
                verdict = rule.verdict(row) if rule is not None else None
                assert verdict == texts[plainly(cluster, raw, name)], (seed, name, plainly)
                assert bool(mask[row]) == (verdict is None), (seed, name)
                rejected += verdict is not None
    assert rejected > 10


@pytest.mark.parametrize("block", range(6))
def test_scores_of_affinity_and_spread_are_those_said_plainly(block: int) -> None:
    compared = 0
    for seed in SEEDS[block::6]:
        nodes, pods, raw = some_cluster(seed)
        state, pod, cluster = state_of(nodes, pods), asked(raw), naive.Cluster(nodes, pods, SPACES)
        feasible = sorted(random.Random(seed).sample(sorted(cluster.nodes), (len(nodes) + 1) // 2))
        rows = np.array([state.table.row_of[name] for name in feasible])
        sums = interpod_sums(state, pod)
        mine = dict(zip(feasible, normalised(sums[rows]).tolist(), strict=True)) if sums is not None else {}
        plainly = naive.affinity_scores(cluster, raw, feasible)
        assert {n: mine.get(n, 0) for n in feasible} == plainly, seed
        spread = spread_score(state, pod, rows)
        if spread is not None:
            assert dict(zip(feasible, spread.tolist(), strict=True)) == naive.spread_scores(cluster, raw, feasible), (
                seed
            )
            compared += 1
    assert compared > 5


def ordinary(pod: Pod) -> bool:
    """Not one of the pods that kube-scheduler counts differently in a dry run (see the quirks of topology spread)."""
    return not pod.terminating


@pytest.mark.parametrize("block", range(4))
def test_a_rule_that_follows_a_pod_judges_as_one_prepared_afterwards(block: int) -> None:
    followed = 0
    for seed in SEEDS[block::4]:
        nodes, pods, raw = some_cluster(seed)
        rng = random.Random(-seed)
        new = to_pod(some_pod(rng, "new", nodes[0]["metadata"]["name"]))
        pod = asked(raw)
        empty = any(c.selector is not None and not c.selector.requirements for c in (spread_of(pod)))
        for prepare in (interpod_affinity.prepare, topology_spread.prepare):
            state = state_of(nodes, pods)
            before, row = prepare(state, pod), state.table.row_of[new.node_name]
            if before is None or not ordinary(new) or (prepare is topology_spread.prepare and empty):
                continue
            kept, following = before.mask().copy(), before.copy()
            following.adjust(new, row, 1)
            state.observe(new)
            after = prepare(state, pod)
            assert after is not None
            assert (following.mask() == after.mask()).all(), seed
            following.adjust(new, row, -1)
            assert (following.mask() == kept).all(), seed
            assert (before.mask() == kept).all(), "a copy must not write to its original"
            followed += 1
    assert followed > 30


def spread_of(pod: Pod) -> tuple[Any, ...]:
    return pod.relations.spread if pod.relations is not None else ()
