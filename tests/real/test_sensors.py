"""The component ``sensors`` on a real control plane: its pods are admitted, and its rights are what is said of them.

The DaemonSet's own controller makes the pods, under the standard `restricted`; a real API server decides what the
leader may patch, and what another apply leaves as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.manifests.rendering import NAMESPACE, folder_of
from tests.real.conftest import RunningPlane, plane_of
from tests.real.plane import missing

BUILD = "partition-agents"
NODES = 2
LEADER = f"system:serviceaccount:{NAMESPACE}:conclave-coordinator"
SENSOR = f"system:serviceaccount:{NAMESPACE}:conclave-sensor"
WAYS = [{"ports": [{"port": 443, "protocol": "TCP"}], "to": [{"ipBlock": {"cidr": "192.0.2.7/32"}}]}]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPlane]:
    """With the overlay applied."""
    if reason := missing():
        pytest.skip(f"no real control plane: {reason}")
    with plane_of(tmp_path_factory.mktemp("plane"), "--nodes", str(NODES)) as found:
        found.kubectl("apply", "-k", str(folder_of(BUILD)))
        yield found


def test_every_node_gets_a_sensor_under_pod_security_restricted(plane: RunningPlane) -> None:
    created = f"jsonpath={{.status.currentNumberScheduled}}={NODES}"
    plane.kubectl("wait", "-n", NAMESPACE, f"--for={created}", "daemonset/conclave-sensor", "--timeout=90s")
    selector = ("-l", "app.kubernetes.io/name=conclave-sensor")
    assert len(plane.get("pods", "-n", NAMESPACE, *selector)["items"]) == NODES
    (enforced,) = [
        one["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for one in plane.get("namespaces")["items"]
        if one["metadata"]["name"] == NAMESPACE
    ]
    assert enforced == "restricted"


def may_patch(plane: RunningPlane, name: str, account: str) -> bool:
    """What the API server says to the right of it."""
    review = {
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": account,
            "resourceAttributes": {
                "group": "networking.k8s.io", "resource": "networkpolicies", "verb": "patch", "name": name,
                "namespace": NAMESPACE,
            },
        },
    }  # fmt: skip
    told = json.loads(plane.kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(review)))
    return bool(told["status"]["allowed"])


def test_the_leader_may_change_one_policy_and_another_apply_leaves_it_as_it_is(plane: RunningPlane) -> None:
    assert may_patch(plane, "sensor-targets", LEADER)
    assert not may_patch(plane, "default-deny", LEADER)
    assert not may_patch(plane, "sensor-targets", SENSOR)
    ways = json.dumps({"spec": {"egress": WAYS}})
    plane.kubectl("patch", "networkpolicy", "sensor-targets", "-n", NAMESPACE, "--type=merge", "-p", ways)
    plane.kubectl("apply", "-k", str(folder_of(BUILD)))
    assert plane.get("networkpolicy/sensor-targets", "-n", NAMESPACE)["spec"]["egress"] == WAYS
