"""A learned policy scales live Deployments whose pods Conclave places, by what a Prometheus tells of their requests.

``karma`` decides beside HPA's rule. The source of metrics vanishes, and the leader is killed while it is away: nothing
is taken away, and what comes after is scaled for again.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.fake_prometheus import FakePrometheus
from tests.process.mesh import Mesh
from tests.process.test_autoscaler_process import CRD, DEPLOYMENTS, OBJECTS, Cluster, Json, deployment

pytestmark = [pytest.mark.process, pytest.mark.etcd]

PER_REPLICA, MOST = 20.0, 9
NAMES = ("front", "back")


class Traffic:
    """Requests per second to both services, and what so many replicas answer of them: the twin's pods answer nobody."""

    def __init__(self) -> None:
        self.arrivals = 30.0
        self.ready = dict.fromkeys(NAMES, 2)

    def prometheus(self) -> FakePrometheus:
        def answered(name: str) -> float:
            return min(self.arrivals, PER_REPLICA * self.ready[name])

        rows: dict[str, Any] = {}
        for name in NAMES:
            rows |= {
                f"{name}_arrivals": [({}, lambda _: self.arrivals)],
                f"{name}_served": [({}, lambda _, name=name: answered(name))],
                f"{name}_failed": [({}, lambda _, name=name: self.arrivals - answered(name))],
            }
        return FakePrometheus(rows, now=True)


def placed(name: str) -> Json:
    """A Deployment whose pods wait for Conclave."""
    found = deployment(name, 2)
    pod = found["spec"]["template"]["spec"]
    del pod["nodeName"]
    pod["schedulerName"] = "conclave"
    return found


def shop() -> Json:
    def target(name: str) -> Json:
        signals = ("arrivals", "served", "failed")
        return {
            "name": name, "scaleTargetRef": {"name": name}, "maxReplicas": MOST,
            "metrics": [{"signal": "cpu", "type": "Resource"},
                        *({"signal": one, "type": "Prometheus", "query": f"{name}_{one}"} for one in signals)],
        }  # fmt: skip

    return {
        "apiVersion": "conclave.io/v1alpha1", "kind": "ResilientAutoscaler", "metadata": {"name": "graph"},
        "spec": {
            "mode": "act-on-scale", "policy": {"name": "karma"}, "hpaRule": {"target": 85, "sync_s": 0.2},
            "limits": {"failOverSeconds": 2},
            "targets": [{**target("front"), "calls": ["back"]}, target("back")],
        },
    }  # fmt: skip


class Shop(Cluster):
    """Both services."""

    def __init__(self, mesh: Mesh, traffic: Traffic) -> None:
        super().__init__(mesh)
        self.traffic = traffic

    async def counts(self) -> dict[str, int]:
        """Replicas that are asked for; what is Ready is told to the traffic."""
        found = {name: await self.call("GET", f"{DEPLOYMENTS}/{name}") for name in NAMES}
        self.traffic.ready = {name: one["status"].get("readyReplicas", 0) for name, one in found.items()}
        return {name: one["spec"]["replicas"] for name, one in found.items()}

    async def until_serving(self, arrivals: float) -> dict[str, int]:
        """Both are large enough for so many requests a second, and every pod is on a node and Ready."""
        self.traffic.arrivals = arrivals

        async def enough() -> bool:
            asked = await self.counts()
            return all(
                count * PER_REPLICA >= arrivals and self.traffic.ready[name] == count for name, count in asked.items()
            )

        await self.until(enough)
        return await self.counts()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[tuple[Shop, FakePrometheus]]:
    traffic = Traffic()
    async with traffic.prometheus().serving() as prometheus:
        flags = ["--decide-every-s", "0.3", "--tell-every-s", "0.1", "--read-timeout-ms", "500", "--validate", "true",
                 "--prometheus", prometheus.url]  # fmt: skip
        mesh = Mesh(
            tmp_path, coordinators=1, agents=1, binders=1, kinds=(CRD,), flags={"autoscaler": flags},
            twin_flags=["--simulate", "--speed", "50"],
        )  # fmt: skip
        async with mesh:
            room = {"cpu": "16", "memory": "32Gi", "pods": "110"}
            node = {
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": "node-0", "annotations": {"conclave.io/twin-node": "true"}},
                "status": {"allocatable": room, "capacity": room, "conditions": [{"type": "Ready", "status": "True"}]},
            }  # fmt: skip
            await mesh.create("/api/v1/nodes", node)
            for name in NAMES:
                await mesh.create(DEPLOYMENTS, placed(name))
            await asyncio.gather(mesh.add("autoscaler", 0), mesh.add("autoscaler", 1))
            found = Shop(mesh, traffic)
            pods = {f"default/{name}-": {"cpu": "85m", "memory": "1Mi"} for name in NAMES}
            await found.call("PUT", "/twin/metrics", {"pods": pods})
            yield found, prometheus


async def test_karma_scales_what_conclave_places_and_holds_while_nobody_tells_it_the_load(
    world: tuple[Shop, FakePrometheus],
) -> None:
    cluster, prometheus = world
    mesh = cluster.mesh
    await cluster.until_serving(30.0)  # the first pods are placed, by Conclave
    await mesh.create(OBJECTS, shop())
    await cluster.go()
    before = await cluster.until_serving(90.0)
    assert min(before.values()) >= 5
    decided = await cluster.status()
    assert decided["decidedBy"] == "karma"
    assert all(row["rule"] <= row["replicas"] for row in decided["services"]), "HPA's rule would grow by itself"

    prometheus.fail = web.Response(status=503)
    await cluster.until_condition("MetricsGood", "False", "Bad")
    leader = await mesh.leader("autoscaler")
    mesh.services[leader].may_start.clear()
    mesh.services[leader].ready.clear()
    mesh.kill(leader, signal.SIGKILL)
    await cluster.rounds(4)
    assert await mesh.leader("autoscaler") != leader
    held = await cluster.counts()
    assert all(held[name] >= before[name] for name in NAMES), "blind, and with another leader, it took something away"

    prometheus.fail = None
    after = await cluster.until_serving(140.0)
    assert min(after.values()) >= 7
    pods = (await cluster.call("GET", "/api/v1/namespaces/default/pods"))["items"]
    assert {pod["spec"]["schedulerName"] for pod in pods} == {"conclave"}
    assert all(pod["spec"].get("nodeName") == "node-0" for pod in pods)
