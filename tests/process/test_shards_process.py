"""Two binders at work, each for its shard of nodes, as real processes; the nodes are divided under load.

Every pod ends bound exactly once, whoever had it when the shards changed, and no intent is left. A gang that fits only
across both shards is bound whole, also when the binder that lends is killed before or after it has told what it lends.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from shared.model.units.pod_group import GroupSource, group_key
from shared.runtime.process.failpoints import VARIABLE
from shared.scheduling.shards import Shards
from tests.patience import PATIENCE_S
from tests.process.mesh import Mesh
from tests.process.test_binder_process import add_pods, intents_left, nothing_was_bound_twice

pytestmark = [pytest.mark.process, pytest.mark.etcd]

NODES = 8
GANG = "g"
TOKEN = "admin-token-of-the-test"


async def divide(mesh: Mesh, *names: str, unmanned: bool = False) -> None:
    """As ``conclave shards set`` does; ``unmanned``: whether its binders lead or not."""
    url = f"{mesh.services['coordinator-0'].admin_url}/v1/shards"
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with mesh.session.put(url, json={"names": list(names), "unmanned": unmanned}, headers=headers) as response:
        assert response.status == 200, await response.text()


@asynccontextmanager
async def two_shards(folder: Path, home: dict[str, str], lender: dict[str, str]) -> AsyncIterator[Mesh]:
    """A mesh whose nodes of one core are divided in two. ``home``, ``lender``: environment of the first binders of
    shards 0 and 1; shard 1 has a standby, and its first binder is not started again."""
    tokens = folder / "tokens"
    tokens.write_text(f"{TOKEN} admin test\n")
    flags = {
        "coordinator": ["--admin-listen", "127.0.0.1:0", "--admin-token-file", str(tokens), "--cluster-lease-s", "0"]
    }
    twin = ["--kubernetes", "1.37"]
    async with Mesh(folder, coordinators=1, agents=1, binders=0, flags=flags, twin_flags=twin) as mesh:
        await mesh.add_nodes(NODES, cpu="1")
        common = ["--etcd", mesh.etcd.endpoint, "--kubeconfig", str(mesh.kubeconfig)]
        await mesh.start("binder-0", "binder", [*common, "--id", "binder-0"], home)
        await mesh.start("binder-1", "binder", [*common, "--id", "binder-1", "--shard", "1"], lender)
        await mesh.leader("coordinator")
        await divide(mesh, "0", "1", unmanned=True)
        await until(lambda: divided(mesh))
        mesh.services["binder-1"].wanted = False
        await mesh.start("standby", "binder", [*common, "--id", "standby", "--shard", "1"])
        yield mesh


async def until(reached: Callable[[], Awaitable[bool]]) -> None:
    """Ask until it is so."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if await reached():
                return
            await asyncio.sleep(0.05)


async def divided(mesh: Mesh) -> bool:
    """Whether binder-1 has begun anew, under the new shards."""
    try:
        status = await mesh.get("binder-1", "/v1/status")
    except aiohttp.ClientError:
        return False
    return bool(status.get("accepting")) and len(status["shards"]) == 2


async def add_wide_gang(mesh: Mesh) -> set[str]:
    """A gang that takes every node; its home is shard 0. The names of its members."""
    assert Shards(("0", "1")).of(group_key(GroupSource.NATIVE, "default", GANG)) == "0"
    policy = {"gang": {"minCount": NODES}}
    body = {"metadata": {"name": GANG, "namespace": "default"}, "spec": {"schedulingPolicy": policy}}
    kind = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup"}
    await mesh.create("/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups", kind | body)
    names = {f"wide-{number}" for number in range(NODES)}
    for name in sorted(names):
        await mesh.add_pod(name, cpu="1", schedulingGroup={"podGroupName": GANG})
    return names


async def bound_whole(mesh: Mesh, names: set[str]) -> None:
    await mesh.wait_bound(names)
    assert len({pod["spec"]["nodeName"] for pod in await mesh.pods()}) == NODES
    await until(lambda: nothing_left(mesh))


async def nothing_left(mesh: Mesh) -> bool:
    return await intents_left(mesh) == 0


async def lent(mesh: Mesh) -> bool:
    return bool((await mesh.get("binder-1", "/v1/stats"))["binder"].get("lent"))


async def test_a_gang_that_fits_only_across_shards_is_bound_whole(tmp_path: Path) -> None:
    async with two_shards(tmp_path, {}, {}) as mesh:
        names = await add_wide_gang(mesh)
        await bound_whole(mesh, names)
        assert await lent(mesh)
    nothing_was_bound_twice(mesh, names)


async def test_a_lender_killed_before_it_has_told_is_succeeded_and_the_gang_bound_whole(tmp_path: Path) -> None:
    async with two_shards(tmp_path, {}, {VARIABLE: "after_lend=kill"}) as mesh:
        names = await add_wide_gang(mesh)
        await bound_whole(mesh, names)
        assert mesh.services["binder-1"].codes[-1] == -signal.SIGKILL
    nothing_was_bound_twice(mesh, names)


async def test_a_lender_killed_before_the_home_commits_is_succeeded_and_the_gang_bound_whole(tmp_path: Path) -> None:
    """The home stands still with the loan in hand until the lender's lease is over."""
    async with two_shards(tmp_path, {VARIABLE: "before_gang_head=pause:6"}, {}) as mesh:
        names = await add_wide_gang(mesh)
        await until(lambda: lent(mesh))
        mesh.kill("binder-1", signal.SIGKILL)
        await bound_whole(mesh, names)
    nothing_was_bound_twice(mesh, names)


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
        await mesh.wait_bound(names)
        assert (await mesh.get("binder-1", "/v1/stats"))["binder"]["bound"] == 0
        names |= await add_pods(mesh, "amid", 40)
        await divide(mesh, "0", "1")
        names |= await add_pods(mesh, "after", 40)
        await mesh.wait_bound(names)
        assert 3 in mesh.services["binder-0"].codes, "it began anew"
        shards = Shards(("0", "1"))
        nodes = {pod["spec"]["nodeName"] for pod in await mesh.pods()}
        assert {shards.of(node) for node in nodes} == {"0", "1"}
        assert (await mesh.get("binder-1", "/v1/stats"))["binder"]["bound"] > 0
        mesh.kill("binder-1", signal.SIGKILL)
        names |= await add_pods(mesh, "later", 40)
        await mesh.wait_bound(names)
        assert await intents_left(mesh) == 0
    nothing_was_bound_twice(mesh, names)
