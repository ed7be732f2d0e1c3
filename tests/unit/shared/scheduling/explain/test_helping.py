"""What would help a class of pods: advice that is followed lets pods in, and sends nobody after the wrong node."""

from __future__ import annotations

from typing import Any

import pytest

from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.explain.explanation import NodeGroup, explain_nodes
from shared.scheduling.explain.failing import failing_rules, tally
from shared.scheduling.explain.helping import Help, helps_for
from shared.scheduling.state.cluster_state import ClusterState
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod

HOST = "kubernetes.io/hostname"
NAMES_N7 = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n7"]}]}
NAMED = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [NAMES_N7]}}}


def spec(pod: PodBuilder, **fields: Any) -> PodBuilder:
    pod.json["spec"].update(fields)
    return pod


def cluster(nodes: list[NodeBuilder], standing: list[PodBuilder] | None = None) -> ClusterState:
    state = ClusterState()
    for node in nodes:
        state.upsert_node(node.node())
    for pod in standing or []:
        state.observe(pod.pod())
    return state


def helps(state: ClusterState, pod: PodBuilder, wanted: int = 5) -> list[Help]:
    feasibility = FeasibilityCache(state.table)
    found = failing_rules(state, feasibility, pod.pod())
    return helps_for(state, found, pod.pod(), tuple(tally(state, feasibility, found)[0]), wanted)


def groups(state: ClusterState, pod: PodBuilder) -> dict[str, NodeGroup]:
    """By the first node that each names."""
    found = explain_nodes(state, FeasibilityCache(state.table), pod.pod())
    return {group.nodes[0].name: group for group in found.groups}


def test_nodes_are_not_to_be_labelled_as_a_kind_of_node_that_there_is() -> None:
    spot = make_node("spot-0").label(pool="spot").taint("example.com/spot", "NoSchedule")
    found = helps(cluster([spot, make_node("cpu-0").label(pool="cpu")]), make_pod().cpu("1").select(pool="spot"))
    assert [one.kind for one in found] == ["remove_taint"]
    told = groups(cluster([spot, make_node("cpu-0").label(pool="cpu")]), make_pod().cpu("1").select(pool="spot"))
    assert told["cpu-0"].change == ""
    assert [one.kind for one in helps(cluster([make_node("cpu-0")]), make_pod().select(disk="ssd"))] == ["label_nodes"]


def test_labels_that_differ_are_two_pieces_of_advice() -> None:
    state = cluster([make_node("n")])
    targets = {helps(state, make_pod().select(**{key: "x"}))[0].target for key in ("disk", "rack")}
    assert targets == {"disk=x", "rack=x"}


@pytest.mark.parametrize("by", ["label", "name"])
def test_another_node_is_no_help_to_a_pod_that_names_one(by: str) -> None:
    full = make_node("n7").label(**{HOST: "n7"})
    pod = make_pod().cpu("3").select(**{HOST: "n7"}) if by == "label" else spec(make_pod().cpu("3"), affinity=NAMED)
    found = helps(cluster([full, make_node("other").label(**{HOST: "other"})], [make_pod("a").cpu("2").on("n7")]), pod)
    assert "free" in {one.kind for one in found}
    assert "add_node" not in {one.kind for one in found}


def test_nodes_with_devices_are_added_only_for_pods_that_ask_for_them() -> None:
    gpus = make_node("gpu").allocatable(cpu="96", **{"nvidia.com/gpu": "8"})
    standing = [make_pod("a").cpu("94").on("gpu"), make_pod("b").cpu("14").on("plain")]
    state = cluster([gpus, make_node("plain").allocatable(cpu="16")], standing)
    of = {one.kind: one.target for one in helps(state, make_pod().cpu("6"))}
    assert of["add_node"] == "plain"
    of = {one.kind: one.target for one in helps(state, make_pod().cpu("40"))}
    assert of["add_node"] == "gpu"  # no other is large enough
    of = {one.kind: one.target for one in helps(state, make_pod().cpu("6").request(**{"nvidia.com/gpu": "1"}))}
    assert of["add_node"] == "gpu"


@pytest.mark.parametrize(
    ("requests", "text"),
    [
        ({"google.com/tpu": "4"}, "add a node with 4 google.com/tpu: none here has any"),
        ({"cpu": "60500m"}, "add a node with 60.5 cpu: none that is open to it is so large"),
        ({"conclave.io/gpu-milli": "5000"}, "add a node with 5000 conclave.io/gpu-milli: none here has any"),
    ],
)
def test_what_no_node_can_hold_is_told_with_the_node_to_add(requests: dict[str, str], text: str) -> None:
    found = helps(cluster([make_node("n")]), make_pod().request(**requests))
    assert text in [one.text for one in found]
    assert "free" not in {one.kind for one in found}


def test_a_smaller_request_is_told_once_and_of_a_node_that_has_so_much() -> None:
    """What one node has free is no advice beside another: a pod that asks for it still fits nowhere there."""
    gpu = make_node("g").allocatable(cpu="8", **{"nvidia.com/gpu": "8"})
    standing = [make_pod("a").request(cpu="1", **{"nvidia.com/gpu": "7"}).on("g"), make_pod("b").cpu("3").on("c")]
    pod = make_pod().request(cpu="2", **{"nvidia.com/gpu": "3"})
    found = groups(cluster([gpu, make_node("c"), make_node("d")], standing), pod)
    assert found["g"].change == "g is the nearest: free 2 more nvidia.com/gpu"
    assert {found[name].change for name in ("c", "d")} == {"add a node with 3 nvidia.com/gpu"}


def test_a_host_port_in_use_is_told_with_its_node_and_not_with_rules_of_other_nodes() -> None:
    state = cluster([make_node("n"), make_node("t").taint("gpu", "NoSchedule")], [make_pod("a").port(9100).on("n")])
    texts = [one.text for one in helps(state, make_pod().port(9100))]
    assert "free host port TCP 9100 on n, or ask for another one" in texts


def test_a_share_of_devices_that_is_advised_is_a_valid_one() -> None:
    node = make_node("n").allocatable(cpu="8", **{"conclave.io/gpu-milli": "4000"})
    state = cluster([node], [make_pod("a").request(**{"conclave.io/gpu-milli": "700"}).on("n")])
    found = groups(state, make_pod().request(**{"conclave.io/gpu-milli": "5000"}))
    assert "3300" not in found["n"].change


def test_room_that_is_held_for_others_is_waited_for() -> None:
    state = cluster([make_node("n")])
    first = make_pod("first").cpu("4").priority(9)
    first.json["status"]["nominatedNodeName"] = "n"
    state.nominate(first.pod())
    (group,) = explain_nodes(state, FeasibilityCache(state.table), make_pod().cpu("1").pod()).groups
    assert group.change == "wait: what is free on n is held for pods that are nominated to it"


@pytest.mark.parametrize(
    ("near", "change"),
    [(True, "start the pod that it must be near"), (False, "move the pods that it must not be near")],
)
def test_affinity_and_anti_affinity_get_advice_of_their_own(near: bool, change: str) -> None:
    term = {"labelSelector": {"matchLabels": {"app": "nobody" if near else "x"}}, "topologyKey": HOST}
    kind = "podAffinity" if near else "podAntiAffinity"
    pod = spec(make_pod(), affinity={kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
    state = cluster([make_node("n").label(**{HOST: "n"})], [make_pod("a").set(labels={"app": "x"}).on("n")])
    (group,) = explain_nodes(state, FeasibilityCache(state.table), pod.pod()).groups
    assert group.change.startswith(change)
