"""NodeDeclaredFeatures: what a pod needs, what a node declares, and who speaks first."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from shared.kube import objects as api
from shared.kube.pods.convert import node_from_api, pod_from_api
from shared.model.features import HOST_USERS, RESTART_ALL
from shared.model.node import Node
from shared.scheduling.cycle.conflicts import check_placement
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.filtering import diagnose, rejection_of, run_filters
from shared.scheduling.cycle.prefilter import prefilter
from shared.scheduling.state.cluster_state import ClusterState
from tests.builders import PodBuilder, make_node, make_pod

REASON = "node(s) didn't match Pod's required features"


def declaring(name: str, *features: str, **labels: str) -> Node:
    builder = make_node(name).label(**labels)
    builder.json["status"]["declaredFeatures"] = list(features)
    return node_from_api(msgspec.convert(builder.json, api.KubeNode))


def restarting(name: str = "p", where: str = "containers", action: str = "RestartAllContainers") -> PodBuilder:
    pod = make_pod(name).cpu("100m")
    rule = {"action": action, "exitCodes": {"operator": "In", "values": [42]}}
    pod.json["spec"].setdefault(where, [{"name": "i", "image": "i"}])[0]["restartPolicyRules"] = [rule]
    return pod


def host_users(*, network: bool | None, users: bool | None) -> PodBuilder:
    pod = make_pod("p")
    pod.json["spec"] |= {"hostNetwork": network, "hostUsers": users}
    return pod


@pytest.mark.parametrize(
    ("pod", "needed"),
    [
        pytest.param(restarting(), (RESTART_ALL,), id="rule of a container"),
        pytest.param(restarting(where="initContainers"), (RESTART_ALL,), id="rule of an init container"),
        pytest.param(restarting(action="Restart"), (), id="restarts itself alone"),
        pytest.param(host_users(network=True, users=False), (HOST_USERS,), id="host network, own users"),
        pytest.param(host_users(network=True, users=None), (), id="host users by default"),
        pytest.param(host_users(network=None, users=False), (), id="own network"),
        pytest.param(make_pod(), (), id="plain"),
    ],
)
def test_features_are_deduced_from_the_spec(pod: PodBuilder, needed: tuple[str, ...]) -> None:
    assert pod.pod().pod_class.features == needed


def test_what_decides_about_no_pod_is_not_kept_of_a_node() -> None:
    assert declaring("n", "SomethingNew", RESTART_ALL, RESTART_ALL).features == (RESTART_ALL,)
    assert make_node("n").node().features == ()


def test_a_node_must_declare_all_of_them_and_its_change_is_seen_at_once() -> None:
    state = ClusterState()
    for node in (declaring("none"), declaring("one", RESTART_ALL), declaring("both", HOST_USERS, RESTART_ALL)):
        state.upsert_node(node)
    builder = restarting()
    builder.json["spec"] |= {"hostNetwork": True, "hostUsers": False}
    pod_class = builder.pod().pod_class
    feasibility = FeasibilityCache(state.table)

    def passing() -> list[str]:
        return [state.table.names[row] for row in np.flatnonzero(feasibility.of(pod_class).mask)]

    assert passing() == ["both"]
    rejection = check_placement(feasibility, pod_class, "one")
    assert rejection is not None
    assert (rejection.plugin, rejection.code.value, rejection.reasons) == (
        "NodeDeclaredFeatures", "UnschedulableAndUnresolvable", (REASON,),
    )  # fmt: skip
    state.upsert_node(declaring("none", HOST_USERS, RESTART_ALL))
    state.upsert_node(declaring("both"))
    assert passing() == ["none"]


def test_any_other_rule_speaks_before_features_do() -> None:
    """kube-scheduler runs NodeDeclaredFeatures last, after the rules about other pods too."""
    state = ClusterState()
    for name in ("a", "b"):
        state.upsert_node(declaring(name, zone=name))
    state.observe(make_pod("web").set(labels={"app": "web"}).on("a").pod())
    builder = restarting()
    builder.json["spec"]["affinity"] = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
            ]
        }
    }
    feasibility = FeasibilityCache(state.table)
    prepared = prefilter(state, builder.pod())
    filtered = run_filters(state, feasibility, prepared)
    found = {name: rejection_of(feasibility, prepared, filtered, state.table.row_of[name]) for name in ("a", "b")}
    plugins = {name: rejection[0].plugin for name, rejection in found.items() if rejection is not None}
    assert plugins == {"a": "InterPodAffinity", "b": "NodeDeclaredFeatures"}
    assert diagnose(state, feasibility, prepared).plugins == {"InterPodAffinity", "NodeDeclaredFeatures"}


def test_pods_of_one_template_share_a_class_whatever_else_their_rules_say() -> None:
    one, other = restarting("a"), restarting("b")
    other.json["spec"]["containers"][0]["restartPolicyRules"][0]["exitCodes"]["values"] = [7]
    assert pod_from_api(one.api()).pod_class == pod_from_api(other.api()).pod_class
