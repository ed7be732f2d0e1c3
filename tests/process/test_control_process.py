"""What operators say survives a killed leader; a rolling restart of every service under load loses no pod."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.coordinator.settings import RUNTIME_SETTINGS
from shared.adapters.etcd.channel import EtcdSettings
from shared.adapters.etcd.store import EtcdStore
from shared.runtime.records.admin import read_terms
from shared.runtime.records.control import set_drained, set_paused
from shared.runtime.records.settings import change_settings
from shared.wire.keys import Keys
from tests.patience import PATIENCE_S
from tests.process.mesh import Mesh, bindings_per_uid

pytestmark = [pytest.mark.process, pytest.mark.etcd]

KEYS = Keys()


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@asynccontextmanager
async def store_of(mesh: Mesh) -> AsyncIterator[EtcdStore]:
    store = EtcdStore(EtcdSettings(endpoints=(mesh.etcd.endpoint,)))
    try:
        yield store
    finally:
        await store.close()


async def queue(mesh: Mesh) -> dict[str, int]:
    """The leader's queue; empty while nobody leads."""
    name = await mesh.leader()
    with contextlib.suppress(OSError):
        found: dict[str, int] = (await mesh.get(name, "/v1/status")).get("queue", {})
        return found
    return {}


async def until(mesh: Mesh, holds: Callable[[dict[str, int]], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if holds(await queue(mesh)):
                return
            await asyncio.sleep(0.05)


async def until_logged(log: Path, event: str) -> None:
    """Another process's log can only be polled."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if event in await asyncio.to_thread(log.read_text):
                return
            await asyncio.sleep(0.05)


async def bound(mesh: Mesh) -> dict[str, str]:
    return {p["metadata"]["name"]: p["spec"]["nodeName"] for p in await mesh.pods() if p["spec"].get("nodeName")}


async def test_a_pause_a_drain_and_settings_outlive_a_killed_leader(tmp_path: Path) -> None:
    async with Mesh(tmp_path, agents=1, binders=1) as mesh, store_of(mesh) as store:
        await mesh.add_nodes(2)
        await set_drained(store, KEYS, "node-0", True, by="anna", reason="disk", now=now())
        await change_settings(
            store, KEYS, {"batch_units": 2}, by="anna", reason="", expected_number=0, now=now(),
            validate=RUNTIME_SETTINGS.validate,
        )  # fmt: skip
        first = await mesh.leader()
        await until_logged(mesh.services[first].log, '"node_drained"')
        await mesh.add_pod("before")
        await mesh.wait_bound({"before"})
        await set_paused(store, KEYS, True, by="anna", reason="works", now=now())
        mesh.services[first].ended.clear()
        mesh.services[first].may_start.clear()  # else it may be back in time to win again
        mesh.kill(first)
        await mesh.services[first].ended.wait()
        # the next leader has listed everything, what operators said first, when it shows the pods
        names = {f"p{number}" for number in range(5)}
        for name in sorted(names):
            await mesh.add_pod(name)
        await until(mesh, lambda counts: counts.get("active") == len(names))
        assert set(await bound(mesh)) == {"before"}
        assert await mesh.leader() != first
        mesh.services[first].may_start.set()
        await set_paused(store, KEYS, False, by="anna", reason="", now=now())
        await mesh.wait_bound(names)
        assert set((await bound(mesh)).values()) == {"node-1"}, "the drained node got none"
        terms = await read_terms(store, KEYS)
        assert len({record.term for record in terms}) == len(terms) >= 2
        assert terms[-1].id == first
        second = mesh.services[await mesh.leader()]
        assert '"settings_changed"' in second.log.read_text()


async def restart(mesh: Mesh, name: str) -> None:
    """As a rollout does it: SIGTERM, and on when the successor is ready."""
    running = mesh.services[name]
    running.ready.clear()
    running.ended.clear()
    mesh.kill(name, signal.SIGTERM)
    async with asyncio.timeout(PATIENCE_S):
        await running.ended.wait()
        await running.ready.wait()


async def restart_one_by_one(mesh: Mesh, names: list[str]) -> None:
    for name in names:
        await restart(mesh, name)


async def test_a_rolling_restart_of_every_service_under_load_loses_no_pod(tmp_path: Path) -> None:
    async with Mesh(tmp_path) as mesh:
        await mesh.add_nodes(4, cpu="64", memory="64Gi", pods="500")
        leader = await mesh.leader()
        names: set[str] = set()
        enough = asyncio.Event()

        async def pods_come() -> None:
            while not enough.is_set():
                name = f"p{len(names)}"
                await mesh.add_pod(name)
                names.add(name)
                await asyncio.sleep(0.05)

        coming = asyncio.create_task(pods_come())
        services = [name for name in mesh.services if name != "twin"]
        deployments = [[n for n in services if n.startswith(s)] for s in ("coordinator", "agent", "binder")]
        deployments[0].sort(key=lambda name: name != leader)  # the leader first
        await asyncio.gather(*(restart_one_by_one(mesh, names) for names in deployments))
        assert await mesh.leader() in services
        enough.set()
        await coming
        await mesh.wait_bound(names)
        given = bindings_per_uid(await mesh.audit_until_now())
        assert len(given) == len(names), "a pod was lost"
        assert all(len(nodes) == 1 for nodes in given.values()), "a pod was bound twice"
        assert all(mesh.services[name].codes == [0] for name in services), "each ended by itself when it was asked to"
