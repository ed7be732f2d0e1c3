"""Leaders killed beside warm standbys, on real etcd and the twin's API server: what a takeover asks for and reads.

Counted, not timed: what stands on the nodes is more than a page of pods, and a takeover reads none of it. Whoever is
killed, pods that came while nobody led are placed in the order in which they came, and nothing is bound twice.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from shared.runtime.kube.reflector import SMALL
from tests.patience import PATIENCE_S
from tests.process.mesh import Mesh, bindings_per_uid
from tests.process.test_binder_process import intents_left

pytestmark = [pytest.mark.process, pytest.mark.etcd]

STANDING = int(os.environ.get("STANDING_PODS", SMALL + 100))
"""`make test-takeover` has a hundred thousand."""
EACH = 1000
"""Pods of 1m that fill a node of theirs."""
NODE = "node-0"
LATE = ("z", "m", "a")
"""Each wants most of the node: the first one takes it. By name they stand the other way round."""


@asynccontextmanager
async def meshes(folder: Path, *services: str, standby: str = "warm", lease_ttl_s: int = 3) -> AsyncIterator[Mesh]:
    """``SERVICE-0`` leads of each, ``SERVICE-1`` stands by and is as warm as it gets."""
    async with Mesh(folder, coordinators=0, agents=0, binders=0) as mesh:
        await mesh.add_nodes(1)
        await mesh.add_nodes(-(-STANDING // EACH), cpu="1", pods="2000", named="full")
        await asyncio.gather(*(standing(mesh, part) for part in range(8)))
        for number in (0, 1):
            for service in services:
                name = f"{service}-{number}"
                flags = ["--etcd", mesh.etcd.endpoint, "--kubeconfig", str(mesh.kubeconfig)]
                flags += ["--validate"] if STANDING < EACH else []  # looks at every pod after each turn
                flags += [] if service == "binder" else ["--embedded-agent"]
                flags += ["--id", name, f"--standby={standby}", f"--lease-ttl-s={lease_ttl_s}"]
                await mesh.start(name, service, flags)
                if number == 0:
                    await leads(mesh, name)
        for service in services if standby == "warm" else ():
            await until(mesh, f"{service}-1", lambda told: told["mirror"]["warm"])
        yield mesh


async def standing(mesh: Mesh, part: int) -> None:
    """An eighth of the pods that are there before anybody looks."""
    for number in range(part, STANDING, 8):
        await mesh.add_pod(f"stands-{number}", cpu="1m", memory="1Mi", nodeName=f"full-{number // EACH}")


async def until(mesh: Mesh, name: str, holds: Any) -> dict[str, Any]:
    """Its figures, once they are such."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            told = await mesh.get(name, "/v1/stats")
            if holds(told):
                return told
            await asyncio.sleep(0.05)


def roles_of(name: str) -> tuple[str, ...]:
    service = name.partition("-")[0]
    return ("coordinator", "binder") if service == "single" else (service,)


async def leads(mesh: Mesh, name: str) -> None:
    await until(mesh, name, lambda told: all(told[role]["leading"] for role in roles_of(name)))


def more(after: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    return {what: count - before.get(what, 0) for what, count in after.items() if count > before.get(what, 0)}


def bound_late(mesh: Mesh) -> Iterator[tuple[str, list[str]]]:
    """Nodes that each of the late pods was given."""
    entries = mesh.audit_entries()
    names = {entry["object"]["metadata"]["uid"]: entry["name"] for entry in entries if entry["kind"] == "Pod"}
    for uid, nodes in bindings_per_uid(entries).items():
        if names[uid] in LATE:
            yield names[uid], nodes


CASES = {
    "leader": (("coordinator", "binder"), ("coordinator",)),
    "binder": (("coordinator", "binder"), ("binder",)),
    "both": (("coordinator", "binder"), ("coordinator", "binder")),
    "single": (("single",), ("single",)),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_warm_standby_takes_over_with_one_look_at_the_pods_and_keeps_their_order(
    tmp_path: Path, case: str
) -> None:
    services, victims = CASES[case]
    async with meshes(tmp_path, *services) as mesh:
        heirs = [f"{service}-1" for service in victims]
        before = {heir: (await mesh.get(heir, "/v1/stats"))["kube"] for heir in heirs}
        for service in victims:
            mesh.services[f"{service}-0"].may_start.clear()
            mesh.kill(f"{service}-0")
        for name in LATE:
            await mesh.add_pod(name, cpu="3")
        await mesh.wait_bound({LATE[0]})
        for heir in heirs:
            await leads(mesh, heir)
            told = await mesh.get(heir, "/v1/stats")
            read, asked = (more(told["kube"][what], before[heir][what]) for what in ("read", "requests"))
            assert read == {}, "nothing was listed"
            assert 1 <= asked["list pods"] <= len(roles_of(heir)), "where the server is, once for each role"
            assert told["mirror"]["objects"] == 0, "nobody else is to come"
        assert await intents_left(mesh) == 0
    assert list(bound_late(mesh)) == [(LATE[0], [NODE])]


@pytest.mark.parametrize("case", ["leader", "binder", "both"])
async def test_a_leader_whose_process_is_killed_is_missed_at_once_however_long_its_lease(
    tmp_path: Path, case: str
) -> None:
    """The lease is longer than this test waits, and whoever is killed stays down."""
    services, victims = CASES[case]
    async with meshes(tmp_path, *services, lease_ttl_s=600) as mesh:
        for service in victims:
            mesh.services[f"{service}-0"].may_start.clear()
            mesh.kill(f"{service}-0")
        await mesh.add_pod(LATE[0], cpu="3")
        await mesh.wait_bound({LATE[0]})
        for service in victims:
            await leads(mesh, f"{service}-1")


@pytest.mark.parametrize("service", ["coordinator", "binder"])
async def test_a_leader_that_is_started_again_lets_the_warm_standby_lead(tmp_path: Path, service: str) -> None:
    """It would have to list everything, as its predecessor's place is all that it has; here it comes back first."""
    async with meshes(tmp_path, "coordinator", "binder", lease_ttl_s=40) as mesh:  # the stopped one stays listed
        before = (await mesh.get(f"{service}-1", "/v1/stats"))["kube"]["read"]
        mesh.kill(f"{service}-1", signal.SIGSTOP)  # it hears of nothing before the other one is there again
        mesh.services[f"{service}-0"].ready.clear()
        mesh.kill(f"{service}-0")
        async with asyncio.timeout(PATIENCE_S):
            await mesh.services[f"{service}-0"].ready.wait()
        mesh.kill(f"{service}-1", signal.SIGCONT)
        await mesh.add_pod(LATE[0], cpu="3")
        await mesh.wait_bound({LATE[0]})
        await leads(mesh, f"{service}-1")
        assert more((await mesh.get(f"{service}-1", "/v1/stats"))["kube"]["read"], before) == {}


async def test_a_cold_standby_watches_nothing_and_lists_all_that_there_is(tmp_path: Path) -> None:
    """The setting for small machines; and what the counts of the test above would show without a mirror."""
    async with meshes(tmp_path, "coordinator", "binder", standby="cold") as mesh:
        for heir in ("coordinator-1", "binder-1"):
            told = await mesh.get(heir, "/v1/stats")
            assert (told["mirror"], told["kube"]["read"]) == ({"objects": 0, "warm": False}, {})
        for service in ("coordinator", "binder"):
            mesh.services[f"{service}-0"].may_start.clear()
            mesh.kill(f"{service}-0")
        await mesh.add_pod(LATE[0], cpu="3")
        await mesh.wait_bound({LATE[0]})
        for heir in ("coordinator-1", "binder-1"):
            assert (await mesh.get(heir, "/v1/stats"))["kube"]["read"]["pods"] >= STANDING
