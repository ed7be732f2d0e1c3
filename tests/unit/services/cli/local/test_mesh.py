"""What ``conclave up`` and ``conclave demo`` say while the mesh does not schedule yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from services.cli.local.mesh import Mesh, MeshSettings
from services.cli.local.supervisor import Child, Spec, Supervisor

SYNCED: dict[str, Any] = {"leading": True, "synced": True, "agents": [{"id": "a-0"}], "binder": {"url": "http://b"}}
TAKEN = "another mesh (ab, led by c-9) schedules for conclave in this cluster: this one stands by"


@pytest.mark.parametrize(
    ("warnings", "told"),
    [((), "the leading coordinator has not synced"), ((TAKEN,), f"the leading coordinator has not synced: {TAKEN}")],
)
async def test_a_mesh_that_stands_by_says_for_whom(tmp_path: Path, warnings: tuple[str, ...], told: str) -> None:
    assert await asked(tmp_path, {"leading": True, "synced": False, "warnings": warnings}) == told


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ({"leading": False}, "no coordinator leads"),
        (SYNCED | {"agents": []}, "0 of 1 agents have joined"),
        (SYNCED | {"binder": {"url": ""}}, "no binder leads"),
        (SYNCED, ""),
    ],
)
async def test_a_mesh_schedules_when_its_leader_knows_agents_and_binder(
    tmp_path: Path, status: dict[str, Any], told: str
) -> None:
    assert await asked(tmp_path, status) == told


async def asked(folder: Path, status: dict[str, Any]) -> str:
    """What a mesh of one agent makes of what its one coordinator says."""
    settings = MeshSettings(etcd="", kubeconfig=folder, state_dir=folder, coordinators=1, agents=1, binders=1)
    settings.token_file.write_text("t")

    async def answer(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer t"
        return web.json_response(status)

    app = web.Application()
    app.router.add_get("/v1/status", answer)
    async with TestServer(app) as server:
        supervisor = Supervisor(folder, measured=False)
        child = Child(Spec("coordinator-0", "coordinator", ()), folder / "log")
        child.ready_line = f"ready coordinator coordinator-0 {server.make_url('')}".rstrip("/")
        child.ready.set()
        supervisor.children[child.spec.name] = child
        mesh = Mesh(settings, supervisor)
        try:
            return await mesh.schedules()
        finally:
            supervisor.children.clear()
            await supervisor.close()
