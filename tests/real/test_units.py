"""Pods that are resized in place, and gangs that lose a member, on a real API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.real.conftest import RunningPlane, mesh_of

Json = dict[str, Any]


@pytest.fixture(scope="module", params=["0", "2"])
def agents(
    plane: RunningPlane, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[str]:
    """A mesh with so many agents."""
    with mesh_of(plane, tmp_path_factory.mktemp("mesh"), "--agents", request.param) as ready:
        yield ready


def node_names(plane: RunningPlane) -> list[str]:
    return sorted(node["metadata"]["name"] for node in plane.get("nodes")["items"])


def pod_of(name: str, cpu: str, node: str = "", **spec: Any) -> Json:
    made: Json = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "schedulerName": "conclave", "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}], **spec,
        },
    }  # fmt: skip
    if node:
        made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return made


class Bench:
    """One namespace of the plane."""

    def __init__(self, plane: RunningPlane, namespace: str) -> None:
        self.plane, self.namespace = plane, namespace

    def make(self, *objects: Json) -> None:
        for one in objects:
            self.plane.kubectl("apply", "-n", self.namespace, "-f", "-", stdin=json.dumps(one))

    def patch(self, name: str, patch: Json, subresource: str) -> None:
        self.plane.kubectl(
            "patch", "-n", self.namespace, f"pod/{name}", f"--subresource={subresource}", "-p", json.dumps(patch)
        )

    def runs(self, *names: str) -> None:
        for name in names:
            self.plane.kubectl(
                "wait", "-n", self.namespace, "--for=jsonpath={.status.phase}=Running", f"pod/{name}", "--timeout=90s"
            )

    def finds_no_room(self, name: str) -> None:
        self.plane.kubectl(
            "wait", "-n", self.namespace, "--for=condition=PodScheduled=False", f"pod/{name}", "--timeout=60s"
        )

    def has(self, name: str, cpu: str, **status: Any) -> None:
        """What a kubelet says of the pod's container."""
        shown = [
            {**one, "resources": {"requests": {"cpu": cpu}}, "allocatedResources": {"cpu": cpu}}
            for one in self.plane.get("pod", "-n", self.namespace, name)["status"]["containerStatuses"]
        ]
        self.patch(name, {"status": {"containerStatuses": shown, **status}}, "status")

    def ask(self, name: str, cpu: str) -> None:
        container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
        self.patch(name, {"spec": {"containers": [container]}}, "resize")


@pytest.fixture
def bench(plane: RunningPlane, agents: str, namespace: str) -> Bench:
    assert agents
    return Bench(plane, namespace)


def test_room_of_a_lowered_pod_is_free_when_its_node_has_given_it_back(bench: Bench) -> None:
    node = node_names(bench.plane)[0]
    bench.make(pod_of("large", "3", node))
    bench.runs("large")
    bench.has("large", "3")
    bench.ask("large", "1")
    bench.make(pod_of("next", "2", node))
    bench.finds_no_room("next")
    bench.has("large", "1")
    bench.runs("next")


def test_a_resize_that_cannot_be_closes_no_room(bench: Bench) -> None:
    """The API server itself refuses more than the node's allocatable; the kubelet has the last word on the rest."""
    node = node_names(bench.plane)[1]
    bench.make(pod_of("small", "1", node))
    bench.runs("small")
    bench.has("small", "1")
    bench.ask("small", "4")
    bench.make(pod_of("next", "3", node))
    bench.finds_no_room("next")
    said = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    bench.patch("small", {"status": {"conditions": [said]}}, "status")
    bench.runs("next")


def test_a_pod_level_resize_counts_what_the_pod_has(bench: Bench) -> None:
    node = node_names(bench.plane)[2]
    declared = {"status": {"declaredFeatures": ["InPlacePodLevelResourcesVerticalScaling"]}}
    bench.plane.kubectl("patch", "node", node, "--subresource=status", "-p", json.dumps(declared))
    bench.make(pod_of("large", "100m", node, resources={"requests": {"cpu": "3"}}))
    bench.runs("large")
    bench.has("large", "100m", resources={"requests": {"cpu": "3"}}, allocatedResources={"cpu": "3"})
    bench.patch("large", {"spec": {"resources": {"requests": {"cpu": "1"}}}}, "resize")
    bench.make(pod_of("next", "2", node))
    bench.finds_no_room("next")
    bench.has("large", "100m", resources={"requests": {"cpu": "1"}}, allocatedResources={"cpu": "1"})
    bench.runs("next")


@pytest.fixture
def gang_nodes(plane: RunningPlane) -> Iterator[list[str]]:
    """Three nodes that are labelled for a gang."""
    names = node_names(plane)[3:6]
    plane.kubectl("label", "nodes", *names, "for=gang")
    yield names
    plane.kubectl("uncordon", *names)
    plane.kubectl("label", "nodes", *names, "for-")


GANG = {
    "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": "g"},
    "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}},
}  # fmt: skip


def member(name: str, **spec: Any) -> Json:
    return pod_of(
        name, "3", nodeSelector={"for": "gang"}, schedulingGroup={"podGroupName": "g"}, restartPolicy="Never", **spec
    )


@pytest.mark.parametrize("priority", [1000, 0], ids=["lower", "equal"])
def test_a_gang_gets_back_the_place_of_a_member_that_was_drained(
    bench: Bench, gang_nodes: list[str], priority: int
) -> None:
    """The filler waits for longer, and comes first by that alone."""
    plane, high = bench.plane, f"p-{bench.namespace}"
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": high}}
    bench.make({**kind, "value": priority}, GANG, *(member(f"g{i}", priorityClassName=high) for i in range(3)))
    bench.runs("g0", "g1", "g2")
    bench.make(pod_of("filler", "3", nodeSelector={"for": "gang"}))
    bench.finds_no_room("filler")
    node = plane.get("pod", "-n", bench.namespace, "g0")["spec"]["nodeName"]
    assert node in gang_nodes
    plane.kubectl("drain", node, "--ignore-daemonsets", "--force", "--pod-selector=", "--timeout=60s")
    bench.make(member("again", priorityClassName=high))
    bench.finds_no_room("again")
    plane.kubectl("uncordon", node)
    bench.runs("again")
    plane.kubectl("delete", "priorityclass", high)


def test_a_member_is_made_anew_beside_members_that_have_ended(bench: Bench, gang_nodes: list[str]) -> None:
    assert gang_nodes
    bench.make(GANG, *(member(f"g{i}") for i in range(3)))
    bench.runs("g0", "g1", "g2")
    for name, phase in (("g0", "Succeeded"), ("g1", "Succeeded"), ("g2", "Failed")):
        bench.patch(name, {"status": {"phase": phase}}, "status")
    bench.make(member("again"))
    bench.runs("again")
