"""Binders as real processes on real etcd and the twin's API server: killed and paused at the worst places.

The leader is armed with a failpoint, the standby is not. Whatever happens to the leader between its transaction and its
Binding, every pod ends bound exactly once, nothing is lost, and no intent is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shared.adapters.etcd.channel import EtcdSettings
from shared.adapters.etcd.store import EtcdStore
from shared.runtime.process.failpoints import VARIABLE
from shared.wire.keys import Keys
from tests.patience import PATIENCE_S
from tests.process.mesh import Mesh, bindings_per_uid

pytestmark = [pytest.mark.process, pytest.mark.etcd]

PODS = 12


@asynccontextmanager
async def mesh_with(folder: Path, failpoint: str, *flags: str) -> AsyncIterator[Mesh]:
    """A mesh whose first binder leads and is armed; a second one stands by."""
    environ = {"CONCLAVE_LOG_LEVEL": "info"}
    async with Mesh(folder, coordinators=1, agents=1, binders=0, environ=environ) as mesh:
        await mesh.add_nodes(3)
        common = ["--etcd", mesh.etcd.endpoint, "--kubeconfig", str(mesh.kubeconfig), *flags]
        if failpoint:
            environ[VARIABLE] = failpoint
        await mesh.start("binder-0", "binder", [*common, "--id", "binder-0"])
        environ.pop(VARIABLE, None)
        mesh.services["binder-0"].wanted = False  # once it has ended it stays so: its exit code is looked at
        assert await mesh.leader("binder") == "binder-0"
        await mesh.start("binder-1", "binder", [*common, "--id", "binder-1"])
        yield mesh


async def add_pods(mesh: Mesh, prefix: str, count: int = PODS) -> set[str]:
    names = {f"{prefix}-{number}" for number in range(count)}
    for name in sorted(names):
        await mesh.add_pod(name)
    return names


async def intents_left(mesh: Mesh) -> int:
    """Intents in etcd once the last ones had time to be cleared."""
    store, left = EtcdStore(EtcdSettings(endpoints=(mesh.etcd.endpoint,))), 0
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while left := len((await store.list_prefix(Keys().intents_prefix)).items):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        return left
    finally:
        await store.close()


def nothing_was_bound_twice(mesh: Mesh, names: set[str]) -> None:
    bound = bindings_per_uid(mesh.audit_entries())
    assert len(bound) == len(names)
    assert all(len(nodes) == 1 for nodes in bound.values()), bound


@pytest.mark.parametrize("place", ["before_commit", "after_commit", "before_bind", "after_bind"])
async def test_a_leader_killed_at_any_gap_is_replaced_and_its_intents_finished(tmp_path: Path, place: str) -> None:
    async with mesh_with(tmp_path, f"{place}=kill") as mesh:
        names = await add_pods(mesh, "pod")
        await mesh.wait_bound(names)
        async with asyncio.timeout(PATIENCE_S):
            await mesh.services["binder-0"].ended.wait()
        assert mesh.services["binder-0"].codes == [-signal.SIGKILL]
        assert await mesh.leader("binder") == "binder-1"
        assert await intents_left(mesh) == 0
    nothing_was_bound_twice(mesh, names)


async def test_a_leader_hung_past_its_lease_before_the_binding_ends_and_its_late_binding_is_harmless(
    tmp_path: Path,
) -> None:
    """It passed its last look at the lease, then stood still; meanwhile its successor finished the intent."""
    async with mesh_with(tmp_path, "before_bind=pause:9", "--hung-after-s=2") as mesh:
        names = await add_pods(mesh, "pod")
        await mesh.wait_bound(names)
        async with asyncio.timeout(PATIENCE_S):
            await mesh.services["binder-0"].ended.wait()
        assert mesh.services["binder-0"].codes == [3]
        assert await intents_left(mesh) == 0
    nothing_was_bound_twice(mesh, names)


async def test_a_leader_stopped_past_its_lease_under_load_ends_with_code_3(tmp_path: Path) -> None:
    async with mesh_with(tmp_path, "") as mesh:
        names = await add_pods(mesh, "before")
        mesh.kill("binder-0", signal.SIGSTOP)
        names |= await add_pods(mesh, "during")
        await mesh.wait_bound(names)
        mesh.kill("binder-0", signal.SIGCONT)
        async with asyncio.timeout(PATIENCE_S):
            await mesh.services["binder-0"].ended.wait()
        assert mesh.services["binder-0"].codes == [3]
        names |= await add_pods(mesh, "after")
        await mesh.wait_bound(names)
        assert await intents_left(mesh) == 0
    nothing_was_bound_twice(mesh, names)


async def test_a_leader_told_to_stop_finishes_resigns_and_is_succeeded(tmp_path: Path) -> None:
    async with mesh_with(tmp_path, "") as mesh:
        names = await add_pods(mesh, "before", 40)
        mesh.kill("binder-0", signal.SIGTERM)
        names |= await add_pods(mesh, "after", 40)
        await mesh.wait_bound(names)
        async with asyncio.timeout(PATIENCE_S):
            await mesh.services["binder-0"].ended.wait()
        assert mesh.services["binder-0"].codes == [0]
        assert await intents_left(mesh) == 0
    nothing_was_bound_twice(mesh, names)
