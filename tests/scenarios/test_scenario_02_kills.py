"""Scenario 2: each service killed or stopped while 200 pods wait: all are bound within 10 s, none twice, none lost.

Gödel strands a killed scheduler's queue for 2 to 2.5 minutes and lets a stalled one bind late. Whoever was stopped past
its lease must find itself deposed when it goes on: ``world`` checks that nothing was bound twice or over-committed.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.scenarios.world import World, length, world

pytestmark = [pytest.mark.process, pytest.mark.etcd]

PODS = 200
RECOVERY_S = 10.0


async def victim_of(cluster: World, service: str) -> str:
    return "agent-0" if service == "agent" else await cluster.mesh.leader(service)


async def start_pods(cluster: World, prefix: str) -> set[str]:
    """The pods are created; the first of them are bound when this returns."""
    names = await cluster.add_pods((f"{prefix}-{number:03}" for number in range(PODS)), cpu="10m")
    await cluster.until(lambda c: bool(c.bound_names(prefix)), within_s=10, what="the first is bound")
    return names


@pytest.mark.parametrize("service", ["agent", "coordinator", "binder"])
async def test_a_kill_costs_ten_seconds_at_most_and_no_pod(tmp_path: Path, service: str) -> None:
    async with world(tmp_path, agents=2) as cluster:
        for number in range(4):
            await cluster.add_node(f"n{number}")
        victim = await victim_of(cluster, service)
        names = await start_pods(cluster, "p")
        cluster.mesh.kill(victim)
        await cluster.until(lambda c: c.bound(*names), within_s=RECOVERY_S, what=f"all after {victim}'s death")
        # it comes back by its supervisor, and joins without disturbing anybody
        async with asyncio.timeout(PATIENCE_S):
            await cluster.mesh.services[victim].ready.wait()
        again = await cluster.add_pods((f"q-{number:03}" for number in range(20)), cpu="10m")
        await cluster.until(lambda c: c.bound(*again), within_s=RECOVERY_S, what="all after the return")


@pytest.mark.parametrize("service", ["agent", "coordinator", "binder"])
async def test_one_stopped_past_its_lease_is_succeeded_and_does_no_harm_when_it_goes_on(
    tmp_path: Path, service: str
) -> None:
    async with world(tmp_path, agents=2) as cluster:
        for number in range(4):
            await cluster.add_node(f"n{number}")
        victim = await victim_of(cluster, service)
        names = await start_pods(cluster, "p")
        cluster.mesh.kill(victim, signal.SIGSTOP)
        stalled = asyncio.create_task(asyncio.sleep(length(short=5, full=60)))
        names |= await cluster.add_pods((f"during-{number:03}" for number in range(20)), cpu="10m")
        await cluster.until(lambda c: c.bound(*names), within_s=RECOVERY_S, what=f"all while {victim} stands still")
        await stalled
        cluster.mesh.kill(victim, signal.SIGCONT)
        again = await cluster.add_pods((f"after-{number:03}" for number in range(50)), cpu="10m")
        await cluster.until(lambda c: c.bound(*again), within_s=RECOVERY_S, what="all after it goes on")


@pytest.mark.parametrize("fault", ["killed", "stopped"])
async def test_an_etcd_member_that_fails_costs_ten_seconds_at_most_and_no_pod(tmp_path: Path, fault: str) -> None:
    async with world(tmp_path, agents=2, etcd_members=3) as cluster:
        for number in range(4):
            await cluster.add_node(f"n{number}")
        names = await start_pods(cluster, "p")
        member = cluster.mesh.members[0]
        if fault == "killed":
            await member.kill()
        else:
            member.pause()
        names |= await cluster.add_pods((f"during-{number:03}" for number in range(20)), cpu="10m")
        await cluster.until(lambda c: c.bound(*names), within_s=RECOVERY_S, what=f"all while a member is {fault}")
        if fault == "killed":
            await member.start()
        else:
            member.resume()
        again = await cluster.add_pods((f"after-{number:03}" for number in range(50)), cpu="10m")
        await cluster.until(lambda c: c.bound(*again), within_s=RECOVERY_S, what="all after its return")
