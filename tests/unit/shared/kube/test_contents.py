"""Which writes change what anything is made of: the rule, against what the conversion makes of every field it reads."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from shared.kube import objects as api
from shared.kube.contents import node_content, pod_content
from shared.kube.pods.convert import node_from_api, pod_class_of, pod_from_api
from shared.kube.pods.convert_asks import extended_asks
from shared.kube.pods.convert_relations import images_of, node_images
from tests.builders import make_node, make_pod

Json = dict[str, Any]


def of(*path: str | int, value: Any) -> Callable[[Json], None]:
    """A change of one field."""

    def change(found: Any) -> None:
        for step in path[:-1]:
            found = found.setdefault(step, {}) if isinstance(found, dict) else found[step]
        if value is None:
            found.pop(path[-1], None)
        else:
            found[path[-1]] = value

    return change


def condition(type_: str, status: str, reason: str = "") -> Json:
    return {"type": type_, "status": status, "reason": reason, "lastTransitionTime": "2026-01-01T00:00:00Z"}


def standing() -> Json:
    pod = make_pod("a").cpu("1").memory("1Gi").on("n1").phase("Running").set(labels={"app": "a"}, annotations={}).json
    pod["status"] |= {
        "conditions": [condition("PodScheduled", "True"), condition("Ready", "True")],
        "startTime": "2026-01-01T00:00:00Z",
        "containerStatuses": [{"name": "c", "ready": True, "restartCount": 0}],
    }
    return pod


READ = {
    "labels": of("metadata", "labels", value={"app": "b"}),
    "annotations": of("metadata", "annotations", value={"conclave.io/preemptible": "false"}),
    "latency": of("metadata", "annotations", value={"latencyHardConstraint": "7"}),
    "owner": of("metadata", "ownerReferences", value=[{"kind": "Job", "name": "j", "controller": True}]),
    "terminating": of("metadata", "deletionTimestamp", value="2026-01-01T00:00:00Z"),
    "requests": of("spec", "containers", 0, "resources", value={"requests": {"cpu": "2"}}),
    "port": of("spec", "containers", 0, "ports", value=[{"containerPort": 1, "hostPort": 1}]),
    "restart-rule": of("spec", "containers", 0, "restartPolicyRules", value=[{"action": "RestartAllContainers"}]),
    "init": of("spec", "initContainers", value=[{"name": "i", "resources": {"requests": {"cpu": "9"}}}]),
    "overhead": of("spec", "overhead", value={"cpu": "1"}),
    "pod-level": of("spec", "resources", value={"requests": {"cpu": "3"}}),
    "selector": of("spec", "nodeSelector", value={"disk": "ssd"}),
    "tolerations": of("spec", "tolerations", value=[{"key": "k", "operator": "Exists"}]),
    "node-affinity": of("spec", "affinity", "nodeAffinity", value={
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}
    }),
    "anti-affinity": of("spec", "affinity", "podAntiAffinity", value={
        "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]
    }),
    "priority": of("spec", "priority", value=7),
    "never-preempts": of("spec", "preemptionPolicy", value="Never"),
    "volumes": of("spec", "volumes", value=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]),
    "group": of("spec", "schedulingGroup", value={"podGroupName": "g"}),
    "phase": of("status", "phase", value="Succeeded"),
    "start": of("status", "startTime", value="2026-01-01T00:00:01Z"),
    "nominated": of("status", "nominatedNodeName", value="n2"),
    "scheduled": of("status", "conditions", 0, "reason", value="Again"),
    "victim": of("status", "conditions", 1, value=condition("DisruptionTarget", "True", "PreemptionByScheduler")),
    "resized": of("status", "containerStatuses", 0, "resources", value={"requests": {"cpu": "4"}}),
}  # fmt: skip
"""Everything of a pod on a node that changes its model."""

UNREAD = {
    "revision": of("metadata", "resourceVersion", value="2"),
    "managed": of("metadata", "managedFields", value=[{"manager": "kubelet"}]),
    "ready": of("status", "conditions", 1, "status", value="False"),
    "restarts": of("status", "containerStatuses", 0, "restartCount", value=3),
    "address": of("status", "podIP", value="10.0.0.1"),
    "environment": of("spec", "containers", 0, "env", value=[{"name": "A", "value": "1"}]),
}


def changed(base: Json, change: Callable[[Json], None]) -> Json:
    found = copy.deepcopy(base)
    change(found)
    return found


def pod_of(found: Json) -> api.KubePod:
    return msgspec.convert(found, api.KubePod)


def model_of(found: Json) -> Any:
    return msgspec.structs.replace(pod_from_api(pod_of(found)), resource_version="")


@pytest.mark.parametrize("change", READ.values(), ids=READ)
def test_a_change_of_the_model_is_a_change_of_the_content(change: Callable[[Json], None]) -> None:
    before, after = standing(), changed(standing(), change)
    assert model_of(before) != model_of(after), "nothing is made of this field: it belongs to those that are not read"
    assert pod_content(pod_of(before)) != pod_content(pod_of(after))


@pytest.mark.parametrize("change", UNREAD.values(), ids=UNREAD)
def test_a_change_that_nothing_is_made_of_is_none(change: Callable[[Json], None]) -> None:
    before, after = standing(), changed(standing(), change)
    assert model_of(before) == model_of(after)
    assert pod_content(pod_of(before)) == pod_content(pod_of(after))


def test_a_pod_on_no_node_has_no_content_since_a_binding_names_its_newest_revision() -> None:
    assert pod_content(make_pod("a").cpu("1").api()) is None


TEMPLATE = {
    "image": of("spec", "containers", 0, "image", value="web:2"),
    "claims": of("spec", "resourceClaims", value=[{"name": "gpu", "resourceClaimName": "g"}]),
}
"""Read of pending pods alone."""


@pytest.mark.parametrize(
    "change", [*READ.values(), *UNREAD.values(), *TEMPLATE.values()], ids=[*READ, *UNREAD, *TEMPLATE]
)
@pytest.mark.parametrize("node", ["n1", None])
def test_pods_share_a_template_only_where_their_fields_give_the_same(
    change: Callable[[Json], None], node: str | None
) -> None:
    """What is remembered of a template must be what would be worked out, whichever pod came first."""
    base = changed(standing(), of("spec", "nodeName", value=node))
    for found in (base, changed(base, change), base):
        pod, spec = pod_from_api(pod_of(found)), pod_of(found).spec
        assert pod.pod_class == pod_class_of(pod_of(found))
        if node is None:
            assert (pod.images, pod.extended) == (images_of(spec), extended_asks(spec))


def test_every_copy_of_a_pod_that_cannot_be_read_says_why() -> None:
    bad = changed(standing(), of("spec", "containers", 0, "resources", value={"requests": {"cpu": "much"}}))
    whys = [pod_from_api(pod_of(bad)).invalid for _ in range(2)]
    assert whys[0] == whys[1]
    assert "spec.containers[0].resources.requests[cpu]" in whys[0]


def test_a_heartbeat_of_a_node_changes_nothing_and_all_that_its_model_holds_does() -> None:
    base = make_node("n").label(zone="a").json
    base["metadata"]["annotations"] = {}
    base["status"]["conditions"] = [condition("Ready", "True"), condition("DiskPressure", "False")]
    node = msgspec.convert(base, api.KubeNode)
    beats = [
        of("metadata", "resourceVersion", value="2"),
        of("status", "conditions", 0, "lastHeartbeatTime", value="2026-01-01T00:05:00Z"),
        of("status", "nodeInfo", value={"bootID": "b"}),
    ]
    for beat in beats:
        assert node_content(msgspec.convert(changed(base, beat), api.KubeNode)) == node_content(node)
    changes = [
        of("metadata", "labels", "zone", value="b"),
        of("metadata", "annotations", "conclave.io/latency-ms", value="3"),
        of("metadata", "deletionTimestamp", value="2026-01-01T00:00:00Z"),
        of("spec", "unschedulable", value=True),
        of("spec", "taints", value=[{"key": "k", "effect": "NoSchedule"}]),
        of("status", "allocatable", "cpu", value="3"),
        of("status", "conditions", 0, "status", value="False"),
        of("status", "conditions", 1, value=condition("DiskPressure", "True", "Full")),
        of("status", "declaredFeatures", value=["UserNamespacesHostNetworkSupport"]),
        of("status", "images", value=[{"names": ["i"], "sizeBytes": 1}]),
    ]  # fmt: skip
    for change in changes:
        other = msgspec.convert(changed(base, change), api.KubeNode)
        assert (node_from_api(other), node_images(other)) != (node_from_api(node), node_images(node))
        assert node_content(other) != node_content(node)
