"""Real agents in network namespaces with real delays: el places by what they measure, and moves when that changes."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.delayed_net import WORLD, DelayedNet, unavailable
from tests.process.mesh import ROOT, TOKEN, Mesh, Running
from tests.process.test_sensors import TARGETS, pod, until

pytestmark = [
    pytest.mark.process,
    pytest.mark.etcd,
    pytest.mark.skipif(bool(unavailable()), reason=unavailable() or "namespaces are there"),
]

CRD = ROOT / "k8s/base/latency-targets-crd.yaml"
SHOP, PORT = "10.77.0.100", 8080
AGENTS = {"agent-0": "10.77.0.10", "agent-1": "10.77.0.11"}
NEAR_S, FAR_S, APART_S = 0.004, 0.080, 0.030
LIMIT_MS = "40"


class SpreadMesh(Mesh):
    """Its agents are each in a namespace of their own; the rest is in this one, where the fork server is not."""

    forks = False

    def __init__(self, folder: Path, net: DelayedNet, **options: Any) -> None:
        super().__init__(folder, **options)
        self._inside = {name: net.host(address) for name, address in AGENTS.items()}
        self._ways: list[asyncio.Server] = []

    async def add(self, service: str, number: int, environ: dict[str, str] | None = None) -> Running:
        if service != "agent":
            return await super().add(service, number, environ)
        name, etcd = f"agent-{number}", await passed_on(int(self.etcd.endpoint.rpartition(":")[2]))
        self._ways.append(etcd)
        flags = [
            "--etcd", f"http://{WORLD}:{etcd.sockets[0].getsockname()[1]}", "--id", name, "--node", name,
            "--listen", f"{AGENTS[name]}:0", "--sensor-every-s", "0.5", "--probes-per-s", "4",
            "--token-file", str(self.folder / "token"), "--policy", "el",
        ]  # fmt: skip
        return await self.start(name, service, flags, environ)

    async def _stop(self) -> None:
        await super()._stop()
        for way in self._ways:
            way.close()

    async def _keep(self, running: Running) -> None:
        running.arguments[:0] = self._inside.get(running.name, [])
        await super()._keep(running)


async def passed_on(port: int) -> asyncio.Server:
    """A port of this namespace that leads to one of its loopback: etcd listens nowhere else."""

    async def both(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(piped(reader, there_writer), piped(there_reader, writer))

    return await asyncio.start_server(both, WORLD, 0)


async def piped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while part := await reader.read(65536):
            writer.write(part)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def test_el_follows_measured_latency_and_a_limit_that_breaks_is_told(tmp_path: Path) -> None:
    (tmp_path / "token").touch(mode=0o600)
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    peers = ["--listen", f"{WORLD}:0", "--token-file", str(tmp_path / "token")]
    flags = {"coordinator": [*peers, "--policy", "el"], "binder": peers}
    with DelayedNet() as net:
        shop = await asyncio.create_subprocess_exec(
            *net.host(SHOP), sys.executable, "-m", "http.server", str(PORT), "--bind", SHOP,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        net.between(AGENTS["agent-0"], SHOP, NEAR_S)
        net.between(AGENTS["agent-1"], SHOP, FAR_S)
        net.between(AGENTS["agent-0"], AGENTS["agent-1"], APART_S)
        try:
            async with SpreadMesh(tmp_path, net, coordinators=1, agents=2, binders=1, flags=flags, kinds=[CRD]) as mesh:
                await placed_by_latency(mesh, net)
        finally:
            shop.kill()
            await shop.wait()


async def placed_by_latency(mesh: Mesh, net: DelayedNet) -> None:
    await mesh.add_nodes(2, named="agent")
    spec = {"host": SHOP, "port": PORT, "everySeconds": 1}
    await mesh.create(
        TARGETS,
        {"apiVersion": "conclave.io/v1alpha1", "kind": "LatencyTarget", "metadata": {"name": "shop"}, "spec": spec},
    )

    async def measured() -> dict[str, dict[str, float]]:
        return (await mesh.get("coordinator-0", "/v1/stats"))["coordinator"].get("measured", {})

    def is_near(near: str, far: str, found: dict[str, Any]) -> bool:
        known = {name: found.get(name, {}).get("shop", -1.0) for name in AGENTS}
        return 0 <= known[near] < float(LIMIT_MS) < known[far]

    await until(measured, lambda found: is_near("agent-0", "agent-1", found))
    apart = await until(measured, lambda found: all("nodes" in found.get(name, {}) for name in AGENTS))
    assert all(apart[name]["nodes"] >= 0.5 * APART_S * 1000 for name in AGENTS)

    await mesh.create("/api/v1/namespaces/default/pods", pod("before", hard_ms=LIMIT_MS))
    await mesh.wait_bound({"before"})
    assert await node_of(mesh, "before") == "agent-0"

    net.between(AGENTS["agent-0"], SHOP, FAR_S)
    net.between(AGENTS["agent-1"], SHOP, NEAR_S)
    await until(measured, lambda found: is_near("agent-1", "agent-0", found))
    await mesh.create("/api/v1/namespaces/default/pods", pod("after", hard_ms=LIMIT_MS))
    await mesh.wait_bound({"after"})
    assert await node_of(mesh, "after") == "agent-1", "the first decision after the change"

    assert "beyond the hard limit" in (await mesh.get("coordinator-0", "/v1/explain/default/before"))["summary"]

    async def events() -> list[str]:
        async with mesh.session.get(mesh.api_url + "/apis/events.k8s.io/v1/events") as response:
            items = (await response.json())["items"]
        return [item["reason"] for item in items if item["regarding"]["name"] == "before"]

    await until(events, lambda reasons: "LatencyLimitBroken" in reasons)


async def node_of(mesh: Mesh, name: str) -> str:
    return next(pod["spec"]["nodeName"] for pod in await mesh.pods() if pod["metadata"]["name"] == name)
