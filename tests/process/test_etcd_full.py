"""etcd reaches its quota under a mesh: told in words, nothing lost, and all pods bound once there is room again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from shared.adapters.etcd.channel import EtcdSettings
from shared.adapters.etcd.store import EtcdStore
from shared.errors import StoreFull
from shared.ports import Put
from shared.runtime.process.embedded_etcd import EmbeddedEtcd, EmbeddedEtcdSettings
from tests.patience import PATIENCE_S
from tests.process.mesh import Mesh, bindings_per_uid

QUOTA = 4 << 20
"""As little as a mesh needs some thousand times."""
RUNBOOK = Path(__file__).parents[2] / "docs/operations/runbooks.md"

pytestmark = [pytest.mark.etcd]


async def fill(endpoint: str) -> None:
    """Somebody writes one key again and again: history, until etcd is full."""
    store = EtcdStore(EtcdSettings(endpoints=(endpoint,)))
    try:
        for _ in range(64):
            await store.txn([], [Put("/somebody/else", b"x" * 500_000)], timeout_s=10.0)
    except StoreFull:
        return
    finally:
        await store.close()
    raise AssertionError("etcd did not fill")


async def until(look: Callable[[], Any]) -> Any:
    """The first true answer of ``look``, a coroutine function."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if found := await look():
                return found
            await asyncio.sleep(0.2)


def steps() -> list[str]:
    """The lines of the runbook, word by word."""
    section = RUNBOOK.read_text().partition("## ConclaveEtcdFull")[2]
    found = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found[1].splitlines()


@pytest.fixture
async def full(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Mesh]:
    flags = {"coordinator": ["--etcd-upkeep", request.param, "--etcd-quota-mb", "4"]}
    mesh = Mesh(tmp_path, flags=flags)
    small = EmbeddedEtcdSettings(
        data_dir=tmp_path / "etcd", fsync=False, quota_bytes=QUOTA, compaction_retention="0", progress_interval_s=0.5
    )
    mesh.members = [EmbeddedEtcd(small)]
    mesh.etcd = mesh.members[0]
    async with mesh:
        await mesh.add_nodes(4)
        names = {f"before-{number}" for number in range(5)}
        for name in sorted(names):
            await mesh.add_pod(name)
        await mesh.wait_bound(names)
        await fill(mesh.etcd.endpoint)
        yield mesh


async def told(mesh: Mesh) -> str:
    """What any coordinator that runs says is wrong with etcd."""
    for name in ("coordinator-0", "coordinator-1"):
        with contextlib.suppress(aiohttp.ClientError, json.JSONDecodeError):
            for line in (await mesh.get(name, "/v1/status")).get("warnings", ()):
                if "NOSPACE" in line:
                    return str(line)
    return ""


async def well(mesh: Mesh) -> bool:
    """Whether nobody says that etcd is full."""
    return not await told(mesh)


@pytest.mark.parametrize("full", ["shared"], indirect=True)
async def test_a_full_etcd_is_told_and_the_runbook_word_by_word_brings_every_pod_onto_a_node(full: Mesh) -> None:
    if shutil.which("etcdctl") is None:
        pytest.skip("etcdctl is not on PATH")
    line = await until(lambda: told(full))
    assert "etcdctl alarm disarm" in line
    after = {f"after-{number}" for number in range(5)}
    for name in sorted(after):
        await full.add_pod(name)
    script = "set -eu\n" + "\n".join(steps()).replace("URL", full.etcd.endpoint)
    done = await asyncio.create_subprocess_exec("sh", "-c", script)
    assert await done.wait() == 0
    await full.wait_bound(after)
    bound = bindings_per_uid(await full.audit_until_now())
    assert len(bound) == 10
    assert all(len(nodes) == 1 for nodes in bound.values())
    # nobody was ended by what could not be written: only a lease that was not renewed in time ends a process
    assert {code for service in full.services.values() for code in service.codes} <= {3}


@pytest.mark.parametrize("full", ["own"], indirect=True)
async def test_a_mesh_makes_room_in_an_etcd_of_its_own_also_when_its_leader_is_killed_while_it_is_full(
    full: Mesh,
) -> None:
    after = {f"after-{number}" for number in range(5)}
    full.kill(await full.leader())
    for name in sorted(after):
        await full.add_pod(name)
    await full.wait_bound(after)
    assert await until(lambda: well(full))
