"""Preemption: victims are enough and none too many, the order of choice, budgets, and who may not preempt."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from services.coordinator.core.core import Core
from shared.kube.cluster_objects import ClusterDump
from shared.model.cluster_objects import DisruptionBudget
from shared.model.constraints import PodClass
from shared.model.pod import Pod
from shared.model.terms.labels import LabelSelector, Requirement, selector_of_labels
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.prefilter import prefilter
from shared.scheduling.explain.whatif import WhatIfOutcome, what_if
from shared.scheduling.preemption import preemption
from shared.scheduling.preemption.budgets import by_budget, covers
from shared.scheduling.preemption.preemption import EvictionCandidate, best_candidates, plan_preemption
from shared.scheduling.state.cluster_load import incoming_pod, load_cluster
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.releases import Release
from tests.unit.shared.scheduling.random_clusters import SPACES, some_cluster

Json = dict[str, Any]


def ask(dump: ClusterDump) -> WhatIfOutcome:
    state = load_cluster(dump)
    return what_if(state, FeasibilityCache(state.table), incoming_pod(dump.pod))


def crowded(seed: int) -> Json:
    """A random cluster in which pods have priorities and nodes are small."""
    rng = random.Random(seed)
    nodes, pods, incoming = some_cluster(seed)
    for node in nodes:
        node["status"]["allocatable"]["cpu"] = f"{rng.randint(3, 8) * 100}m"
    for number, pod in enumerate([*pods, incoming]):
        pod["spec"]["priority"] = rng.randint(0, 3)
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = f"{rng.randint(1, 3) * 100}m"
        pod["status"]["startTime"] = f"2026-01-01T00:{number:02}:00Z"
        pod["metadata"].pop("deletionTimestamp", None)
        pod["spec"]["topologySpreadConstraints"] = [
            c for c in pod["spec"].get("topologySpreadConstraints", ()) if c.get("labelSelector") != {}
        ]
    incoming["spec"]["priority"] = 4
    incoming["status"].pop("startTime")
    namespaces = [{"metadata": {"name": name, "labels": labels}} for name, labels in SPACES.items()]
    return {"nodes": nodes, "pods": pods, "pod": incoming, "namespaces": namespaces}


def without(json: Json, uids: set[str]) -> ClusterDump:
    pods = [pod for pod in json["pods"] if pod["metadata"]["uid"] not in uids]
    return msgspec.convert({**json, "pods": pods}, ClusterDump)


@pytest.mark.parametrize("block", range(4))
def test_without_its_victims_a_node_takes_the_pod_and_with_any_of_them_it_does_not(block: int) -> None:
    tried = 0
    for seed in range(block, 200, 4):
        json = crowded(seed)
        outcome = ask(msgspec.convert(json, ClusterDump))
        for candidate in outcome.preemption.candidates if outcome.preemption else ():
            victims = {victim.uid for victim in candidate.victims}
            assert candidate.node_name in ask(without(json, victims)).feasible, seed
            for spared in victims:
                assert candidate.node_name not in ask(without(json, victims - {spared})).feasible, (seed, spared)
            tried += 1
    assert tried > 5


def make(name: str, priority: int = 0, start: str = "1", labels: dict[str, str] | None = None) -> Pod:
    return Pod(name, "default", name, "", PodClass(), priority=priority, start_time=start, labels=labels or {})


def test_candidates_are_chosen_by_each_criterion_in_turn() -> None:
    worse_to_better = [
        EvictionCandidate("violates", (make("a", -5, "9"),), 1),
        EvictionCandidate("important", (make("b", 7, "9"),), 0),
        EvictionCandidate("greater sum", (make("c", 5, "9"), make("d", 4, "9")), 0),
        EvictionCandidate("more of them", (make("e", 5, "9"), make("f", 3 - 2**31, "9"), make("g", -(2**31), "9")), 0),
        EvictionCandidate("started early", (make("h", 5, "3"), make("i", 3 - 2**31, "9")), 0),
        EvictionCandidate("started late", (make("j", 5, "4"), make("k", 3 - 2**31, "1")), 0),
    ]
    for number in range(len(worse_to_better)):
        rest = worse_to_better[: number + 1]
        assert [c.node_name for c in best_candidates(rest)] == [worse_to_better[number].node_name]
    tie = EvictionCandidate("as late", (make("l", 5, "4"), make("m", 3 - 2**31, "2")), 0)
    assert [c.node_name for c in best_candidates([*worse_to_better, tie])] == ["started late", "as late"]


def test_a_budget_is_used_up_by_each_victim_it_covers() -> None:
    web = {"app": "web"}
    pods = [make("a", labels=web), make("b", labels=web), make("c", labels={"app": "db"}), make("d")]
    one = DisruptionBudget("default", "x", selector_of_labels(web), allowed=1)

    def violating(*budgets: DisruptionBudget, release: Release = Release.V1_38) -> list[str]:
        state = ClusterState(release)
        state.budgets.extend(budgets)
        return [pod.name for pod in by_budget(pods, state)[0]]

    assert violating(one) == ["b"]
    assert violating(one, DisruptionBudget("default", "y", selector_of_labels(web), allowed=0)) == ["a", "b"]
    counted = msgspec.structs.replace(one, disrupted=frozenset({"a"}))
    assert violating(counted) == []
    assert violating(msgspec.structs.replace(one, namespace="other", allowed=0)) == []
    everyone = DisruptionBudget("default", "z", LabelSelector(), allowed=0)
    assert violating(msgspec.structs.replace(everyone, selector=None)) == []


def test_a_budget_with_an_empty_selector_protects_all_pods_of_its_namespace() -> None:
    """policy/v1's words, and kube-scheduler's since 1.38 (kubernetes#141785); before, it protected nobody."""
    pods = [make("a", labels={"app": "web"}), make("bare")]
    state, older = ClusterState(), ClusterState(Release.V1_36)
    for one in (state, older):
        one.budgets.append(DisruptionBudget("default", "all", LabelSelector(), allowed=1))
    assert [pod.name for pod in by_budget(pods, state)[0]] == ["bare"]
    assert by_budget(pods, older)[0] == []


def test_the_mesh_protects_whom_a_budget_selects_whatever_the_clusters_release() -> None:
    """Only a question about kube-scheduler 1.36 (``explain --batch``) is answered otherwise."""
    core = Core(term=1, scheduler_name="conclave", policy="kube-default", rng=random.Random(0))
    everyone = DisruptionBudget("default", "all", LabelSelector(), allowed=0)
    core.state.cluster.budgets.append(everyone)
    assert covers(everyone, make("bare"))
    assert [pod.name for pod in by_budget([make("bare")], core.state.cluster)[0]] == ["bare"]


def test_a_pod_without_labels_is_protected_by_a_selector_that_selects_it() -> None:
    selector = LabelSelector((Requirement("tier", "DoesNotExist", ()),))
    state, older = ClusterState(), ClusterState(Release.V1_36)
    for one in (state, older):
        one.budgets.append(DisruptionBudget("default", "untiered", selector, allowed=0))
    assert [pod.name for pod in by_budget([make("bare")], state)[0]] == ["bare"]
    assert by_budget([make("bare")], older)[0] == []


def full_node(**status: Any) -> Json:
    """One node with one pod of priority 0 that leaves no room."""
    requests = {"requests": {"cpu": "1"}}
    spec = {"containers": [{"name": "c", "resources": requests}]}
    return {
        "nodes": [{"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1", "pods": "9"}}}],
        "pods": [
            {
                "metadata": {"name": "old", "namespace": "default"},
                "spec": {**spec, "nodeName": "n"},
                "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", **status},
            }
        ],
        "pod": {"metadata": {"name": "new", "namespace": "default"}, "spec": {**spec, "priority": 1}},
    }


def reason(json: Json) -> str:
    found = ask(msgspec.convert(json, ClusterDump)).preemption
    assert found is not None
    return found.reason if not found.best else "helps"


def test_who_may_not_preempt_is_told_why() -> None:
    json = full_node()
    assert reason(json) == "helps"
    json["pod"]["spec"]["preemptionPolicy"] = "Never"
    assert reason(json) == preemption.NEVER
    equal = full_node()
    equal["pod"]["spec"]["priority"] = 0
    assert reason(equal) == preemption.NO_CANDIDATE
    too_big = full_node()
    too_big["pod"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    assert reason(too_big) == preemption.NO_NODE


def test_a_preemptor_waits_while_its_victims_on_the_nominated_node_terminate() -> None:
    target = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    json = full_node(conditions=[target])
    json["pods"][0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    json["pod"]["status"] = {"nominatedNodeName": "n"}
    assert reason(json) == preemption.TERMINATING
    json["pod"]["status"] = {"nominatedNodeName": "elsewhere"}
    assert reason(json) == "helps"
    by_hand = full_node()
    by_hand["pods"][0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    by_hand["pod"]["status"] = {"nominatedNodeName": "n"}
    assert reason(by_hand) == "helps", "deleted by somebody else: not waited for"


def test_pods_that_opted_out_stay_and_the_search_ends_at_the_limit() -> None:
    json = full_node()
    second = {**json["nodes"][0], "metadata": {"name": "m"}}
    other = {**json["pods"][0], "metadata": {"name": "other", "namespace": "default"}}
    other["spec"] = {**other["spec"], "nodeName": "m"}
    dump = msgspec.convert({**json, "nodes": [*json["nodes"], second], "pods": [*json["pods"], other]}, ClusterDump)
    state, pod = load_cluster(dump), incoming_pod(dump.pod)
    feasibility, prefiltered = FeasibilityCache(state.table), prefilter(state, pod)
    codes = []
    for row in range(state.table.rows):
        rejection = feasibility.rejection(pod.pod_class, row)
        assert rejection is not None
        codes.append((row, rejection.code))
    spared = plan_preemption(state, feasibility, prefiltered, codes, may_evict=lambda p: p.name != "old")
    assert [c.node_name for c in spared.candidates] == ["m"]
    assert len(plan_preemption(state, feasibility, prefiltered, codes).candidates) == 2
    assert len(plan_preemption(state, feasibility, prefiltered, codes, limit=1).candidates) == 1


def test_removing_a_terminating_victim_lowers_a_spread_count_it_was_not_part_of() -> None:
    """kube-scheduler's quirk preempt-terminating-spread: the only way node n2 becomes a candidate."""
    web = {"matchLabels": {"app": "web"}}
    zone = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": web}

    def pod(name: str, node: str, **meta: Any) -> Json:
        spec = {"containers": [{"name": "c"}], "nodeName": node}
        meta = {"name": name, "namespace": "default", "labels": {"app": "web"}, **meta}
        return {"metadata": meta, "spec": spec, "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}}

    def node(name: str, zone_name: str, taints: list[Json]) -> Json:
        allocatable = {"cpu": "9", "memory": "9Gi", "pods": "9"}
        meta = {"name": name, "labels": {"zone": zone_name}}
        return {"metadata": meta, "spec": {"taints": taints}, "status": {"allocatable": allocatable}}

    incoming = {"metadata": {"name": "new", "namespace": "default", "labels": {"app": "web"}}}
    incoming["spec"] = {"containers": [{"name": "c"}], "priority": 1, "topologySpreadConstraints": [zone]}
    closed = [{"key": "closed", "effect": "NoSchedule"}]
    leaving = pod("leaving", "n2", deletionTimestamp="2026-01-01T00:00:00Z")
    pods = [leaving, {**pod("standing", "n2"), "spec": {**pod("standing", "n2")["spec"], "priority": 9}}]
    nodes = [node("n1", "x", closed), node("n2", "y", [])]
    dump = msgspec.convert({"nodes": nodes, "pods": pods, "pod": incoming}, ClusterDump)
    found = ask(dump).preemption
    assert found is not None
    assert [[victim.name for victim in c.victims] for c in found.best] == [["leaving"]]
