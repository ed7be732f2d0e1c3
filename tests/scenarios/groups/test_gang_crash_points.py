"""A gang across a crash at each named step of its commit and of a group's preemption: none or the minimum, never half.

The process that leads dies by its own hand at the step (``CONCLAVE_FAILPOINT``); its successor finishes the gang. All
invariants, I5 among them, are held against the whole history by ``world``.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path

import pytest

from shared.runtime.process.failpoints import VARIABLE
from tests.patience import PATIENCE_S
from tests.process.mesh import Mesh, Running
from tests.scenarios.groups.corner import Corner, priority_classes
from tests.scenarios.invariants import evictions_above, unjust_evictions
from tests.scenarios.world import FULL, World, world

pytestmark = [pytest.mark.process, pytest.mark.etcd]

RECOVERY_S = 60.0
"""A bound for a loaded machine, nothing that a test is about."""

Step = tuple[str, int]
"""A failpoint, and the size of the gang that meets it."""

BINDER_STEPS: list[Step] = [("after_gang_first_bind", 2), ("before_gang_next_bind@30", 64)]
COORDINATOR_STEPS: list[Step] = [("after_gang_plan", 64)]
BINDER_VICTIMS, COORDINATOR_VICTIMS = ["before_evict@2"], ["after_victims_plan"]
if FULL:
    names = ["before_gang_head", "after_gang_head", "before_gang_first_bind", "after_gang_first_bind",
             "before_gang_next_bind", "after_gang_next_bind", "before_gang_clear", "after_gang_clear"]  # fmt: skip
    BINDER_STEPS = [(name, size) for size in (2, 64, 500) for name in names]
    # more than one value in etcd holds: links come before the head
    BINDER_STEPS += [("before_gang_link", 600), ("after_gang_link", 600), ("after_gang_next_bind@250", 500)]
    COORDINATOR_STEPS = [(name, size) for size in (2, 64, 500) for name in ("before_gang_plan", "after_gang_plan")]
    BINDER_VICTIMS += ["before_evict"]
    COORDINATOR_VICTIMS += ["before_victims_plan", "before_nominate", "after_nominate"]


async def deaths(
    cluster: World, service: str, failpoints: Sequence[str]
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Before each turn of a loop over it a process leads that dies when it reaches the next failpoint, once. What is
    yielded waits until it has, and the other one leads in its place.

    One of the two takes all the deaths: it is started again armed with the next failpoint, and stands by until the
    other one, which finished what it left, hands over.
    """
    before = await cluster.mesh.leader(service)
    (name,) = (one for one in cluster.mesh.services if one.startswith(service) and one != before)
    armed, other = cluster.mesh.services[name], cluster.mesh.services[before]

    async def succeeded(failpoint: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await armed.ended.wait()
        except TimeoutError:
            raise AssertionError(f"{name} did not reach {failpoint}") from None
        assert armed.codes[-1] == -signal.SIGKILL, f"{name} ended by itself, not at {failpoint}"
        assert await cluster.mesh.leader(service) == before
        armed.may_start.set()

    await started_anew(armed, cluster.mesh, signal.SIGKILL, failpoints[0])
    for failpoint, following in zip(failpoints, (*failpoints[1:], ""), strict=True):
        async with asyncio.timeout(PATIENCE_S):
            await armed.ready.wait()
            armed.may_start.clear()
            armed.environ[VARIABLE] = f"{following}=kill" if following else ""
            other.may_start.clear()  # it would run for the leadership too, and may win where the armed one is slow
            await started_anew(other, cluster.mesh, signal.SIGTERM)
            assert await cluster.mesh.leader(service) == name
            other.may_start.set()
            await other.ready.wait()
        armed.ended.clear()
        yield partial(succeeded, failpoint)


async def started_anew(running: Running, mesh: Mesh, number: signal.Signals, failpoint: str = "") -> None:
    """It has ended, and starts again."""
    running.environ[VARIABLE] = f"{failpoint}=kill" if failpoint else ""
    running.ended.clear()
    mesh.kill(running.name, number)
    await running.ended.wait()


async def test_a_gang_is_whole_after_a_death_at_any_step_of_its_commit(tmp_path: Path) -> None:
    async with world(tmp_path, agents=2) as cluster:
        for service, steps in (("binder", BINDER_STEPS), ("coordinator", COORDINATOR_STEPS)):
            async with aclosing(deaths(cluster, service, [failpoint for failpoint, _ in steps])) as armed:
                number = 0
                async for death in armed:
                    failpoint, size = steps[number]
                    corner = Corner(cluster, f"{service}-{number}")
                    number += 1
                    await corner.nodes(8)
                    names = await corner.gang("g", size, cpu="10m")
                    await death()
                    whole = f"the gang of {size} is whole after a death at {failpoint}"
                    await corner.all_bound(names, whole, within_s=RECOVERY_S)
                    await corner.delete(*names)


async def test_a_preemption_by_a_group_is_finished_after_a_death_and_costs_no_more(tmp_path: Path) -> None:
    flags = ["--simulate", "--kubernetes", "1.37"]
    preemptions = 0
    async with world(tmp_path, agents=2, twin_flags=flags, but=[unjust_evictions]) as cluster:
        await priority_classes(cluster, low=10, high=1000)
        for service, failpoints in (("binder", BINDER_VICTIMS), ("coordinator", COORDINATOR_VICTIMS)):
            async with aclosing(deaths(cluster, service, failpoints)) as armed:
                async for death in armed:
                    preemptions += 1
                    corner = Corner(cluster, f"preempt-{preemptions}")
                    await corner.nodes(4, cpu="1")
                    lows = await corner.pods("low", 4, priorityClassName="low")
                    await corner.all_bound(lows)
                    names = await corner.gang("g", 3, priorityClassName="high")
                    await death()
                    await corner.all_bound(names, "the group has its places", within_s=RECOVERY_S)
    assert evictions_above(cluster.history, 3 * preemptions) == []
