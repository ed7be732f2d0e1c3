"""Guidance: agents that see only their own nodes arrive, together, at kube-scheduler's verdict; assumed pods count."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from shared.kube import objects as api
from shared.kube.pods.convert import node_from_api, pod_from_api
from shared.model.pod import Pod
from shared.policy.heuristics import KubeDefault
from shared.policy.observation import Observation
from shared.scheduling.cycle.constraints import Guidance, guidance_for
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.prefilter import prefilter
from shared.scheduling.explain.whatif import what_if
from shared.scheduling.state.cluster_load import incoming_pod
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.node_table import NodeTable
from tests.unit.shared.scheduling import naive_rules as naive
from tests.unit.shared.scheduling.random_clusters import SPACES, some_cluster

Json = dict[str, Any]


def state_of(nodes: list[Json], pods: list[Json]) -> ClusterState:
    state = ClusterState()
    state.namespaces.update(SPACES)
    for number, node in enumerate(nodes):
        images = {"img:latest": 200 << 20} if number % 2 else {}
        state.upsert_node(node_from_api(msgspec.convert(node, api.KubeNode)), images)
    for raw in pods:
        state.observe(pod_from_api(msgspec.convert(raw, api.KubePod)))
    return state


def agent_totals(state: ClusterState, guidance: Guidance, pod: Pod, names: list[str]) -> dict[str, int]:
    """What an agent that owns ``names`` answers: feasible nodes and their totals."""
    table = NodeTable()
    for name in names:
        row = state.table.row_of[name]
        node = state.table.nodes[row]
        assert node is not None
        mine = table.upsert(node)
        for uid in state.cache.pods_on(name):
            account = state.cache.accounts[uid]
            table.add_usage(mine, account.pod_class, account.devices)
    mask = FeasibilityCache(table).of(pod.pod_class).mask.copy()
    theirs = [state.table.row_of[name] for name in table.names]
    if guidance.mask is not None:
        mask &= guidance.mask[theirs]
    rows = np.flatnonzero(mask)
    verdicts = KubeDefault().decide(Observation(table, pod.pod_class, rows, guidance.norms), np.random.default_rng(0))
    extra = np.zeros(len(theirs)) if guidance.scores is None else guidance.scores[theirs]
    return {table.names[row]: int(verdicts.score[i] + extra[row]) for i, row in enumerate(rows.tolist())}


@pytest.mark.parametrize("block", range(3))
def test_agents_with_guidance_agree_with_the_whole_verdict(block: int) -> None:
    guided = 0
    for seed in range(block, 150, 3):
        nodes, pods, raw = some_cluster(seed)
        raw["spec"]["containers"][0]["image"] = "img"
        state, pod = state_of(nodes, pods), incoming_pod(msgspec.convert(raw, api.KubePod))
        guidance = guidance_for(state, FeasibilityCache(state.table), pod)
        names = sorted(state.table.row_of)
        random.Random(seed).shuffle(names)
        cut = len(names) // 2
        together = {
            n: t for part in (names[:cut], names[cut:]) for n, t in agent_totals(state, guidance, pod, part).items()
        }
        assert together == what_if(state, FeasibilityCache(state.table), pod).totals, seed
        guided += guidance.mask is not None
    assert guided > 10


def apart_json(name: str) -> Json:
    """A pod that keeps to one per zone."""
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
    anti = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    spec = {"containers": [{"name": "c"}], "affinity": {"podAntiAffinity": anti}}
    return {"metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "x"}}, "spec": spec}


def apart(name: str) -> Pod:
    return pod_from_api(msgspec.convert(apart_json(name), api.KubePod))


def zones(*names: str) -> ClusterState:
    nodes = [
        {"metadata": {"name": f"n{i}", "labels": {"zone": zone}}, "status": {"allocatable": {"pods": "9"}}}
        for i, zone in enumerate(names)
    ]
    return state_of(nodes, [])


def still_fits(state: ClusterState, pod: Pod, row: int) -> bool:
    """Whether other pods let ``pod`` onto the row by rules prepared now."""
    prefiltered = prefilter(state, pod)
    return prefiltered.rejection is None and all(rule.verdict(row) is None for rule in prefiltered.rules)


def test_what_is_assumed_counts_for_the_next_unit() -> None:
    state = zones("x", "x", "y")
    feasibility = FeasibilityCache(state.table)
    state.assume(apart("a"), "n0", now=0.0)
    assert what_if(state, feasibility, apart("b")).feasible == ("n2",)
    state.assume(apart("b"), "n2", now=0.0)
    assert what_if(state, feasibility, apart("c")).feasible == ()
    state.forget("a")
    assert what_if(state, feasibility, apart("c")).feasible == ("n0", "n1")


def plain(name: str) -> Pod:
    """A pod that demands nothing, but that ``apart`` pods keep away from."""
    meta = {"name": name, "namespace": "default", "uid": name, "labels": {"app": "x"}}
    return pod_from_api(msgspec.convert({"metadata": meta, "spec": {"containers": [{"name": "c"}]}}, api.KubePod))


@pytest.mark.parametrize("second", [apart, plain], ids=["its own rule", "only the other's rule"])
def test_an_answer_to_an_older_offer_is_judged_by_what_was_assumed_since(second: Callable[[str], Pod]) -> None:
    """Two units in flight: both offers allowed zone x, and only one of them may go there."""
    state = zones("x", "x", "y")
    feasibility = FeasibilityCache(state.table)
    guidance = guidance_for(state, feasibility, second("b"))
    assert guidance.mask is None or guidance.mask.all()
    assert all(still_fits(state, second("b"), row) for row in range(3))
    state.assume(apart("a"), "n0", now=0.0)
    assert [still_fits(state, second("b"), row) for row in range(3)] == [False, False, True]


def in_flight(count: int, seed: int, *, asks_again: bool) -> list[str]:
    """Pods that end up against their own rule when ``count`` offers are out at once and answers come in any order."""
    rng = random.Random(seed)
    zone_of = {f"n{i}": zone for i, zone in enumerate("xxyyzz")}
    state = zones(*zone_of.values())
    feasibility = FeasibilityCache(state.table)
    offers = {name: guidance_for(state, feasibility, apart(name)) for name in (f"p{i}" for i in range(count))}
    placed: dict[str, str] = {}
    for name, guidance in sorted(offers.items(), key=lambda _: rng.random()):
        assert guidance.mask is not None
        row = int(rng.choice(np.flatnonzero(guidance.mask).tolist()))
        if not asks_again or still_fits(state, apart(name), row):
            placed[name] = state.table.names[row]
            state.assume(apart(name), placed[name], now=0.0)
    nodes = [{"metadata": {"name": name, "labels": {"zone": zone}}} for name, zone in zone_of.items()]
    wrong = []
    for name, node in placed.items():
        others = [apart_json(o) | {"spec": {"nodeName": n}} for o, n in placed.items() if o != name]
        if naive.affinity_verdict(naive.Cluster(nodes, others, SPACES), apart_json(name), node):
            wrong.append(name)
    return wrong


def test_units_in_flight_keep_apart_because_answers_are_judged_again() -> None:
    assert not any(in_flight(6, seed, asks_again=True) for seed in range(20))


def test_ablation_without_asking_again_units_in_flight_end_up_together() -> None:
    assert any(in_flight(6, seed, asks_again=False) for seed in range(20))
