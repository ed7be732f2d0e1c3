"""What coordinator and agent keep gives the explained verdict, also while pods come and go and nodes change."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import pytest

from shared.kube import objects as api
from shared.kube.pods.convert import node_from_api, pod_from_api
from shared.policy.heuristics import KubeDefault
from shared.policy.ranking import Ranker
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.filtering import diagnose
from shared.scheduling.cycle.prefilter import prefilter
from shared.scheduling.explain.whatif import what_if
from shared.scheduling.state.cluster_load import incoming_pod
from shared.scheduling.state.cluster_state import ClusterState
from tests.mesh_totals import totals_of
from tests.unit.shared.scheduling.random_clusters import SPACES, some_node, some_pod


@pytest.mark.parametrize("seed", range(30))
def test_totals_are_those_of_the_explained_verdict(seed: int) -> None:
    rng = random.Random(seed)
    state = ClusterState()
    state.namespaces.update(SPACES)
    feasibility = FeasibilityCache(state.table)
    ranker = Ranker(state.table, feasibility, KubeDefault(), rng)
    names = [f"n{i}" for i in range(5)]
    for step in range(60):
        name = rng.choice(names)
        kind = rng.randrange(8)
        if kind == 0:
            node = msgspec.convert(some_node(rng, name), api.KubeNode)
            state.upsert_node(node_from_api(node), {"img:latest": rng.randrange(10**9)} if rng.random() < 0.5 else {})
        elif kind == 1:
            state.remove_node(name)
        elif kind == 2:
            state.forget(f"p{rng.randrange(9)}")
        else:
            raw = some_pod(rng, f"p{rng.randrange(9)}", name)
            if rng.random() < 0.2:
                del raw["spec"]["nodeName"]
                raw["status"]["nominatedNodeName"] = name
                raw["spec"]["priority"] = rng.randint(0, 2)
            state.observe(pod_from_api(msgspec.convert(raw, api.KubePod)))
        raw = some_pod(rng, "incoming")
        raw["spec"]["containers"][0]["image"] = rng.choice(("img", "other"))
        raw["spec"]["priority"] = 1
        pod = incoming_pod(msgspec.convert(raw, api.KubePod))
        fast = totals_of(state, feasibility, ranker, pod)
        plain = what_if(state, FeasibilityCache(state.table), pod)
        diagnosis = diagnose(state, FeasibilityCache(state.table), prefilter(state, pod))
        told = [found.rejection for found in plain.infeasible.values()]
        assert diagnosis.reasons == Counter(reason for rejection in told for reason in rejection.reasons), (seed, step)
        assert diagnosis.plugins == {rejection.plugin for rejection in told}, (seed, step)
        assert (diagnosis.nodes, diagnosis.feasible) == (len(state.table.row_of), len(plain.feasible)), (seed, step)
        assert fast == plain.totals, (seed, step)
