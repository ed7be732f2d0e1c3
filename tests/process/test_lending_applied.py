"""The component ``lending`` as it is applied: the coordinator lends with its settings and rights, and not without."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.manifests.rendering import folder_of
from tests.patience import PATIENCE_S
from tests.process.mesh import Mesh
from tests.process.test_lending import LENDS, lent_by, pod, until_lent
from tests.process.test_rbac_of_a_run import account_kubeconfig, apply
from tests.scenarios.world import World

pytestmark = [pytest.mark.process, pytest.mark.etcd]

TWIN = ["--kubeconfig-scheme", "https", "--simulate", "--speed", "1"]


async def test_the_component_lends_and_takes_away_with_its_own_rights(tmp_path: Path) -> None:
    build = "partition-agents+lending"
    async with Mesh(tmp_path, coordinators=0, agents=1, binders=1, twin_flags=TWIN) as mesh:
        await apply(mesh, "-k", str(folder_of(build)))
        world = World(mesh)
        await world.add_node("n0", cpu="10", memory="100Gi")
        account = await account_kubeconfig(world, "coordinator")
        mesh._flags["coordinator"] = ["--kubeconfig", str(account), *LENDS]
        await mesh.add("coordinator", 0)
        await mesh.create("/api/v1/namespaces/default/pods", pod("web", 2000, {"cpu": "9"}))
        await mesh.wait_bound({"web"})
        await until_lent(mesh, lambda found: found["n0"][0] == 4000)

        mesh.kill("coordinator-0")
        mesh._flags["coordinator"] = ["--kubeconfig", str(account), "--lend", "off"]
        await mesh.add("coordinator", 1)
        await until_lent(mesh, lambda found: found["n0"] == (-1, -1))
        node = await world.call("GET", "/api/v1/nodes/n0")
        assert node["status"]["capacity"]["cpu"] == node["status"]["allocatable"]["cpu"] == "10"


async def test_without_the_component_nothing_is_written_and_it_is_said(tmp_path: Path) -> None:
    async with Mesh(tmp_path, coordinators=0, agents=1, binders=1, twin_flags=TWIN) as mesh:
        await apply(mesh, "-k", str(folder_of("partition-agents")))
        world = World(mesh)
        await world.add_node("n0", cpu="10", memory="100Gi")
        account = await account_kubeconfig(world, "coordinator")
        mesh._flags["coordinator"] = ["--kubeconfig", str(account), *LENDS]
        await mesh.add("coordinator", 0)
        await mesh.create("/api/v1/namespaces/default/pods", pod("web", 2000, {"cpu": "9"}))
        await mesh.wait_bound({"web"})
        log = tmp_path / "coordinator-0.log"
        await until_said(log, "node_loans_refused")
        assert (await lent_by(mesh))["n0"] == (-1, -1)


async def until_said(log: Path, event: str) -> None:
    """Until the log has it."""
    async with asyncio.timeout(PATIENCE_S):
        while event not in log.read_text():  # noqa: ASYNC110, ASYNC240  another process writes it
            await asyncio.sleep(0.2)
