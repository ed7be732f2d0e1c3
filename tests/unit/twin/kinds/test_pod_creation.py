"""What the server makes of a new pod."""

from __future__ import annotations

from typing import Any

import pytest

from twin.registry.status import ApiError

NOT_READY = {
    "key": "node.kubernetes.io/not-ready",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 300,
}
UNREACHABLE = {**NOT_READY, "key": "node.kubernetes.io/unreachable"}


def test_a_minimal_pod_is_filled_in(cluster: Any, make_pod: Any) -> None:
    pod = cluster.create("pods", make_pod())
    assert pod["spec"] == {
        "containers": [
            {
                "name": "c",
                "image": "registry.k8s.io/pause:3.10",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent",
            }
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "tolerations": [NOT_READY, UNREACHABLE],
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert pod["metadata"]["generation"] == 1


def test_a_given_status_is_dropped(cluster: Any, make_pod: Any) -> None:
    pod = cluster.create("pods", {**make_pod(), "status": {"phase": "Running", "nominatedNodeName": "n"}})
    assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


@pytest.mark.parametrize(
    ("resources", "qos"),
    [
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}, "Burstable"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"example.com/gpu": "1"}}, "BestEffort"),
        ({}, "BestEffort"),
    ],
)
def test_the_qos_class_follows_cpu_and_memory(cluster: Any, make_pod: Any, resources: dict[str, Any], qos: str) -> None:
    assert cluster.create("pods", make_pod(container={"resources": resources}))["status"]["qosClass"] == qos


def test_a_limit_without_a_request_becomes_the_request(cluster: Any, make_pod: Any) -> None:
    resources = {"limits": {"cpu": "2000m", "memory": "1Gi"}, "requests": {"cpu": "500m"}}
    container = cluster.create("pods", make_pod(container={"resources": resources}))["spec"]["containers"][0]
    assert container["resources"]["requests"] == {"cpu": "500m", "memory": "1Gi"}
    assert container["resources"]["limits"]["cpu"] == "2"


def test_host_network_ports_are_host_ports(cluster: Any, make_pod: Any) -> None:
    pod = cluster.create("pods", make_pod(container={"ports": [{"containerPort": 80}]}, hostNetwork=True))
    assert pod["spec"]["containers"][0]["ports"] == [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]


def test_a_negative_grace_period_is_one_second(cluster: Any, make_pod: Any) -> None:
    pod = cluster.create("pods", make_pod(terminationGracePeriodSeconds=-5))
    assert pod["spec"]["terminationGracePeriodSeconds"] == 1
    assert cluster.warnings == []


def test_gates_are_shown_as_a_condition(cluster: Any, make_pod: Any) -> None:
    pod = cluster.create("pods", make_pod(schedulingGates=[{"name": "example.com/hold"}]))
    (condition,) = pod["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "SchedulingGated")


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ([], [NOT_READY, UNREACHABLE]),
        ([{"operator": "Exists"}], []),
        ([{"key": "node.kubernetes.io/unreachable", "operator": "Exists"}], [NOT_READY]),
        ([{**NOT_READY, "tolerationSeconds": 5}], [UNREACHABLE]),
        ([{**NOT_READY, "effect": "NoSchedule", "tolerationSeconds": None}], [NOT_READY, UNREACHABLE]),
    ],
)
def test_default_tolerations_are_added_unless_covered(
    cluster: Any, make_pod: Any, given: list[dict[str, Any]], added: list[dict[str, Any]]
) -> None:
    pod = cluster.create("pods", make_pod(tolerations=given))
    assert pod["spec"].get("tolerations", [])[len(given) :] == added


def test_the_priority_class_gives_priority_and_policy(cluster: Any, make_pod: Any) -> None:
    cluster.create(
        "priorityclasses.scheduling.k8s.io", {"metadata": {"name": "high"}, "value": 7, "preemptionPolicy": "Never"}
    )
    spec = cluster.create("pods", make_pod(priorityClassName="high"))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (7, "Never")
    spec = cluster.create("pods", make_pod("s", priorityClassName="system-node-critical"))["spec"]
    assert spec["priority"] == 2000001000


def test_the_lowest_global_default_names_itself(cluster: Any, make_pod: Any) -> None:
    resource = "priorityclasses.scheduling.k8s.io"
    cluster.create(resource, {"metadata": {"name": "usual"}, "value": 3, "globalDefault": True})
    assert cluster.create("pods", make_pod())["spec"]["priorityClassName"] == "usual"
    with pytest.raises(ApiError, match="Only one default can exist"):
        cluster.create(resource, {"metadata": {"name": "second"}, "value": 1, "globalDefault": True})


@pytest.mark.parametrize(
    "spec", [{"priorityClassName": "none"}, {"priority": 5}, {"preemptionPolicy": "Never"}], ids=str
)
def test_priorities_that_disagree_are_forbidden(cluster: Any, make_pod: Any, spec: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as caught:
        cluster.create("pods", make_pod(**spec))
    assert (caught.value.code, caught.value.reason) == (403, "Forbidden")


def test_a_runtime_class_adds_overhead_selector_and_tolerations(cluster: Any, make_pod: Any) -> None:
    toleration = {"key": "rt", "operator": "Exists", "effect": "NoSchedule"}
    scheduling = {"nodeSelector": {"rt": "k"}, "tolerations": [toleration]}
    overhead = {"podFixed": {"cpu": "250m"}}
    resource = "runtimeclasses.node.k8s.io"
    cluster.create(
        resource, {"metadata": {"name": "rc"}, "handler": "h", "overhead": overhead, "scheduling": scheduling}
    )
    spec = cluster.create("pods", make_pod(runtimeClassName="rc"))["spec"]
    assert (spec["overhead"], spec["nodeSelector"]) == ({"cpu": "250m"}, {"rt": "k"})
    assert spec["tolerations"][-1] == toleration
    with pytest.raises(ApiError, match="without corresponding RuntimeClass"):
        cluster.create("pods", make_pod("b", overhead={"cpu": "1"}))


def test_a_limit_range_fills_in_and_refuses(cluster: Any, make_pod: Any) -> None:
    item = {"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "250m"}, "max": {"cpu": "2"}}
    cluster.create("limitranges", {"metadata": {"name": "l"}, "spec": {"limits": [item]}})
    pod = cluster.create("pods", make_pod())
    assert pod["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "1"}, "requests": {"cpu": "250m"}}
    assert pod["metadata"]["annotations"] == {
        "kubernetes.io/limit-ranger": "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
    }
    with pytest.raises(ApiError, match="maximum cpu usage per Container is 2, but limit is 3"):
        cluster.create("pods", make_pod("b", container={"resources": {"limits": {"cpu": "3"}}}))


def test_match_label_keys_become_selector_requirements(cluster: Any, make_pod: Any) -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "z",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {},
        "matchLabelKeys": ["rev"],
    }
    pod = cluster.create("pods", make_pod(meta={"labels": {"rev": "1"}}, topologySpreadConstraints=[constraint]))
    selector = pod["spec"]["topologySpreadConstraints"][0]["labelSelector"]
    assert selector == {"matchExpressions": [{"key": "rev", "operator": "In", "values": ["1"]}]}


@pytest.mark.parametrize(
    ("spec", "warning"),
    [
        ({"nodeSelector": {"beta.kubernetes.io/os": "linux"}}, "spec.nodeSelector[beta.kubernetes.io/os]: deprecated"),
        ({"volumes": [{"name": "g", "gitRepo": {"repository": "x"}}]}, "spec.volumes[0].gitRepo: deprecated in v1.11"),
        ({"container": {"resources": {"requests": {"memory": "100m"}}}}, "fractional byte value"),
        (
            {"container": {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}},
            "hides previous definition",
        ),
        ({"container": {"ports": [{"containerPort": 80}, {"containerPort": 80}]}}, "duplicate port definition"),
        ({"name": "a.b"}, "a DNS label is recommended: [must not contain dots]"),
    ],
    ids=lambda v: "" if isinstance(v, dict) else v[:30],
)
def test_doubtful_pods_are_warned_of(cluster: Any, make_pod: Any, spec: dict[str, Any], warning: str) -> None:
    cluster.create("pods", make_pod(**spec))
    assert any(warning in text for text in cluster.warnings)
