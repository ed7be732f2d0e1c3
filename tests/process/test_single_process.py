"""The mesh in one process: two of them on a real etcd and the twin's API server, killed, paused and robbed of one key.

Whatever happens to the one that leads, every pod ends bound exactly once, and no intent is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from shared.adapters.etcd.channel import EtcdSettings
from shared.adapters.etcd.store import EtcdStore
from shared.ports import DeleteKey
from shared.wire.keys import Keys
from tests.patience import PATIENCE_S
from tests.process.mesh import Mesh
from tests.process.test_binder_process import add_pods, intents_left, nothing_was_bound_twice

pytestmark = [pytest.mark.process, pytest.mark.etcd]

ROLES = ("coordinator", "binder")
NODES, BURST = 8, 120


@asynccontextmanager
async def meshes(folder: Path, *, binder: bool = False) -> AsyncIterator[Mesh]:
    """``single-0`` leads, ``single-1`` stands by; with ``binder`` it is alone, and one in another process leads."""
    async with Mesh(folder, coordinators=0, agents=0, binders=0) as mesh:
        await mesh.add_nodes(NODES)
        common = ["--etcd", mesh.etcd.endpoint, "--kubeconfig", str(mesh.kubeconfig), "--validate"]
        if binder:
            await mesh.start("binder-0", "binder", [*common, "--id", "binder-0"])
            mesh.services["binder-0"].wanted = False
            assert await mesh.leader("binder") == "binder-0"
        for number in (0,) if binder else (0, 1):
            name = f"single-{number}"
            await mesh.start(name, "single", [*common, "--id", name])
            await leads(mesh, name, ("coordinator",) if binder else ROLES, number == 0)
        yield mesh


async def figures(mesh: Mesh, name: str) -> dict[str, Any]:
    """Of a process; nothing where it does not answer."""
    with contextlib.suppress(aiohttp.ClientError, OSError):
        return await mesh.get(name, "/v1/stats")
    return {}


async def leads(mesh: Mesh, name: str, roles: tuple[str, ...], wanted: bool = True) -> None:
    """Return once the process leads in every one of the roles, or in none."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            told = await figures(mesh, name)
            if told and all(told[role]["leading"] == wanted for role in roles):
                return
            await asyncio.sleep(0.05)


async def coordinating(mesh: Mesh, names: tuple[str, ...]) -> str:
    """Who leads as coordinator."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for name in names:
                if (await figures(mesh, name)).get("coordinator", {}).get("leading"):
                    return name
            await asyncio.sleep(0.05)


async def listed(store: EtcdStore, keys: set[str], prefix: str) -> None:
    """Return once these are all keys under the prefix."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if {kv.key for kv in (await store.list_prefix(prefix)).items} == keys:
                return
            await asyncio.sleep(0.05)


async def ended(mesh: Mesh, name: str) -> int:
    """The exit code of its first life."""
    async with asyncio.timeout(PATIENCE_S):
        while not mesh.services[name].codes:
            await mesh.services[name].ended.wait()
    return mesh.services[name].codes[0]


async def test_one_process_binds_pods_shows_both_roles_and_sends_itself_nothing(tmp_path: Path) -> None:
    async with meshes(tmp_path) as mesh:
        names = await add_pods(mesh, "pod", BURST)
        await mesh.wait_bound(names)
        status, told = await mesh.get("single-0", "/v1/status"), await figures(mesh, "single-0")
        assert status["leading"]
        assert status["synced"]
        assert (status["binder"]["leading"], status["binder"]["accepting"]) == (True, True)
        assert status["binders"]["0"]["url"] == mesh.services["single-0"].url
        assert told["binder"]["bound"] == BURST
        assert (told["coordinator"]["plan_bytes"], told["coordinator"]["offer_bytes"]) == (0, 0)
        async with mesh.session.get(mesh.services["single-0"].url + "/metrics") as response:
            shown = (await response.text()).splitlines()
        assert {f'conclave_leader{{role="{role}"}} 1.0' for role in ROLES} <= set(shown)
        store = EtcdStore(EtcdSettings(endpoints=(mesh.etcd.endpoint,)))
        try:
            for role in ROLES:
                await listed(store, {Keys().member(role, f"single-{n}") for n in (0, 1)}, Keys().members_prefix(role))
        finally:
            await store.close()
        assert await intents_left(mesh) == 0
    nothing_was_bound_twice(mesh, names)


async def test_of_two_that_start_together_one_leads_in_both_roles(tmp_path: Path) -> None:
    async with Mesh(tmp_path, coordinators=0, agents=0, binders=0) as mesh:
        common = ["--etcd", mesh.etcd.endpoint, "--kubeconfig", str(mesh.kubeconfig), "--validate"]
        names = ("single-0", "single-1")
        await asyncio.gather(*(mesh.start(name, "single", [*common, "--id", name]) for name in names))
        leader = await coordinating(mesh, names)
        await leads(mesh, leader, ROLES)
        other = await figures(mesh, next(name for name in names if name != leader))
        assert [other[role]["leading"] for role in ROLES] == [False, False]


async def test_one_killed_amid_a_burst_is_succeeded_in_both_roles_and_nothing_is_lost_or_bound_twice(
    tmp_path: Path,
) -> None:
    async with meshes(tmp_path) as mesh:
        creating = asyncio.create_task(add_pods(mesh, "pod", BURST))
        await mesh.wait_bound({"pod-0"})
        mesh.services["single-0"].may_start.clear()  # else it may be back in time to win one of the two keys
        mesh.kill("single-0")
        names = await creating
        await mesh.wait_bound(names)
        assert await ended(mesh, "single-0") == -signal.SIGKILL
        await leads(mesh, "single-1", ROLES)
        assert await intents_left(mesh) == 0
    nothing_was_bound_twice(mesh, names)


async def test_one_stopped_past_its_leases_is_fenced_and_ends_with_code_3(tmp_path: Path) -> None:
    async with meshes(tmp_path) as mesh:
        names = await add_pods(mesh, "before", BURST)
        mesh.kill("single-0", signal.SIGSTOP)
        names |= await add_pods(mesh, "during")
        await mesh.wait_bound(names)
        mesh.kill("single-0", signal.SIGCONT)
        assert await ended(mesh, "single-0") == 3
        names |= await add_pods(mesh, "after")
        await mesh.wait_bound(names)
        assert await intents_left(mesh) == 0
    nothing_was_bound_twice(mesh, names)


@pytest.mark.parametrize("role", ROLES)
async def test_one_that_loses_either_role_ends_and_another_takes_both(tmp_path: Path, role: str) -> None:
    key = {"coordinator": Keys().coordinator_leader, "binder": Keys().binder_leader("0")}[role]
    async with meshes(tmp_path) as mesh:
        names = await add_pods(mesh, "before")
        mesh.services["single-0"].may_start.clear()
        store = EtcdStore(EtcdSettings(endpoints=(mesh.etcd.endpoint,)))
        try:
            await store.txn([], [DeleteKey(key)])
        finally:
            await store.close()
        assert await ended(mesh, "single-0") == 3
        await leads(mesh, "single-1", ROLES)
        names |= await add_pods(mesh, "after")
        await mesh.wait_bound(names)
        assert await intents_left(mesh) == 0
    nothing_was_bound_twice(mesh, names)


async def test_one_told_to_stop_settles_what_is_on_its_way_and_is_succeeded(tmp_path: Path) -> None:
    async with meshes(tmp_path) as mesh:
        names = await add_pods(mesh, "before", BURST)
        mesh.services["single-0"].may_start.clear()
        mesh.kill("single-0", signal.SIGTERM)
        names |= await add_pods(mesh, "after")
        await mesh.wait_bound(names)
        assert await ended(mesh, "single-0") == 0
        assert await intents_left(mesh) == 0
    nothing_was_bound_twice(mesh, names)


async def test_a_binder_elsewhere_is_sent_plans_and_succeeded_by_the_one_in_the_leaders_process(tmp_path: Path) -> None:
    """Its binder begins while the coordinator follows already: it is given all that a list shows."""
    async with meshes(tmp_path, binder=True) as mesh:
        names = await add_pods(mesh, "before", BURST)
        await mesh.wait_bound(names)
        told = await figures(mesh, "single-0")
        assert told["coordinator"]["plan_bytes"] > 0
        mesh.kill("binder-0")
        names |= await add_pods(mesh, "after", BURST)
        await mesh.wait_bound(names)
        told, status = await figures(mesh, "single-0"), await mesh.get("single-0", "/v1/status")
        assert [told[role]["leading"] for role in ROLES] == [True, True]
        assert status["binder"]["accounts"] == len(names), "it knows the pods that were bound before it came"
        assert await intents_left(mesh) == 0
    nothing_was_bound_twice(mesh, names)
