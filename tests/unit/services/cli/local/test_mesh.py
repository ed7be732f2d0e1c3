"""What ``conclave up`` and ``conclave demo`` say while the mesh does not schedule yet."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from services.cli.local.mesh import Mesh, MeshSettings, mesh_specs
from services.cli.local.supervisor import Supervisor
from shared.election.record import LeaderRecord
from shared.ports import Put
from shared.runtime.records.shards import read_shards
from shared.wire.keys import Keys
from shared.wire.records import MemberRecord, encode_record
from tests.memory_etcd import MemoryEtcd
from tests.memory_store import MemoryStore

KEYS = Keys()
TAKEN = "another mesh (ab, led by c-9) schedules for conclave in this cluster: this one stands by"


@pytest.mark.parametrize(
    ("warnings", "told"),
    [((), "the leading coordinator has not synced"), ((TAKEN,), f"the leading coordinator has not synced: {TAKEN}")],
)
async def test_a_mesh_that_stands_by_says_for_whom(tmp_path: Path, warnings: tuple[str, ...], told: str) -> None:
    settings = MeshSettings(
        etcd="", etcd_prefix=KEYS.prefix, kubeconfig=tmp_path, state_dir=tmp_path, coordinators=1, agents=0, binders=1
    )
    settings.token_file.write_text("t")

    async def status(_: web.Request) -> web.Response:
        return web.json_response({"leading": True, "synced": False})

    app = web.Application()
    app.router.add_get("/v1/status", status)
    async with TestServer(app) as server:
        url = str(server.make_url("")).rstrip("/")
        leader = LeaderRecord(identity="c-0", incarnation="i", url=url).encode()
        member = encode_record(MemberRecord(id="c-0", url=url, incarnation="i", warnings=warnings))
        etcd = MemoryEtcd()
        etcd.txn([], [Put(KEYS.coordinator_leader, leader), Put(KEYS.member("coordinator", "c-0"), member)])
        etcd.txn([], [Put(KEYS.binder_leader("0"), leader)])
        supervisor = Supervisor(tmp_path)
        mesh = Mesh(settings, supervisor, MemoryStore(etcd))
        try:
            assert await mesh.schedules() == told
        finally:
            await mesh.close()
            await supervisor.close()


async def test_every_shard_has_binders_and_the_nodes_are_divided_before_anybody_leads(tmp_path: Path) -> None:
    settings = MeshSettings(etcd="", kubeconfig=tmp_path, state_dir=tmp_path, binders=2, shards=2)
    specs = [spec.argv for spec in mesh_specs(settings) if spec.service == "binder"]
    assert [argv[argv.index("--shard") + 1] for argv in specs] == ["0", "1", "0", "1"]
    settings.token_file.write_text("t")
    store, supervisor = MemoryStore(MemoryEtcd()), Supervisor(tmp_path)
    mesh = Mesh(settings, supervisor, store)
    try:
        await mesh.divide()
        assert (await read_shards(store, KEYS)).names == ("0", "1")
    finally:
        await mesh.close()
        await supervisor.close()


def test_one_shard_needs_no_flag(tmp_path: Path) -> None:
    settings = MeshSettings(etcd="", kubeconfig=tmp_path, state_dir=tmp_path)
    assert not [spec for spec in mesh_specs(settings) if "--shard" in spec.argv]
