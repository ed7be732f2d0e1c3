"""Invalid pods are refused with the server's fields and reasons, in its order."""

from __future__ import annotations

from typing import Any

import pytest

from twin.registry.status import ApiError

REQUIRED_TERMS = "requiredDuringSchedulingIgnoredDuringExecution"
NODE_TERMS = f"spec.affinity.nodeAffinity.{REQUIRED_TERMS}.nodeSelectorTerms"


def node_affinity(*expressions: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {REQUIRED_TERMS: {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}}}


def spread(**fields: Any) -> list[dict[str, Any]]:
    return [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}, **fields}]


CASES: list[tuple[dict[str, Any], list[tuple[str, str]]]] = [
    ({"containers": []}, [("spec.containers", "Required")]),
    ({"container": {"image": ""}}, [("spec.containers[0].image", "Required")]),
    ({"container": {"name": "A"}}, [("spec.containers[0].name", "Invalid")]),
    ({"container": {"image": " x"}}, [("spec.containers[0].image", "Invalid")]),
    ({"restartPolicy": "No"}, [("spec.restartPolicy", "NotSupported")]),
    ({"dnsPolicy": "Odd"}, [("spec.dnsPolicy", "NotSupported")]),
    ({"dnsPolicy": "None"}, [("spec.dnsConfig", "Required")]),
    ({"nodeName": "Bad Name"}, [("spec.nodeName", "Invalid")]),
    ({"activeDeadlineSeconds": 0}, [("spec.activeDeadlineSeconds", "Invalid")]),
    ({"hostname": "a.b"}, [("spec.hostname", "Invalid")]),
    ({"nodeSelector": {"a b": "c"}}, [("spec.nodeSelector", "Invalid")]),
    ({"schedulingGates": [{"name": "x"}, {"name": "x"}]}, [("spec.schedulingGates[1]", "Duplicate")]),
    ({"schedulingGates": [{"name": "x"}], "nodeName": "n"}, [("spec.nodeName", "Forbidden")]),
    ({"ephemeralContainers": [{"name": "e", "image": "i"}]}, [("spec.ephemeralContainers", "Forbidden")]),
    ({"tolerations": [{"key": "x", "operator": "Near"}]}, [("spec.tolerations[0].operator", "NotSupported")]),
    ({"tolerations": [{"key": "x", "effect": "Odd"}]}, [("spec.tolerations[0].effect", "NotSupported")]),
    (
        {"tolerations": [{"key": "x", "effect": "NoSchedule", "tolerationSeconds": 1}]},
        [("spec.tolerations[0].effect", "Invalid")],
    ),
    (
        {"affinity": node_affinity({"key": "k", "operator": "In"})},
        [(f"{NODE_TERMS}[0].matchExpressions[0].values", "Required")],
    ),
    (
        {"affinity": node_affinity({"key": "k", "operator": "Exists", "values": ["v"]})},
        [(f"{NODE_TERMS}[0].matchExpressions[0].values", "Forbidden")],
    ),
    (
        {"affinity": node_affinity({"key": "k", "operator": "Gt", "values": ["1", "2"]})},
        [(f"{NODE_TERMS}[0].matchExpressions[0].values", "Required")],
    ),
    (
        {"affinity": node_affinity({"key": "k", "operator": "~"})},
        [(f"{NODE_TERMS}[0].matchExpressions[0].operator", "Invalid")],
    ),
    ({"topologySpreadConstraints": spread(maxSkew=0)}, [("spec.topologySpreadConstraints[0].maxSkew", "Invalid")]),
    (
        {"topologySpreadConstraints": spread(nodeTaintsPolicy="X")},
        [("spec.topologySpreadConstraints[0].nodeTaintsPolicy", "NotSupported")],
    ),
    (
        {"topologySpreadConstraints": spread() + spread()},
        [("spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}", "Duplicate")],
    ),
    (
        {"container": {"resources": {"requests": {"cpu": "-1"}}}},
        [("spec.containers[0].resources.requests[cpu]", "Invalid")],
    ),
    (
        {"container": {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}},
        [("spec.containers[0].resources.requests", "Invalid")],
    ),
    (
        {"container": {"resources": {"requests": {"example.com/gpu": "1"}}}},
        [("spec.containers[0].resources.limits", "Required")],
    ),
    (
        {"container": {"resources": {"limits": {"example.com/gpu": "1"}, "requests": {"example.com/gpu": "2"}}}},
        [("spec.containers[0].resources.requests", "Invalid")],
    ),
    (
        {"container": {"resources": {"requests": {"hugepages-2Mi": "4Mi"}, "limits": {"hugepages-2Mi": "4Mi"}}}},
        [("spec.containers[0].resources", "Forbidden")],
    ),
    ({"container": {"ports": [{"containerPort": 0}]}}, [("spec.containers[0].ports[0].containerPort", "Required")]),
    ({"container": {"ports": [{"containerPort": 70000}]}}, [("spec.containers[0].ports[0].containerPort", "Invalid")]),
    (
        {"container": {"ports": [{"containerPort": 1, "name": "Odd_Name"}]}},
        [("spec.containers[0].ports[0].name", "Invalid")],
    ),
    (
        {"container": {"ports": [{"containerPort": 1, "hostPort": 9}, {"containerPort": 2, "hostPort": 9}]}},
        [("spec.containers[0].ports[1].hostPort", "Duplicate")],
    ),
    ({"container": {"env": [{"name": ""}]}}, [("spec.containers[0].env[0].name", "Required")]),
    ({"container": {"env": [{"name": "a", "valueFrom": {}}]}}, [("spec.containers[0].env[0].valueFrom", "Invalid")]),
    (
        {"container": {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}},
        [("spec.containers[0].volumeMounts[0].name", "NotFound")],
    ),
    ({"container": {"livenessProbe": {}}}, [("spec.containers[0].livenessProbe", "Required")]),
    (
        {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]},
        [("spec.volumes[1].name", "Duplicate")],
    ),
    (
        {"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]},
        [("spec.volumes[0].hostPath", "Forbidden")],
    ),
    ({"volumes": [{"name": "v", "secret": {}}]}, [("spec.volumes[0].secret.secretName", "Required")]),
    ({"initContainers": [{"name": "c", "image": "i"}]}, [("spec.initContainers[0].name", "Duplicate")]),
    (
        {"initContainers": [{"name": "i", "image": "i", "lifecycle": {}}]},
        [("spec.initContainers[0].lifecycle", "Forbidden")],
    ),
    (
        {"resources": {"requests": {"cpu": "1"}}, "container": {"resources": {"requests": {"cpu": "2"}}}},
        [("spec.resources.requests[cpu]", "Invalid")],
    ),
]


@pytest.mark.parametrize(
    ("spec", "expected"), CASES, ids=[case[1][0][0] + "-" + str(i) for i, case in enumerate(CASES)]
)
def test_each_rule_names_its_field_and_reason(
    cluster: Any, make_pod: Any, causes: Any, spec: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    with pytest.raises(ApiError) as caught:
        cluster.create("pods", make_pod(**spec))
    assert causes(caught.value) == expected
    assert cluster.get("pods", "a") is None


def test_causes_of_several_rules_come_in_order(cluster: Any, causes: Any) -> None:
    containers = [{"name": "c", "image": ""}, {}]
    with pytest.raises(ApiError) as caught:
        cluster.create("pods", {"metadata": {"name": "a"}, "spec": {"containers": containers, "restartPolicy": "No"}})
    assert causes(caught.value) == [
        ("spec.containers[0].image", "Required"),
        ("spec.containers[1].name", "Required"),
        ("spec.containers[1].image", "Required"),
        ("spec.restartPolicy", "NotSupported"),
    ]


def test_the_message_is_the_servers(cluster: Any, make_pod: Any) -> None:
    with pytest.raises(ApiError) as caught:
        cluster.create("pods", make_pod(restartPolicy="Sometimes"))
    assert caught.value.body["message"] == (
        'Pod "a" is invalid: spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", '
        '"OnFailure", "Never"'
    )
