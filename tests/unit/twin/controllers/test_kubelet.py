"""The twin's kubelets over a real registry: what a client sees happen to pods and nodes."""

from __future__ import annotations

import asyncio
import time
from random import Random

import pytest
import uvloop

from lab.audit.rules import Json
from lab.traces.workload import node_json, pod_json
from tests.patience import PATIENCE_S
from twin.bootstrap import make_registry
from twin.controllers.kubelet import DUE, Kubelets
from twin.controllers.kubelet_objects import FAIL_ANNOTATION, node_seen, pod_seen, usage_of, with_taints
from twin.model.usage import FOREVER, USAGE_ANNOTATION, UsageNow, UsageProfile
from twin.registry.changes import Accepted


class Cluster:
    """A registry with kubelets at a thousand times the speed of time; waits for what is to come by its changes."""

    def __init__(self) -> None:
        self.registry = make_registry(clock=time.time, rng=Random(1))
        self.kubelets = Kubelets(self.registry, speed=1000.0)
        self.changed = asyncio.Event()
        self.running: dict[str, Json] = {}
        self.registry.subscribe(self._accepted)
        self.kubelets.start()

    def _accepted(self, accepted: Accepted) -> None:
        """Keep each pod as it was when it ran: nobody has to look in the moment in which it does."""
        new = accepted.change.new
        if new is not None and new.obj.get("status", {}).get("phase") == "Running":
            self.running[new.name] = new.obj
        self.changed.set()

    def node(self, name: str = "n1", **annotations: str) -> None:
        node = node_json(name, {"cpu": "4", "memory": "8Gi", "pods": "110"}, annotations=annotations)
        self.registry.create(self.registry.context("create", "nodes", "", name), "nodes", "", node)

    def pod(self, name: str = "p", node: str = "n1", duration_s: float | None = None, exit_code: int = 0) -> None:
        usage = UsageProfile(((0, UsageNow(100)),), duration_s, exit_code).to_json()
        pod = pod_json(name, {"cpu": "100m"}, annotations={USAGE_ANNOTATION: usage})
        ctx = self.registry.context("create", "pods", "default", name)
        self.registry.create(ctx, "pods", "default", pod)
        self.change("pods", "default", name, lambda p: {**p, "spec": {**p["spec"], "nodeName": node}})

    def change(self, resource: str, namespace: str, name: str, change) -> None:
        ctx = self.registry.context("update", resource, namespace, name)
        self.registry.guaranteed_update(ctx, resource, namespace, name, change)

    def delete(self, resource: str, namespace: str, name: str) -> None:
        ctx = self.registry.context("delete", resource, namespace, name)
        self.registry.delete(ctx, resource, namespace, name, {})

    def get_pod(self, name: str = "p") -> Json | None:
        return self.registry.get("pods", "default", name)

    def get_node(self, name: str = "n1") -> Json:
        node = self.registry.get("nodes", "", name)
        assert node is not None
        return node

    async def until(self, condition) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    def phase(self, name: str = "p") -> str:
        pod = self.get_pod(name)
        return pod["status"]["phase"] if pod else "gone"

    def ready(self, name: str = "n1") -> str:
        conditions = self.get_node(name)["status"].get("conditions") or ()
        return next((c["status"] for c in conditions if c["type"] == "Ready"), "")


@pytest.fixture
async def cluster():
    cluster = Cluster()
    yield cluster
    cluster.kubelets.stop()


async def test_a_managed_node_becomes_ready_and_loses_its_taint(cluster):
    cluster.node()
    await cluster.until(lambda: cluster.ready() == "True" and not cluster.get_node()["spec"].get("taints"))
    assert cluster.get_node()["status"]["nodeInfo"]["kubeletVersion"]
    assert {c["type"] for c in cluster.get_node()["status"]["conditions"]} >= {"Ready", "MemoryPressure"}


async def test_a_bound_pod_runs_with_addresses_and_finishes(cluster):
    cluster.node()
    cluster.pod(duration_s=20)
    await cluster.until(lambda: cluster.phase() == "Succeeded")
    assert cluster.get_pod()["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    status = cluster.running["p"]["status"]
    assert status["podIP"] == status["podIPs"][0]["ip"]
    assert status["hostIP"]
    assert status["startTime"]
    assert all(c["ready"] and c["started"] for c in status["containerStatuses"])
    assert {c["type"]: c["status"] for c in status["conditions"]}["Ready"] == "True"


async def test_a_failing_pod_ends_failed(cluster):
    cluster.node()
    cluster.pod(duration_s=1, exit_code=7)
    await cluster.until(lambda: cluster.phase() == "Failed")
    assert cluster.get_pod()["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7


async def test_a_deleted_pod_is_removed_when_its_containers_have_ended(cluster):
    cluster.node()
    cluster.pod()
    await cluster.until(lambda: cluster.phase() == "Running")
    cluster.delete("pods", "default", "p")
    assert cluster.get_pod()["metadata"]["deletionTimestamp"]
    await cluster.until(lambda: cluster.get_pod() is None)


async def test_pods_of_a_deleted_node_are_garbage_collected(cluster):
    cluster.node()
    cluster.pod()
    await cluster.until(lambda: cluster.phase() == "Running")
    cluster.delete("nodes", "", "n1")
    await cluster.until(lambda: cluster.get_pod() is None)


def annotate(value: str):
    def change(node):
        meta = node["metadata"]
        return {**node, "metadata": {**meta, "annotations": {**meta["annotations"], FAIL_ANNOTATION: value}}}

    return change


async def test_a_failed_node_is_marked_its_pods_are_evicted_and_it_can_come_back(cluster):
    cluster.node()
    cluster.pod()
    await cluster.until(lambda: cluster.phase() == "Running" and cluster.ready() == "True")
    cluster.change("nodes", "", "n1", annotate("true"))
    await cluster.until(lambda: cluster.ready() == "Unknown" and cluster.get_node()["spec"].get("taints"))
    taints = {(t["key"], t["effect"]) for t in cluster.get_node()["spec"]["taints"]}
    assert ("node.kubernetes.io/unreachable", "NoExecute") in taints
    await cluster.until(lambda: "deletionTimestamp" in cluster.get_pod()["metadata"])
    cluster.change("nodes", "", "n1", annotate("false"))
    await cluster.until(lambda: cluster.ready() == "True" and not cluster.get_node()["spec"].get("taints"))
    await cluster.until(lambda: cluster.get_pod() is None)


async def test_nodes_that_are_not_annotated_are_left_alone(cluster):
    bare = node_json("bare", {"cpu": "4", "pods": "9"})
    del bare["metadata"]["annotations"]
    cluster.registry.create(cluster.registry.context("create", "nodes", "", "bare"), "nodes", "", bare)
    cluster.node("n1")
    cluster.pod("on-bare", node="bare")
    cluster.pod("on-n1", node="n1")
    await cluster.until(lambda: cluster.phase("on-n1") == "Running")
    assert cluster.phase("on-bare") == "Pending"
    assert cluster.ready("bare") == ""


async def test_a_second_pod_of_the_same_name_is_another_pod(cluster):
    cluster.node()
    cluster.pod(duration_s=50)
    await cluster.until(lambda: "p" in cluster.running)
    ctx = cluster.registry.context("delete", "pods", "default", "p")
    cluster.registry.delete(ctx, "pods", "default", "p", {"gracePeriodSeconds": 0})
    cluster.pod(duration_s=None)
    cluster.pod("clock", duration_s=100)
    await cluster.until(lambda: cluster.phase("clock") == "Succeeded")
    assert cluster.phase() == "Running"


def test_an_unreadable_usage_counts_as_none_and_says_why():
    profile, error = usage_of("{")
    assert profile is FOREVER
    assert "conclave.io/usage" in error


def pod_with(tolerations: list[Json]) -> Json:
    meta = {"uid": "u", "name": "p", "namespace": "d"}
    return {"metadata": meta, "spec": {"nodeName": "n", "tolerations": tolerations}}


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        ([], 0.0),
        ([{"operator": "Exists"}], None),
        ([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "tolerationSeconds": 300}], 300.0),
        ([{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}], 0.0),
        ([{"key": "other", "operator": "Exists"}], 0.0),
    ],
)
def test_how_long_a_pod_stays_on_an_unreachable_node_follows_its_tolerations(tolerations, seconds):
    assert pod_seen(pod_with(tolerations)).unreachable_s == seconds


def test_taints_that_are_there_already_change_nothing():
    node = {"metadata": {"name": "n"}, "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}
    assert with_taints(node, frozenset(), frozenset({("k", "NoSchedule")}), "now") is node


def test_a_node_with_unreadable_limits_is_still_managed():
    node = node_json("n", {"cpu": "4"}, annotations={"conclave.io/twin-limits": "{"})
    assert node_seen(node).managed


def test_what_is_due_already_may_be_asked_for_again_on_the_servers_loop() -> None:
    """uvloop's handle of a moment that has come has no ``when``: each binding was answered with an error."""

    async def ask_again() -> None:
        kubelets = Cluster().kubelets
        for _ in range(2):
            kubelets.at(DUE, kubelets.loop_s() - 1.0)
        kubelets.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(ask_again())
