"""Two autoscalers on a real etcd and the twin's API server: nothing acts without a go; whoever dies or stops, the
replicas stay at or above what the last good decision said."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from tests.process.mesh import ROOT, Mesh

pytestmark = [pytest.mark.process, pytest.mark.etcd]

Json = dict[str, Any]
CRD = ROOT / "k8s/components/autoscaler/resilientautoscalers-crd.yaml"
OBJECTS = "/apis/conclave.io/v1alpha1/namespaces/default/resilientautoscalers"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
MERGE = {"Content-Type": "application/merge-patch+json"}


def deployment(name: str, replicas: int) -> Json:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                # placed already: this test needs no scheduler
                "spec": {"nodeName": "node-0", "containers": [container]},
            },
        },
    }  # fmt: skip


def scaler(mode: str = "act-on-scale", **more: Any) -> Json:
    at_once = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    return {
        "apiVersion": "conclave.io/v1alpha1", "kind": "ResilientAutoscaler", "metadata": {"name": "graph"},
        "spec": {
            "mode": mode, "hpaRule": {"target": 50, "sync_s": 0.2, "behavior": at_once},
            "limits": {"downPods": 50, "downPeriodSeconds": 1, "failOverSeconds": 2},
            "targets": [{"name": "front", "scaleTargetRef": {"name": "front"}, "maxReplicas": 9}],
            **more,
        },
    }  # fmt: skip


class Cluster:
    """What the tests ask of the mesh."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh

    async def call(self, method: str, path: str, body: Json | None = None) -> Json:
        headers = MERGE if method == "PATCH" else {}
        async with self.mesh.session.request(method, self.mesh.api_url + path, json=body, headers=headers) as answer:
            found: Json = await answer.json()
            assert answer.status < 300, found
            return found

    async def load(self, cpu: str, **more: Any) -> None:
        """Every pod of the Deployment uses so much."""
        await self.call("PUT", "/twin/metrics", {"pods": {"default/front-": {"cpu": cpu, "memory": "1Mi"}}, **more})

    async def replicas(self) -> int:
        found: int = (await self.call("GET", f"{DEPLOYMENTS}/front"))["spec"]["replicas"]
        return found

    async def status(self) -> Json:
        found: Json = (await self.call("GET", f"{OBJECTS}/graph")).get("status") or {}
        return found

    async def condition(self, kind: str) -> tuple[str, str]:
        found = [one for one in (await self.status()).get("conditions", ()) if one["type"] == kind]
        return (found[0]["status"], found[0]["reason"]) if found else ("", "")

    async def until(self, test: Callable[[], Any]) -> None:
        """Return once it holds."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if await test():
                    return
                await asyncio.sleep(0.05)

    async def until_replicas(self, wanted: int) -> None:
        async def there() -> bool:
            return await self.replicas() == wanted

        await self.until(there)

    async def until_condition(self, kind: str, status: str, reason: str) -> None:
        async def there() -> bool:
            return await self.condition(kind) == (status, reason)

        await self.until(there)

    async def until_ready(self, wanted: int) -> None:
        """So many pods serve."""

        async def there() -> bool:
            return (await self.call("GET", f"{DEPLOYMENTS}/front"))["status"].get("readyReplicas", 0) == wanted

        await self.until(there)

    async def go(self) -> None:
        """An operator approves what the status shows."""

        async def told() -> bool:
            found = await self.call("GET", f"{OBJECTS}/graph")
            return found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]

        await self.until(told)
        digest = (await self.status())["digest"]
        await self.call("PATCH", f"{OBJECTS}/graph", {"spec": {"go": {"by": "ada", "digest": digest}}})

    async def rounds(self, count: int) -> None:
        """The leader has decided so many times more."""

        async def done() -> int:
            # who was just elected, or is about to lose, has a key and no figures
            leader = await self.mesh.leader("autoscaler")
            found: int = (await self.mesh.get(leader, "/v1/stats"))["autoscaler"].get("rounds", 0)
            return found

        first = await done()

        async def enough() -> bool:
            return await done() >= first + count

        await self.until(enough)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    flags = ["--decide-every-s", "0.3", "--tell-every-s", "0.1", "--read-timeout-ms", "500", "--validate", "true"]
    mesh = Mesh(
        tmp_path, coordinators=0, agents=0, binders=0, kinds=(CRD,), flags={"autoscaler": flags},
        twin_flags=["--simulate", "--speed", "50"],
    )  # fmt: skip
    async with mesh:
        found = Cluster(mesh)
        node = {
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "node-0", "annotations": {"conclave.io/twin-node": "true"}},
            "status": {
                "allocatable": {"cpu": "16", "memory": "32Gi", "pods": "110"},
                "capacity": {"cpu": "16", "memory": "32Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }  # fmt: skip
        await mesh.create("/api/v1/nodes", node)
        await mesh.create(DEPLOYMENTS, deployment("front", 2))
        await asyncio.gather(mesh.add("autoscaler", 0), mesh.add("autoscaler", 1))
        await found.until_ready(2)
        yield found


async def test_it_acts_on_a_go_alone_and_outlives_leader_metrics_and_api_server(cluster: Cluster) -> None:
    mesh = cluster.mesh
    await cluster.load("90m")
    await mesh.create(OBJECTS, scaler())

    async def recommended() -> bool:
        rows = (await cluster.status()).get("services") or [{}]
        return rows[0].get("allowed", 0) >= 4

    await cluster.until(recommended)
    assert await cluster.condition("Acting") == ("False", "NotApproved")
    await cluster.rounds(3)
    assert await cluster.replicas() == 2

    await cluster.go()
    await cluster.until_replicas(9)  # it stays at 90 of 100 millicores, however many there are
    await cluster.until_ready(9)

    # metrics gone: it holds
    await cluster.load("1m", down=True)
    await cluster.until_condition("MetricsGood", "False", "Bad")
    await cluster.rounds(4)
    assert await cluster.replicas() == 9

    # the leader dies while they are: the next one holds too
    leader = await mesh.leader("autoscaler")
    mesh.services[leader].may_start.clear()
    mesh.services[leader].ready.clear()
    mesh.kill(leader, signal.SIGKILL)
    await cluster.rounds(4)
    assert await mesh.leader("autoscaler") != leader
    assert await cluster.replicas() == 9

    # the API server stops and comes back
    mesh.kill("twin", signal.SIGSTOP)
    survivor = await mesh.leader("autoscaler")

    async def noticed() -> bool:
        return bool((await mesh.get(survivor, "/v1/stats"))["autoscaler"]["incomplete_rounds"])

    await cluster.until(noticed)
    mesh.kill("twin", signal.SIGCONT)
    await cluster.rounds(2)
    assert await cluster.replicas() == 9

    # etcd dies and comes back: who led ends, leads again, and has lowered nothing
    mesh.services[survivor].ended.clear()
    await mesh.etcd.kill()
    async with asyncio.timeout(PATIENCE_S):
        await mesh.services[survivor].ended.wait()
    assert await cluster.replicas() == 9
    await mesh.etcd.start()
    await cluster.rounds(3)
    assert await cluster.replicas() == 9

    # good readings again, and little load: now it falls
    await cluster.load("1m")
    await cluster.until_replicas(1)


async def test_a_hand_on_the_scale_is_told_and_stands_for_its_grace_and_a_pause_is_obeyed(cluster: Cluster) -> None:
    await cluster.load("90m")
    await cluster.mesh.create(OBJECTS, scaler())
    await cluster.go()
    await cluster.until_replicas(9)
    await cluster.call("PATCH", f"{DEPLOYMENTS}/front/scale", {"spec": {"replicas": 3}})
    await cluster.until_condition("ForeignWriter", "True", "ForeignWriter")
    await cluster.rounds(3)
    assert await cluster.replicas() == 3
    await cluster.call("PATCH", f"{OBJECTS}/graph", {"spec": {"paused": True}})
    await cluster.until_condition("Acting", "False", "Paused")
    digest = (await cluster.status())["digest"]
    await cluster.call("PATCH", f"{OBJECTS}/graph", {"spec": {"go": {"by": "ada", "digest": digest, "at": "now"}}})
    await cluster.rounds(3)
    assert await cluster.replicas() == 3
    await cluster.call("PATCH", f"{OBJECTS}/graph", {"spec": {"paused": False}})
    await cluster.until_replicas(9)


async def test_a_write_that_names_an_older_version_is_a_conflict(cluster: Cluster) -> None:
    """What every write of an autoscaler relies on, on the API server that these tests run on."""
    seen = (await cluster.call("GET", f"{DEPLOYMENTS}/front"))["metadata"]
    await cluster.call("PATCH", f"{DEPLOYMENTS}/front", {"metadata": {"labels": {"touched": "yes"}}})
    meta = {"resourceVersion": seen["resourceVersion"], "uid": seen["uid"]}
    url = f"{cluster.mesh.api_url}{DEPLOYMENTS}/front/scale"
    body = {"metadata": meta, "spec": {"replicas": 5}}
    async with cluster.mesh.session.patch(url, json=body, headers=MERGE) as answer:
        assert answer.status == 409
    assert await cluster.replicas() == 2


async def test_bad_objects_get_one_condition_and_the_replicas_stay(cluster: Cluster) -> None:
    loop = [
        {"name": "front", "scaleTargetRef": {"name": "front"}, "maxReplicas": 9, "calls": ["cart"]},
        {"name": "cart", "scaleTargetRef": {"name": "cart"}, "maxReplicas": 9, "calls": ["front"]},
    ]
    await cluster.mesh.create(OBJECTS, scaler(targets=loop))
    await cluster.until_condition("Ready", "False", "Invalid")
    unknown = [{"name": "front", "scaleTargetRef": {"name": "nobody"}, "maxReplicas": 9}]
    await cluster.call("PATCH", f"{OBJECTS}/graph", {"spec": {"targets": unknown}})
    await cluster.until_condition("Ready", "False", "TargetUnusable")
    good = [{"name": "front", "scaleTargetRef": {"name": "front"}, "maxReplicas": 9}]
    await cluster.call("PATCH", f"{OBJECTS}/graph", {"spec": {"targets": good, "policy": {"name": "nonesuch"}}})
    await cluster.until_condition("Ready", "False", "PolicyUnusable")
    assert await cluster.replicas() == 2
    for bad in ({"minReplicas": 5, "maxReplicas": 2}, {"maxReplicas": 9, "calls": ["front"]}):
        body = {"spec": {"targets": [{"name": "front", "scaleTargetRef": {"name": "front"}, **bad}]}}
        url = f"{cluster.mesh.api_url}{OBJECTS}/graph"
        async with cluster.mesh.session.patch(url, json=body, headers=MERGE) as answer:
            assert answer.status == 422
            assert "targets[0]" in (await answer.json())["message"]
