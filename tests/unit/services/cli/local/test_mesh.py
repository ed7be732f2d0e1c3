"""What ``conclave up`` and ``conclave demo`` say while the mesh does not schedule yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from services.cli.local.mesh import LocalMesh, MeshSettings, mesh_specs
from services.cli.local.supervisor import Child, ChildSpec, Supervisor
from services.cli.local.up_run import divide
from shared.runtime.records.shards import read_shards
from shared.wire.keys import Keys
from tests.memory_etcd import MemoryEtcd
from tests.memory_store import MemoryStore

SYNCED: dict[str, Any] = {
    "leading": True,
    "synced": True,
    "agents": [{"id": "a-0"}],
    "binders": {"0": {"url": "http://b"}},
}
TAKEN = "another mesh (ab, led by c-9) schedules for conclave in this cluster: this one is a standby"


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
        (SYNCED | {"binders": {"0": {"url": ""}}}, "no binder leads"),
        (SYNCED | {"binders": {}}, "no binder leads"),
        (SYNCED, ""),
    ],
)
async def test_a_mesh_schedules_when_its_leader_knows_agents_and_binder(
    tmp_path: Path, status: dict[str, Any], told: str
) -> None:
    assert await asked(tmp_path, status) == told


async def test_a_shard_that_no_binder_leads_is_named(tmp_path: Path) -> None:
    assert await asked(tmp_path, SYNCED, shards=2) == "no binder leads shard 1"
    both = {"binders": {"0": {"url": "http://b"}, "1": {"url": "http://c"}}}
    assert await asked(tmp_path, SYNCED | both, shards=2) == ""


async def asked(folder: Path, status: dict[str, Any], *, shards: int = 1) -> str:
    """What a mesh of one agent makes of what its one coordinator says."""
    settings = MeshSettings(
        etcd="", kubeconfig=folder, state_dir=folder, coordinators=1, agents=1, binders=1, shards=shards
    )
    settings.token_file.write_text("t")

    async def answer(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer t"
        return web.json_response(status)

    app = web.Application()
    app.router.add_get("/v1/status", answer)
    async with TestServer(app) as server:
        supervisor = Supervisor(folder, measured=False)
        child = Child(ChildSpec("coordinator-0", "coordinator", ()), folder / "log")
        child.ready_line = f"ready coordinator coordinator-0 {server.make_url('')}".rstrip("/")
        child.ready.set()
        supervisor.children[child.spec.name] = child
        mesh = LocalMesh(settings, supervisor)
        try:
            return await mesh.schedules()
        finally:
            supervisor.children.clear()
            await supervisor.close()


def test_every_shard_has_binders(tmp_path: Path) -> None:
    settings = MeshSettings(etcd="", kubeconfig=tmp_path, state_dir=tmp_path, binders=2, shards=2)
    specs = [spec.argv for spec in mesh_specs(settings) if spec.service == "binder"]
    assert [argv[argv.index("--shard") + 1] for argv in specs] == ["0", "1", "0", "1"]


async def test_the_nodes_are_divided_as_the_mesh_is_asked_for_and_back(tmp_path: Path) -> None:
    one, two = (MeshSettings(etcd="", kubeconfig=tmp_path, state_dir=tmp_path, shards=count) for count in (1, 2))
    keys, store = Keys(), MemoryStore(MemoryEtcd())
    await divide(store, one)
    assert await store.get(keys.binder_shards) is None, "one shard needs no record"
    await divide(store, two)
    assert (await read_shards(store, keys)).names == ("0", "1")
    await divide(store, one)
    assert (await read_shards(store, keys)).names == ("0",)


def test_times_are_the_environments_unless_the_twin_plays_faster(tmp_path: Path) -> None:
    times = {"--rollout-window-s", "--metrics-every-s", "--workload-speed", "--reward-delay-s"}
    for speed, flags in ((1.0, set[str]()), (2.0, times)):
        settings = MeshSettings(etcd="", kubeconfig=tmp_path, state_dir=tmp_path, agents=1, speed=speed)
        assert times & {word for spec in mesh_specs(settings) for word in spec.argv} == flags


def test_one_shard_needs_no_flag(tmp_path: Path) -> None:
    settings = MeshSettings(etcd="", kubeconfig=tmp_path, state_dir=tmp_path)
    assert not [spec for spec in mesh_specs(settings) if "--shard" in spec.argv]


def test_in_one_process_a_mesh_has_no_agents_and_no_binders_beside_it(tmp_path: Path) -> None:
    settings = MeshSettings(
        etcd="http://e", kubeconfig=tmp_path, state_dir=tmp_path, single=True, coordinators=2, agents=0, binders=1
    )
    specs = mesh_specs(settings)
    assert [(spec.name, spec.argv[2]) for spec in specs] == [
        ("single-0", "services.single"),
        ("single-1", "services.single"),
    ]
    assert all("--embedded-agent" in spec.argv and "--admin-listen" in spec.argv for spec in specs)
