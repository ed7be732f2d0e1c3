"""Scenario 11: everything around the mesh is too much, slow, refusing or silent for a while; then all is as before.

Ten times the load that can be bound; an API server that takes 200 ms a call, says 429 with Retry-After, or stands
still; an etcd that stands still. Meanwhile memory is flat and nobody waits longer than backlog / rate; afterwards the
backlog and fresh pods are bound at full speed. What was bound twice, lost or over-committed ``world`` finds.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE
from tests.scenarios.pressure import all_bound, grown, memory_mb, overdue, stream
from tests.scenarios.world import World, length, world

pytestmark = [pytest.mark.process, pytest.mark.etcd]

FAULT_S = length(short=4, full=10)
PER_S = 20.0
"""Pods a second meanwhile: what a mesh on a crowded machine binds with ease."""
RECOVERED_S = 5.0
"""From the end of what was wrong until everything that waited is bound, and fresh pods too."""
SLOWEST = 50.0
"""Pods a second that a crowded machine binds at least: what a backlog is held against."""
CALLS, UNBOUNDED = "^/(api|apis)/", 1_000_000
ALONE: dict[str, Any] = {"coordinators": 1, "binders": 1}
"""Nobody stands by: nobody is to be succeeded."""

Fault = Callable[[World], Awaitable[None]]


async def api_is_slow(cluster: World) -> None:
    await cluster.faults({"kind": "delay", "path": CALLS, "delay_s": 0.2})


async def api_is_busy(cluster: World) -> None:
    """It refuses what services write, and says when to come again."""
    await cluster.faults(
        {"kind": "throttle", "path": "/binding$", "method": "POST", "retry_after_s": 1, "count": UNBOUNDED},
        {"kind": "throttle", "path": "/(status|events|leases/[^/]*)$", "method": "PATCH", "retry_after_s": 1},
    )


async def api_works(cluster: World) -> None:
    await cluster.faults()


async def api_stands_still(cluster: World) -> None:
    cluster.mesh.kill("twin", signal.SIGSTOP)


async def api_goes_on(cluster: World) -> None:
    cluster.mesh.kill("twin", signal.SIGCONT)


async def etcd_stands_still(cluster: World) -> None:
    cluster.mesh.etcd.pause()


async def etcd_goes_on(cluster: World) -> None:
    cluster.mesh.etcd.resume()


@asynccontextmanager
async def roomy(folder: Path, **mesh: Any) -> AsyncIterator[World]:
    """A mesh with room for every pod of a scenario, which has bound some."""
    async with world(folder, **{"agents": 2, **mesh}) as cluster:
        for number in range(4):
            await cluster.add_node(f"n{number}", cpu="64", memory="256Gi", pods="5000")
        first = await cluster.add_pods((f"first-{number}" for number in range(20)), cpu="10m")
        await cluster.until(lambda c: c.bound(*first), within_s=20, what="it schedules")
        yield cluster


async def endure(cluster: World, begins: Fault, ends: Fault) -> set[str]:
    """Pods arrive while it lasts; the pods, all bound by ``RECOVERED_S`` after its end, and fresh ones beside them."""
    before, loop = memory_mb(cluster), asyncio.get_running_loop()
    await begins(cluster)
    arriving = asyncio.create_task(stream(cluster, "amid", per_s=PER_S, for_s=FAULT_S, cpu="10m"))
    await asyncio.sleep(FAULT_S)
    await ends(cluster)
    recovered_at = loop.time() + RECOVERED_S * PATIENCE
    fresh, names = await asyncio.gather(
        cluster.add_pods((f"fresh-{number}" for number in range(20)), cpu="10m"), arriving
    )
    left_s = (recovered_at - loop.time()) / PATIENCE
    await cluster.until(all_bound(names | fresh), within_s=left_s, what="all are bound soon after its end")
    assert grown(before, memory_mb(cluster), len(names)) == []
    return names


@pytest.mark.parametrize(
    ("begins", "ends", "standbys"),
    [
        pytest.param(api_is_slow, api_works, False, id="api-200ms"),
        pytest.param(api_stands_still, api_goes_on, False, id="api-stalls"),
        pytest.param(etcd_stands_still, etcd_goes_on, True, id="etcd-stalls"),
    ],
)
async def test_what_is_wrong_for_a_while_costs_that_while_and_no_pod(
    tmp_path: Path, begins: Fault, ends: Fault, standbys: bool
) -> None:
    async with roomy(tmp_path, **({} if standbys else ALONE)) as cluster:
        await endure(cluster, begins, ends)
    assert overdue(cluster.history, rate=SLOWEST / PATIENCE, slack_s=FAULT_S + RECOVERED_S * PATIENCE) == []


async def test_who_is_told_to_come_again_later_comes_again_later(tmp_path: Path) -> None:
    """429 with Retry-After 1: each Binding is tried once a second at most, and at once when that is over."""
    loop = asyncio.get_running_loop()
    async with roomy(tmp_path, **ALONE) as cluster:

        async def works_again(cluster: World) -> None:
            assert not cluster.bound_names("amid"), "the fault was not there"
            [bindings, _] = (await cluster.call("GET", "/twin/faults"))["rules"]
            refused.append(UNBOUNDED - bindings["count"])
            await cluster.faults()

        refused, began = list[int](), loop.time()
        names = await endure(cluster, api_is_busy, works_again)
        assert 0 < refused[0] <= len(names) * (loop.time() - began)
    assert overdue(cluster.history, rate=SLOWEST / PATIENCE, slack_s=FAULT_S + RECOVERED_S * PATIENCE) == []


async def test_ten_times_what_can_be_bound_waits_its_turn_and_no_longer(tmp_path: Path) -> None:
    """Each Binding takes 0.2 s and ten are in flight: 50 a second. 500 a second come."""
    capacity, seconds = 50.0, length(short=0.6, full=4)  # the checks of the history take the square of its pods
    async with roomy(tmp_path, flags={"binder": ["--max-bindings", "10"]}, **ALONE) as cluster:
        await cluster.faults({"kind": "delay", "path": "/binding$", "method": "POST", "delay_s": 0.2})
        before = memory_mb(cluster)
        names = await stream(cluster, "many", per_s=10 * capacity, for_s=seconds, cpu="10m")
        assert grown(before, memory_mb(cluster), len(names)) == [], "with the whole backlog"
        await cluster.until(
            all_bound(names), within_s=2 * len(names) / capacity + RECOVERED_S, what="the backlog is bound"
        )
        assert grown(before, memory_mb(cluster), len(names)) == []
        await cluster.faults()
        fresh = await cluster.add_pods((f"fresh-{number}" for number in range(50)), cpu="10m")
        await cluster.until(lambda c: c.bound(*fresh), within_s=RECOVERED_S, what="fresh pods at full speed")
    assert overdue(cluster.history, rate=capacity / 2 / PATIENCE, slack_s=RECOVERED_S * PATIENCE) == []


async def test_pods_in_the_hands_of_an_agent_that_dies_go_to_others_at_once(tmp_path: Path) -> None:
    """The agent is asked about 200 pods, does not answer, and dies; whoever waited for its deadline would be late."""
    flags = {"coordinator": ["--batch-units", "256", "--dispatch", "partition", "--offer-deadline-ms", "10000"]}
    async with roomy(tmp_path, flags=flags, **ALONE) as cluster:
        for agent in ("agent-0", "agent-1"):
            cluster.mesh.kill(agent, signal.SIGSTOP)
        names = await cluster.add_pods((f"p-{number:03}" for number in range(200)), cpu="10m")
        await cluster.until(lambda c: names <= c.pods.keys(), within_s=20, what="all of them wait")
        assert not cluster.bound_names("p-"), "an agent had answered"
        cluster.mesh.kill("agent-0")
        cluster.mesh.kill("agent-1", signal.SIGCONT)
        await cluster.until(lambda c: c.bound(*names), within_s=RECOVERED_S, what="all after its death")
        stats = (await cluster.mesh.get(await cluster.mesh.leader(), "/v1/stats"))["coordinator"]
        assert stats["rounds_cut"] == 0, "the deadline was waited for"


async def test_agents_that_claim_each_others_nodes_share_them_and_bind_nothing_twice(tmp_path: Path) -> None:
    """Two agents serve each node, as where a DaemonSet's pods were doubled; one more takes over another's id."""
    async with world(tmp_path, agents=0, **ALONE) as cluster:
        for number in range(2):
            await cluster.add_node(f"n{number}", cpu="8")
        claims = {"a0": ("a0", "n0"), "a1": ("a1", "n1"), "b0": ("b0", "n0"), "b1": ("b1", "n1"), "c": ("b0", "n1")}
        common = ["--etcd", cluster.mesh.etcd.endpoint]
        starting = [
            cluster.mesh.start(f"agent-{name}", "agent", [*common, "--id", identity, "--node", node])
            for name, (identity, node) in claims.items()
        ]
        await asyncio.gather(*starting)
        names = await cluster.add_pods((f"p-{number:02}" for number in range(16)), cpu="1")
        await cluster.until(lambda c: c.bound(*names), within_s=20, what="both nodes are full")
        late = await cluster.add_pods(["late-0", "late-1"], cpu="1")
        await cluster.until(lambda c: all(map(c.told, late)), within_s=20, what="no more fit, and they are told")
        assert {cluster.node(name) for name in names} == {"n0", "n1"}
