"""Requests, quantities and devices as the audit computes them, independently of the scheduler."""

from __future__ import annotations

import pytest

from lab.audit.rules import (
    amount,
    beyond_us,
    features_needed,
    named_devices,
    node_facts,
    pod_facts,
    pod_requests,
    ports_clash,
    refusal,
)


@pytest.mark.parametrize(
    ("resource", "text", "value"),
    [
        ("cpu", "1", 1000), ("cpu", "100m", 100), ("cpu", "0.1", 100), ("cpu", "1e3", 1_000_000), ("cpu", "1n", 1),
        ("memory", "64Mi", 64 << 20), ("memory", "1.5Gi", 3 << 29), ("memory", "8G", 8 * 10**9),
        ("memory", "1E", 10**18),
        ("memory", "12e6", 12 * 10**6), ("memory", "100m", 1), ("pods", "110", 110), ("memory", "2Ei", 2 << 60),
    ],
)  # fmt: skip
def test_quantities_are_exact(resource, text, value):
    assert amount(resource, text) == value


@pytest.mark.parametrize("text", ["", "a lot", "1/2", "1 Gi", "Gi", "1KiB", "1_000", "0x1"])
def test_what_is_no_quantity_is_refused(text):
    with pytest.raises(ValueError):
        amount("memory", text)


def container(cpu: str, **more: object) -> dict[str, object]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [container("100m"), container("200m")]}, 300),
        ({"containers": [container("100m")], "initContainers": [container("250m"), container("200m")]}, 250),
        ({"containers": [container("300m")], "initContainers": [container("250m")]}, 300),
        ({"containers": [container("100m")], "initContainers": [container("50m", restartPolicy="Always")]}, 150),
        (
            {
                "containers": [container("100m")],
                "initContainers": [container("50m", restartPolicy="Always"), container("200m")],
            },
            250,
        ),
        ({"containers": [container("100m")], "overhead": {"cpu": "10m"}}, 110),
        (
            {"containers": [container("100m")], "resources": {"requests": {"cpu": "500m"}}, "overhead": {"cpu": "1m"}},
            501,
        ),
    ],
)
def test_requests_follow_the_rule_of_kubernetes(spec, cpu):
    assert pod_requests(spec) == {"cpu": cpu}


def test_ports_clash_by_protocol_address_and_number():
    assert ports_clash([("TCP", "0.0.0.0", 80)], [("TCP", "10.0.0.1", 80)])
    assert not ports_clash([("TCP", "10.0.0.2", 80)], [("TCP", "10.0.0.1", 80)])
    assert not ports_clash([("UDP", "0.0.0.0", 80)], [("TCP", "0.0.0.0", 80)])


def test_devices_are_different_indices():
    assert named_devices(None) is None
    assert named_devices("2,5") == (2, 5)
    for bad in ("", "1,1", "-1", "x", "1, 2"):
        with pytest.raises(ValueError):
            named_devices(bad)


def test_a_node_must_declare_the_features_that_a_pod_needs() -> None:
    restarts = {"containers": [{"restartPolicyRules": [{"action": "RestartAllContainers"}]}]}
    own_users = {"hostNetwork": True, "hostUsers": False}
    both = ["RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport"]
    assert features_needed({**restarts, **own_users}) == both
    assert features_needed({"hostNetwork": True, "containers": [{"restartPolicyRules": [{"action": "Restart"}]}]}) == []
    pod = pod_facts({"spec": restarts})
    assert refusal(pod, node_facts({"metadata": {"name": "n"}})) == f"it does not declare {both[0]}"
    assert not refusal(pod, node_facts({"metadata": {"name": "n"}, "status": {"declaredFeatures": both}}))


def test_what_is_not_ours_to_decide_is_named() -> None:
    assert beyond_us({"schedulingGroup": {}}) == "schedulingGroup"
    assert beyond_us({"containers": [{"resources": {"requests": {"cpu": "1"}}}]}) == ""
