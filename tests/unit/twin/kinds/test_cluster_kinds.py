"""Nodes, leases, namespaces, budgets, priority classes: the rules of each."""

from __future__ import annotations

from typing import Any

import pytest

from twin.registry.status import ApiError

Json = dict[str, Any]
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
PRIORITIES = "priorityclasses.scheduling.k8s.io"
LEASES = "leases.coordination.k8s.io"


def test_a_new_node_is_tainted_once_and_keeps_its_status(cluster: Any) -> None:
    status = {"capacity": {"cpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]}
    node = cluster.create("nodes", {"metadata": {"name": "n"}, "status": status})
    assert node["spec"] == {"taints": [NOT_READY]}
    assert (node["status"]["capacity"], node["status"]["allocatable"]) == ({"cpu": "8"}, {"cpu": "8"})
    assert "generation" not in node["metadata"]
    twin = cluster.create("nodes", {"metadata": {"name": "m"}, "spec": {"taints": [NOT_READY]}})
    assert twin["spec"]["taints"] == [NOT_READY]


def test_a_node_update_keeps_the_status_and_adds_no_taint(cluster: Any) -> None:
    cluster.create("nodes", {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "8"}}})
    node = cluster.change("nodes", "n", lambda obj: (obj["spec"].clear(), obj["status"].clear()))
    assert (node["spec"], node["status"]["capacity"]) == ({}, {"cpu": "8"})


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"taints": [{"key": "a b", "effect": "NoSchedule"}]}, "metadata.taints[0].key"),
        ({"taints": [{"key": "a", "effect": "Odd"}]}, "metadata.taints[0].effect"),
        ({"taints": [{"key": "a"}]}, "metadata.taints[0].effect"),
        ({"taints": [{"key": "a", "effect": "NoSchedule"}] * 2}, "metadata.taints[1]"),
    ],
)
def test_bad_taints_are_refused(cluster: Any, causes: Any, spec: Json, field: str) -> None:
    with pytest.raises(ApiError) as caught:
        cluster.create("nodes", {"metadata": {"name": "n"}, "spec": spec})
    assert causes(caught.value)[0][0] == field


def test_the_address_range_of_a_node_cannot_change(cluster: Any, causes: Any) -> None:
    node = cluster.create("nodes", {"metadata": {"name": "n"}, "spec": {"podCIDR": "10.1.0.0/24"}})
    assert node["spec"]["podCIDRs"] == ["10.1.0.0/24"]
    with pytest.raises(ApiError) as caught:
        cluster.change("nodes", "n", lambda obj: obj["spec"].update(podCIDR="10.2.0.0/24", podCIDRs=["10.2.0.0/24"]))
    assert causes(caught.value) == [("spec.podCIDRs", "Forbidden")]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"leaseDurationSeconds": 0}, "spec.leaseDurationSeconds"),
        ({"leaseTransitions": -1}, "spec.leaseTransitions"),
        ({"preferredHolder": "x"}, "spec.preferredHolder"),
    ],
)
def test_bad_leases_are_refused(cluster: Any, causes: Any, spec: Json, field: str) -> None:
    with pytest.raises(ApiError) as caught:
        cluster.create(LEASES, {"metadata": {"name": "l"}, "spec": spec})
    assert causes(caught.value)[0][0] == field


def test_a_lease_is_not_updated_without_a_revision(cluster: Any) -> None:
    cluster.create(LEASES, {"metadata": {"name": "l"}, "spec": {"holderIdentity": ""}})
    with pytest.raises(ApiError, match="must be specified for an update"):
        cluster.change(LEASES, "l", lambda obj: obj["metadata"].pop("resourceVersion"))


def test_a_namespace_goes_in_two_steps(cluster: Any, make_pod: Any) -> None:
    namespace = cluster.create("namespaces", {"metadata": {"name": "gone"}}, namespace="")
    assert namespace["metadata"]["labels"] == {"kubernetes.io/metadata.name": "gone"}
    assert (namespace["spec"], namespace["status"]) == ({"finalizers": ["kubernetes"]}, {"phase": "Active"})
    cluster.delete("namespaces", "gone", namespace="")
    assert cluster.get("namespaces", "gone", namespace="")["status"] == {"phase": "Terminating"}
    with pytest.raises(ApiError, match="is being terminated"):
        cluster.create("pods", make_pod(), namespace="gone")


def test_a_namespace_without_finalizers_is_gone() -> None:
    from twin.kinds.namespace import NamespaceStrategy

    strategy = NamespaceStrategy()
    terminating = {"metadata": {"name": "x", "deletionTimestamp": "t"}, "spec": {}, "status": {}}
    assert strategy.ready_to_delete(terminating)
    assert not strategy.ready_to_delete({**terminating, "spec": {"finalizers": ["kubernetes"]}})


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_system_namespaces_cannot_be_deleted(cluster: Any, name: str) -> None:
    with pytest.raises(ApiError, match="this namespace may not be deleted"):
        cluster.delete("namespaces", name, namespace="")


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"minAvailable": 1, "maxUnavailable": 1}, ["spec"]),
        ({"minAvailable": -1}, ["spec.minAvailable"]),
        ({"maxUnavailable": "x%"}, ["spec.maxUnavailable"]),
        ({"minAvailable": "101%"}, ["spec.minAvailable"]),
        ({"selector": {"matchLabels": {"a b": "c"}}}, ["spec.selector.matchLabels"]),
        ({"unhealthyPodEvictionPolicy": "Never"}, ["spec.unhealthyPodEvictionPolicy"]),
    ],
)
def test_bad_budgets_are_refused(cluster: Any, causes: Any, spec: Json, fields: list[str]) -> None:
    with pytest.raises(ApiError) as caught:
        cluster.create("poddisruptionbudgets.policy", {"metadata": {"name": "b"}, "spec": spec})
    assert [field for field, _ in causes(caught.value)] == fields


def test_system_priority_classes_exist_and_stay(cluster: Any) -> None:
    assert cluster.get(PRIORITIES, "system-node-critical")["value"] == 2000001000
    with pytest.raises(ApiError, match="system priority class and cannot be deleted"):
        cluster.delete(PRIORITIES, "system-cluster-critical")


@pytest.mark.parametrize(
    ("name", "fields", "cause"),
    [
        ("system-x", {"value": 1}, ("metadata.name", "Forbidden")),
        ("huge", {"value": 1_000_000_001}, ("value", "Forbidden")),
        ("odd", {"value": 1, "preemptionPolicy": "Maybe"}, ("preemptionPolicy", "NotSupported")),
    ],
)
def test_bad_priority_classes_are_refused(
    cluster: Any, causes: Any, name: str, fields: Json, cause: tuple[str, str]
) -> None:
    with pytest.raises(ApiError) as caught:
        cluster.create(PRIORITIES, {"metadata": {"name": name}, **fields})
    assert causes(caught.value) == [cause]


def test_a_priority_value_never_changes(cluster: Any, causes: Any) -> None:
    cluster.create(PRIORITIES, {"metadata": {"name": "p"}, "value": 1})
    with pytest.raises(ApiError) as caught:
        cluster.change(PRIORITIES, "p", lambda obj: obj.update(value=2))
    assert causes(caught.value) == [("value", "Forbidden")]
    changed = cluster.change(PRIORITIES, "p", lambda obj: obj.update(description="d"))
    assert changed["metadata"]["generation"] == 1
