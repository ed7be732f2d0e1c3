"""A real binder killed at steps of a gang's way: its successor ends with all of it bound, each pod once.

Every step is tried in memory (``test_binder_gang_crashes.py``); here some of them, to see that the named failpoints are
where they say and that nothing of it rests on an etcd of our own making. The test is the coordinator.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import aiohttp
import pytest

from shared.adapters.etcd.channel import EtcdSettings
from shared.adapters.etcd.store import EtcdStore
from shared.ports import Put
from shared.runtime.process.failpoints import VARIABLE
from shared.wire.codec import MEDIA_TYPE, decode, encode
from shared.wire.keys import Keys
from shared.wire.messages import VERSION, Gang, Outcome, Placement, Plan, PlanResult
from tests.patience import PATIENCE_S
from tests.process.mesh import Mesh, bindings_per_uid
from tests.process.test_binder_process import intents_left

pytestmark = [pytest.mark.process, pytest.mark.etcd]

MEMBERS = 8


async def take_the_lead(store: EtcdStore) -> int:
    """A coordinator's term."""
    return (await store.txn([], [Put(Keys().coordinator_leader, b"{}")])).revision


async def plan_for(mesh: Mesh, term: int) -> Plan:
    """All pods there are as one gang that needs each of them."""
    pods = sorted(await mesh.pods(), key=lambda pod: str(pod["metadata"]["name"]))
    placements = [
        Placement(
            number, pod["metadata"]["uid"], "default", pod["metadata"]["name"], pod["metadata"]["resourceVersion"],
            f"node-{number % 2}",
        )
        for number, pod in enumerate(pods, start=1)
    ]  # fmt: skip
    units = [placement.unit for placement in placements]
    return Plan(VERSION, 1, 0, term, 1, placements, [], [Gang(len(pods) + 1, "podgroup:default/g", units, len(pods))])


async def told(mesh: Mesh, plan: Plan) -> PlanResult:
    """The plan's answer, from whichever binder leads; asked until one gives it, as a coordinator does."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for name in ("binder-0", "binder-1"):
                url = mesh.services[name].url + "/v1/plans"
                try:
                    async with mesh.session.post(url, data=encode(plan), headers={"Content-Type": MEDIA_TYPE}) as got:
                        if got.status == 200:
                            return decode(await got.read(), PlanResult)
                except aiohttp.ClientError:
                    pass
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("place", ["before_gang_head", "after_gang_first_bind", "before_gang_clear"])
async def test_a_binder_killed_at_a_step_of_a_gang_is_succeeded_and_the_gang_bound_whole(
    tmp_path: Path, place: str
) -> None:
    async with Mesh(tmp_path, coordinators=0, agents=0, binders=0) as mesh:
        await mesh.add_nodes(2)
        for number in range(MEMBERS):
            await mesh.add_pod(f"pod-{number}")
        await mesh.start("binder-0", "binder", [*flags(mesh), "--id", "binder-0"], {VARIABLE: f"{place}=kill"})
        mesh.services["binder-0"].wanted = False
        assert await mesh.leader("binder") == "binder-0"
        await mesh.start("binder-1", "binder", [*flags(mesh), "--id", "binder-1"])
        store = EtcdStore(EtcdSettings(endpoints=(mesh.etcd.endpoint,)))
        try:
            plan = await plan_for(mesh, await take_the_lead(store))
            first = await told(mesh, plan)
            async with asyncio.timeout(PATIENCE_S):
                await mesh.services["binder-0"].ended.wait()
            assert mesh.services["binder-0"].codes == [-signal.SIGKILL]
            assert {result.outcome for result in first.results} <= {Outcome.BOUND, Outcome.UNRESOLVED}
            await mesh.wait_bound({f"pod-{number}" for number in range(MEMBERS)})
            assert await mesh.leader("binder") == "binder-1"
            assert await intents_left(mesh) == 0
        finally:
            await store.close()
    bound = bindings_per_uid(mesh.audit_entries())
    assert len(bound) == MEMBERS
    assert all(len(nodes) == 1 for nodes in bound.values()), bound


def flags(mesh: Mesh) -> list[str]:
    return ["--etcd", mesh.etcd.endpoint, "--kubeconfig", str(mesh.kubeconfig), "--validate"]
