"""Agents on their nodes in a real mesh: they read this machine, probe each other and a target, and el decides by it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from tests.process.changing_proc import STEADY, FakeNode, time_passes
from tests.process.mesh import ROOT, Mesh

pytestmark = [pytest.mark.process, pytest.mark.etcd]

CRD = ROOT / "k8s/base/latency-targets-crd.yaml"
TARGETS = "/apis/conclave.io/v1alpha1/latencytargets"
NODE_FLAGS = ["--node", "{name}", "--sensor-every-s", "0.5", "--probes-per-s", "4"]


def target(name: str, port: int) -> dict[str, Any]:
    return {
        "apiVersion": "conclave.io/v1alpha1", "kind": "LatencyTarget", "metadata": {"name": name},
        "spec": {"host": "127.0.0.1", "port": port, "everySeconds": 1},
    }  # fmt: skip


async def until(look: Callable[[], Any], true: Callable[[Any], bool]) -> Any:
    """What ``look`` answers once it is ``true``."""
    found: Any = None
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not true(found := await look()):  # noqa: ASYNC110  another process changes it
                await asyncio.sleep(0.2)
    except TimeoutError:
        pytest.fail(f"not within {PATIENCE_S:g} s: {found}")
    return found


async def test_what_agents_measure_of_their_nodes_is_known_to_the_leader(tmp_path: Path) -> None:
    token = tmp_path / "admin-token"
    token.touch(mode=0o600)
    token.write_text("a-token-for-this-test viewer ann\n")
    admin = ["--admin-listen", "127.0.0.1:0", "--admin-token-file", str(token)]
    flags = {"agent": [*NODE_FLAGS, *STEADY, "--policy", "el"], "coordinator": [*admin, *STEADY, "--policy", "el"]}
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Mesh(tmp_path, coordinators=1, agents=2, binders=1, flags=flags, kinds=[CRD]) as mesh:
        await mesh.add_nodes(2, named="agent")
        await mesh.create(TARGETS, target("shop", port))
        url = f"{mesh.services['coordinator-0'].admin_url}/v1/nodes"

        async def nodes() -> dict[str, Any]:
            headers = {"Authorization": "Bearer a-token-for-this-test"}
            async with mesh.session.get(url, headers=headers) as response:
                return {node["name"]: node["used"] for node in (await response.json()).get("items", ())}

        def all_there(found: dict[str, Any]) -> bool:
            known = list(found.values())
            return len(known) == 2 and all(
                used and used["cpu_millis"] is not None and used["latencies"] and used["delay_ms"] is not None
                for used in known
            )

        for used in (await until(nodes, all_there)).values():
            assert used["sources"]["cpu"] == used["sources"]["memory"] == "agent"
            assert used["memory_bytes"] > 0
            assert used["age_s"] < PATIENCE_S
            assert 0 < used["latencies"]["shop"]["median_ms"] < 1000

        await mesh.create("/api/v1/namespaces/default/pods", pod("far", hard_ms="0.001"))
        await mesh.create("/api/v1/namespaces/default/pods", pod("near", hard_ms="2000"))
        await mesh.wait_bound({"far", "near"})
        near = await mesh.get("coordinator-0", "/v1/explain/default/near")
        assert near["latency"]["target"] == "shop"
        assert near["latency"]["nodes_within_hard"] == 2
        assert near["latency"]["problem"] == ""
        far = await mesh.get("coordinator-0", "/v1/explain/default/far")
        assert "beyond the hard limit" in far["summary"]

        async def conditions() -> dict[str, tuple[str, str]]:
            async with mesh.session.get(f"{mesh.api_url}{TARGETS}/shop") as response:
                status = (await response.json()).get("status") or {}
            return {one["type"]: (one["status"], one["message"]) for one in status.get("conditions", ())}

        told = await until(conditions, lambda found: found.get("LimitsKept", ("",))[0] == "False")
        assert told["Accepted"][0] == told["Reachable"][0] == "True"
        assert "default/far on agent-" in told["LimitsKept"][1]
        stats = (await mesh.get("agent-0", "/v1/stats"))["sensors"]
        assert stats["probes"]["answered"] > 0
        assert stats["probes"]["misled"] == stats["probes"]["replayed"] == 0
        assert stats["probes"]["forged"] == 0


async def test_marl_dqn_keeps_clear_of_a_disk_that_sensors_alone_see(tmp_path: Path) -> None:
    fakes = [FakeNode(tmp_path / f"proc-agent-{number}", busy=busy) for number, busy in ((0, 0.9), (1, 0.0))]

    learned = ["--policy", "marl-dqn", *STEADY]
    agent = [*NODE_FLAGS, "--host-proc", f"{tmp_path}/proc-{{name}}", *learned]
    flags = {"agent": agent, "coordinator": [*learned, "--metrics-every-s", "3600"]}
    mesh = Mesh(tmp_path, coordinators=1, agents=2, binders=1, flags=flags)
    async with time_passes(fakes), mesh:
        await mesh.add_nodes(2, named="agent")

        async def disks() -> list[float]:
            found = (await mesh.get("coordinator-0", "/v1/stats"))["coordinator"].get("measured", {})
            return [found.get(f"agent-{number}", {}).get("disk", -1.0) for number in range(2)]

        await until(disks, lambda found: found[0] > 0.5 and 0 <= found[1] < 0.1)
        names = [f"p{number}" for number in range(4)]
        for name in names:
            await mesh.add_pod(name)
            await mesh.wait_bound({name})
        nodes = {p["metadata"]["name"]: p["spec"]["nodeName"] for p in await mesh.pods()}
        assert [nodes[name] for name in names] == ["agent-1"] * 4, nodes


def pod(name: str, *, hard_ms: str) -> dict[str, Any]:
    annotations = {"conclave.io/latency-target": "shop", "latencyHardConstraint": hard_ms}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"schedulerName": "conclave", "containers": [container]},
    }  # fmt: skip
