"""Two binders at work, each for its shard of nodes, as real processes; the nodes are divided under load.

Every pod ends bound exactly once, whoever had it when the shards changed, and no intent is left.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from shared.scheduling.shards import Shards
from tests.process.mesh import Mesh
from tests.process.test_binder_process import add_pods, intents_left, nothing_was_bound_twice

pytestmark = [pytest.mark.process, pytest.mark.etcd]

NODES = 8
TOKEN = "admin-token-of-the-test"


async def divide(mesh: Mesh, *names: str) -> None:
    """As ``conclave shards set`` does."""
    url = f"{mesh.services['coordinator-0'].admin_url}/v1/shards"
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with mesh.session.put(url, json={"names": list(names)}, headers=headers) as response:
        assert response.status == 200, await response.text()


async def test_nodes_are_divided_under_load_and_both_binders_work(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{TOKEN} admin test\n")
    flags = {
        "coordinator": ["--admin-listen", "127.0.0.1:0", "--admin-token-file", str(tokens), "--cluster-lease-s", "0"]
    }
    async with Mesh(tmp_path, coordinators=1, agents=1, binders=1, flags=flags) as mesh:
        await mesh.add_nodes(NODES)
        common = ["--etcd", mesh.etcd.endpoint, "--kubeconfig", str(mesh.kubeconfig)]
        await mesh.start("binder-1", "binder", [*common, "--id", "binder-1", "--shard", "1"])
        await mesh.leader("coordinator")
        names = await add_pods(mesh, "before", 40)
        await mesh.wait_bound(names, timeout_s=30)
        assert (await mesh.get("binder-1", "/v1/stats"))["binder"]["bound"] == 0
        names |= await add_pods(mesh, "amid", 40)
        await divide(mesh, "0", "1")
        names |= await add_pods(mesh, "after", 40)
        await mesh.wait_bound(names, timeout_s=60)
        assert 3 in mesh.services["binder-0"].codes, "it began anew"
        shards = Shards(("0", "1"))
        nodes = {pod["spec"]["nodeName"] for pod in await mesh.pods()}
        assert {shards.of(node) for node in nodes} == {"0", "1"}
        assert (await mesh.get("binder-1", "/v1/stats"))["binder"]["bound"] > 0
        mesh.kill("binder-1", signal.SIGKILL)
        names |= await add_pods(mesh, "later", 40)
        await mesh.wait_bound(names, timeout_s=60)
        assert await intents_left(mesh) == 0
    nothing_was_bound_twice(mesh, names)
