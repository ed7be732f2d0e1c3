"""The numbers behind a rejection, rule by rule; that they are there for every case of the oracle is a contract test."""

from __future__ import annotations

from typing import Any

import pytest

from shared.model.cluster_objects import DisruptionBudget, PersistentVolume, StorageClass, VolumeClaim
from shared.model.constraints import Requirement, SelectorTerm
from shared.model.terms.labels import selector_of_labels
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.explain.explanation import explain_nodes
from shared.scheduling.explain.preemption import VictimRules, explain_preemption
from shared.scheduling.preemption.preemption import NEVER
from shared.scheduling.state.cluster_state import ClusterState
from tests.builders import PodBuilder, make_node, make_pod

ZONE = "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def state_of(*standing: PodBuilder, zones: str = "ab", **labels: str) -> ClusterState:
    """Nodes n0, n1 … in zones, with pods on them."""
    state = ClusterState()
    for number, zone in enumerate(zones):
        name = f"n{number}"
        state.upsert_node(make_node(name).label(**{ZONE: f"z{zone}", "kubernetes.io/hostname": name}, **labels).node())
    for pod in standing:
        state.observe(pod.pod())
    return state


def app(name: str, node: str = "", **spec: Any) -> PodBuilder:
    pod = make_pod(name).cpu("100m")
    pod.json["metadata"]["labels"] = {"app": "x"}
    pod.json["spec"].update(spec)
    return pod.on(node) if node else pod


def texts(state: ClusterState, pod: PodBuilder) -> dict[str, list[str]]:
    """By node, what is told of it."""
    found = explain_nodes(state, FeasibilityCache(state.table), pod.pod())
    return {node.name: [n.text for n in node.numbers] for group in found.groups for node in group.nodes}


def spread(skew: int = 1, **more: Any) -> dict[str, Any]:
    rule = {"maxSkew": skew, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", **more}
    return {"topologySpreadConstraints": [{**rule, "labelSelector": {"matchLabels": {"app": "x"}}}]}


def affinity(kind: str, key: str = "kubernetes.io/hostname") -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "x"}}}
    return {"affinity": {kind: {REQUIRED: [term]}}}


def test_spread_tells_how_many_there_are_and_how_many_there_may_be() -> None:
    state = state_of(app("a", "n0"), app("b", "n0"), app("c", "n1"))
    assert texts(state, app("p", **spread())) == {
        "n0": [f"{ZONE}=za: 2 matching pods, 1 in the emptiest of 2 domains, maxSkew 1; 1 too many"]
    }
    few = texts(state_of(app("a", "n0"), app("b", "n1")), app("p", **spread(minDomains=3)))
    (told,) = few["n0"]
    assert told.startswith(f"{ZONE}=za: 1 matching pods, maxSkew 1, and 2 domains of the 3 asked for")
    assert told.endswith("so the emptiest counts as 0; 1 too many")


def test_anti_affinity_names_who_is_in_the_way_whichever_side_says_so() -> None:
    state = state_of(*(app(f"a{n}", "n0") for n in range(5)))
    (told,) = texts(state, app("p", **affinity("podAntiAffinity", ZONE)))["n0"]
    assert told == f"{ZONE}=za: default/a0, default/a1, default/a2 and 2 more, that it must not be near"
    state = state_of(app("guard", "n1", **affinity("podAntiAffinity")))
    assert texts(state, app("p")) == {"n1": ["kubernetes.io/hostname=n1: default/guard, that must not be near it"]}


def test_affinity_tells_where_those_are_that_it_must_be_near() -> None:
    told = texts(state_of(app("peer", "n1")), app("p", **affinity("podAffinity", ZONE)))
    assert told == {"n0": [f"{ZONE}=za: none of the 1 pods that it must be near"]}
    told = texts(state_of(app("peer", "n1")), app("p", **affinity("podAffinity", "rack")))
    assert told["n0"] == ["no label rack"]


def test_selectors_taints_and_ports_tell_what_the_node_has() -> None:
    state = state_of(zones="a", disk="hdd")
    assert texts(state, make_pod().cpu("1").select(disk="ssd", gpu="yes")) == {
        "n0": ["disk=hdd, asked disk=ssd", "no label gpu, asked gpu=yes"]
    }
    state.upsert_node(make_node("n0").taint("a", "NoSchedule", "1").taint("b", "NoExecute").node())
    assert texts(state, make_pod().cpu("1")) == {"n0": ["taint a=1:NoSchedule", "taint b:NoExecute"]}
    ports: dict[str, Any] = {
        "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "hostPort": 80}]}]
    }
    state = state_of(app("holder", "n0", **ports), zones="a")
    assert texts(state, app("p", **ports)) == {"n0": ["TCP 80 is held by default/holder"]}


def volumes(*claims: str) -> dict[str, Any]:
    return {"volumes": [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]}


def stored(state: ClusterState, **claims: VolumeClaim) -> ClusterState:
    """Bound claims, each on the volume of its name."""
    for name, claim in claims.items():
        state.storage.claims[f"default/{name}"] = claim
    return state


def bound(name: str, *modes: str) -> VolumeClaim:
    return VolumeClaim(
        f"default/{name}", uid=name, volume_name=name, bind_completed=True, access_modes=frozenset(modes)
    )


def test_attach_limits_tell_attached_asked_and_limit() -> None:
    state = stored(state_of(app("a", "n0", **volumes("v")), zones="a"), v=bound("v"), w=bound("w"))
    for name in "vw":
        state.storage.put_volume(PersistentVolume(name, csi=("disk.csi", name)))
    state.storage.attach_limits.put("n0", {"disk.csi": 1})
    assert texts(state, app("p", **volumes("w"))) == {"n0": ["disk.csi: 1 volumes attached, 1 asked, at most 1"]}


def test_a_claim_in_use_an_unbound_one_and_a_volume_out_of_reach_are_named() -> None:
    state = stored(state_of(app("a", "n0", **volumes("v")), zones="a"), v=bound("v", "ReadWriteOncePod"))
    assert texts(state, app("p", **volumes("v"))) == {"n0": ["claim v: its volume v does not exist"]}
    state.storage.put_volume(PersistentVolume("v"))
    assert texts(state, app("p", **volumes("v"))) == {"n0": ["claim v (ReadWriteOncePod) is used by default/a"]}

    unbound = VolumeClaim("default/v", uid="v", class_name="fast")
    state = stored(state_of(zones="a"), v=unbound)
    assert texts(state, app("p", **volumes("v"))) == {
        "n0": ["claim v of storage class fast (there is none) is not bound"]
    }
    state.storage.classes["fast"] = StorageClass("fast", provisioner="p", delayed=False)
    assert texts(state, app("p", **volumes("v"))) == {"n0": ["claim v of storage class fast is not bound"]}

    state = stored(state_of(zones="a"), v=bound("v"))
    term = SelectorTerm((Requirement(ZONE, "In", ("zz",)),))
    state.storage.put_volume(PersistentVolume("v", affinity=(term,)))
    assert texts(state, app("p", **volumes("v"))) == {"n0": [f"claim v: volume v is reached from {ZONE} In ['zz']"]}


def low(name: str, node: str, priority: int = 0) -> PodBuilder:
    pod = make_pod(name).cpu("4").on(node)
    pod.json["metadata"]["labels"] = {"app": name}
    pod.json["spec"]["priority"] = priority
    return pod


def high(**spec: Any) -> PodBuilder:
    pod = make_pod("high").cpu("4")
    pod.json["spec"].update({"priority": 10, **spec})
    return pod


@pytest.mark.parametrize("strict", [False, True])
def test_preemption_prefers_whom_no_budget_protects_and_a_strict_one_forbids_the_other(*, strict: bool) -> None:
    state = state_of(low("a", "n0"), low("b", "n1"))
    state.budgets.append(DisruptionBudget("default", "keep", selector_of_labels({"app": "a"}), 0))
    found = explain_preemption(state, FeasibilityCache(state.table), high().pod(), rules=VictimRules(strict))
    assert (found.helps, found.summary) == (True, "would evict default/b from n1")
    assert [(c.node, c.violations, c.allowed) for c in found.candidates] == [("n1", 0, True), ("n0", 1, not strict)]
    assert found.candidates[1].victims[0].breaks_budget


def test_why_preemption_does_nothing_is_told() -> None:
    state = state_of(low("a", "n0", priority=10), low("b", "n1"), zones="ab")
    feasibility = FeasibilityCache(state.table)
    never = explain_preemption(state, feasibility, high(preemptionPolicy="Never").pod())
    assert (never.helps, never.summary) == (False, NEVER)
    larger = high()
    larger.json["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "5"
    found = explain_preemption(state, feasibility, larger.pod())
    told = "0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    assert (found.helps, found.curable, found.summary) == (False, 0, told)
    only = state_of(low("a", "n0", priority=10), zones="a")
    found = explain_preemption(only, FeasibilityCache(only.table), high().pod())
    assert found.summary == "0/1 nodes are available: 1 No preemption victims found for incoming pod."


def test_pods_that_opted_out_are_counted_and_spared() -> None:
    spared = low("a", "n0")
    spared.json["metadata"]["annotations"] = {"conclave.io/preemptible": "false"}
    state = state_of(spared, zones="a")
    found = explain_preemption(state, FeasibilityCache(state.table), high().pod())
    assert (found.helps, found.protected, found.candidates) == (False, 1, ())


def test_only_so_many_nodes_are_tried_and_it_is_told() -> None:
    state = state_of(*(low(f"p{n}", f"n{n}") for n in range(5)), zones="abcde")
    found = explain_preemption(state, FeasibilityCache(state.table), high().pod(), nodes_tried=2)
    assert (found.helps, found.tried, found.curable) == (True, 2, 5)
    assert found.summary.startswith("would evict default/p")
