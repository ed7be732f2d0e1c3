"""A gang across a crash at each named step of its commit and of a group's preemption: none or the minimum, never half.

The process that leads dies by its own hand at the step (``CONCLAVE_FAILPOINT``); its successor finishes the gang. All
invariants, I5 among them, are held against the whole history by ``world``.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from shared.runtime.process.failpoints import VARIABLE
from tests.process.mesh import START_S
from tests.scenarios.groups.corner import Corner, priority_classes
from tests.scenarios.invariants import evictions_above, unjust_evictions
from tests.scenarios.world import FULL, World, world

pytestmark = [pytest.mark.process, pytest.mark.etcd]

RECOVERY_S = 30.0

BINDER_STEPS = [("after_gang_first_bind", 2), ("before_gang_next_bind@30", 64)]
COORDINATOR_STEPS = [("after_gang_plan", 64)]
VICTIMS_STEPS = [("binder", "before_evict@2"), ("coordinator", "after_victims_plan")]
if FULL:
    names = ["before_gang_head", "after_gang_head", "before_gang_first_bind", "after_gang_first_bind",
             "before_gang_next_bind", "after_gang_next_bind", "before_gang_clear", "after_gang_clear"]  # fmt: skip
    BINDER_STEPS = [(name, size) for size in (2, 64, 500) for name in names]
    COORDINATOR_STEPS = [(name, size) for size in (2, 64, 500) for name in ("before_gang_plan", "after_gang_plan")]
    VICTIMS_STEPS += [("binder", "before_evict"), ("coordinator", "before_victims_plan"),
                      ("coordinator", "before_nominate"), ("coordinator", "before_nominate@2")]  # fmt: skip
    BINDER_STEPS += [("before_gang_link", 500), ("after_gang_link", 500), ("after_gang_next_bind@250", 500)]


async def lead_armed(cluster: World, service: str, failpoint: str) -> str:
    """Have a process lead that dies when it reaches ``failpoint``, once; its name. The other one stands by, unarmed."""
    leader = await cluster.mesh.leader(service)
    (armed,) = (name for name in cluster.mesh.services if name.startswith(service) and name != leader)
    running, before = cluster.mesh.services[armed], cluster.mesh.services[leader]
    async with asyncio.timeout(START_S):
        await kill_and_hold(cluster, armed)
        running.environ[VARIABLE] = f"{failpoint}=kill"
        running.may_start.set()
        await running.ready.wait()
        del running.environ[VARIABLE]
        await kill_and_hold(cluster, leader)
        assert await cluster.mesh.leader(service) == armed
        before.may_start.set()
        await before.ready.wait()
        running.ended.clear()
    return armed


async def kill_and_hold(cluster: World, name: str) -> None:
    """The process is dead, and stays so until it may start."""
    running = cluster.mesh.services[name]
    running.may_start.clear()
    running.ended.clear()
    cluster.mesh.kill(name)
    await running.ended.wait()
    running.ready.clear()


async def died(cluster: World, name: str) -> None:
    """The process has reached its failpoint."""
    running = cluster.mesh.services[name]
    async with asyncio.timeout(RECOVERY_S):
        await running.ended.wait()
    assert running.codes[-1] == -signal.SIGKILL


async def crash_at(cluster: World, corner: Corner, service: str, failpoint: str, size: int) -> None:
    """A gang of this size is bound whole though the leader dies at the step."""
    armed = await lead_armed(cluster, service, failpoint)
    names = await corner.gang("g", size, cpu="10m")
    await died(cluster, armed)
    await corner.all_bound(names, f"the gang of {size} is whole after a death at {failpoint}", within_s=RECOVERY_S)
    await corner.delete(*names)
    async with asyncio.timeout(START_S):
        await cluster.mesh.services[armed].ready.wait()


async def test_a_gang_is_whole_after_a_death_at_any_step_of_its_commit(tmp_path: Path) -> None:
    steps = [("binder", *step) for step in BINDER_STEPS] + [("coordinator", *step) for step in COORDINATOR_STEPS]
    async with world(tmp_path, agents=2) as cluster:
        for number, (service, failpoint, size) in enumerate(steps):
            corner = Corner(cluster, f"step-{number}")
            await corner.nodes(8)
            await crash_at(cluster, corner, service, failpoint, size)


async def test_a_preemption_by_a_group_is_finished_after_a_death_and_costs_no_more(tmp_path: Path) -> None:
    flags = ["--simulate", "--kubernetes", "1.37"]
    async with world(tmp_path, agents=2, twin_flags=flags, but=[unjust_evictions]) as cluster:
        await priority_classes(cluster, low=10, high=1000)
        for number, (service, failpoint) in enumerate(VICTIMS_STEPS):
            corner = Corner(cluster, f"preempt-{number}")
            await corner.nodes(4, cpu="1")
            lows = await corner.pods("low", 4, priorityClassName="low")
            await corner.all_bound(lows)
            armed = await lead_armed(cluster, service, failpoint)
            names = await corner.gang("g", 3, priorityClassName="high")
            await died(cluster, armed)
            await corner.all_bound(names, "the group has its places", within_s=RECOVERY_S)
            async with asyncio.timeout(START_S):
                await cluster.mesh.services[armed].ready.wait()
    assert evictions_above(cluster.history, 3 * len(VICTIMS_STEPS)) == []
