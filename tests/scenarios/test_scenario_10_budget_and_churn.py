"""Scenario 10: a disruption budget and priorities under churn; afterwards every bit of capacity can be used again.

100 pods a second are created and deleted while preemptors arrive. The budget allows one disruption; a node that only
protected pods fill costs three of them, another one costs none: so the budget is never exceeded, pods that never
preempt evict nobody, every victim has a lower priority than who takes its place, and nothing leaks. The same where
Bindings are slow: then the best victims are often pods that are only on their way to the node.
"""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.invariants import below_budget, evicted, node_of
from tests.scenarios.world import MERGE, World, length, world

pytestmark = [pytest.mark.process, pytest.mark.etcd]

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
PER_S = 100
CHURN_S = length(short=5, full=60)
LIFE_S = 2.0
NODES_THERE, CPU = 8, 4
PROTECTED = 3


async def keep_budget(cluster: World) -> None:
    """The disruption controller's part, which the API server leaves out: how many disruptions the budget allows now."""
    allowed = -1
    while True:
        healthy = len([pod for pod in cluster.pods.values() if is_kept(pod)])
        now = max(0, healthy - (PROTECTED - 1))
        if now != allowed:
            allowed = now
            status = {
                "disruptionsAllowed": now, "currentHealthy": healthy, "desiredHealthy": PROTECTED - 1,
                "expectedPods": PROTECTED, "observedGeneration": 1,
            }  # fmt: skip
            await cluster.call("PATCH", f"{BUDGETS}/kept/status", {"status": status}, MERGE)
        await cluster.when(lambda c, seen=healthy: len([pod for pod in c.pods.values() if is_kept(pod)]) != seen)


def is_kept(pod: dict[str, Any]) -> bool:
    """Protected, standing and not on its way out."""
    labels = pod["metadata"].get("labels") or {}
    return labels.get("app") == "kept" and bool(node_of(pod)) and not pod["metadata"].get("deletionTimestamp")


async def churn(cluster: World) -> None:
    """Create at a steady rate, and delete each pod when it has lived; the rate is kept against the clock."""
    loop = asyncio.get_running_loop()
    started, lives = loop.time(), set[asyncio.Task[None]]()

    async def live(name: str, priority_class: str) -> None:
        await cluster.add_pod(name, cpu="200m", priorityClassName=priority_class)
        await asyncio.sleep(LIFE_S)
        await cluster.delete_pod_if_there(name)

    for number in itertools.count():
        due = started + number / PER_S
        if due > started + CHURN_S:
            break
        await asyncio.sleep(max(0.0, due - loop.time()))
        kind = "polite" if number % 10 == 0 else "low"
        lives.add(asyncio.create_task(live(f"churn-{number:05}", kind)))
    await asyncio.gather(*lives)


@pytest.mark.parametrize("bind_s", [0.0, 0.5])
async def test_the_budget_holds_victims_are_just_and_no_capacity_is_lost(tmp_path: Path, bind_s: float) -> None:
    async with world(tmp_path, agents=2) as cluster:
        for name, value, policy in (("low", 10, ""), ("polite", 500, "Never"), ("high", 1000, "")):
            more = {"preemptionPolicy": policy} if policy else {}
            await cluster.create(CLASSES, "PriorityClass", name, api="scheduling.k8s.io/v1", value=value, **more)
        for number in range(NODES_THERE):
            await cluster.add_node(f"n{number}", cpu=str(CPU))
        selector = {"selector": {"matchLabels": {"app": "kept"}}, "minAvailable": PROTECTED - 1}
        await cluster.create(BUDGETS, "PodDisruptionBudget", "kept", api="policy/v1", spec=selector)
        kept = await cluster.add_pods(
            (f"kept-{n}" for n in range(PROTECTED)), cpu="1300m", labels={"app": "kept"}, priorityClassName="low",
            nodeSelector={"kubernetes.io/hostname": "n0"},
        )  # fmt: skip
        await cluster.until(lambda c: c.bound(*kept), within_s=20, what="the protected pods fill a node")
        # whatever the machine makes of the churn: every preemptor must evict
        for number in range(1, NODES_THERE):
            selected = {"kubernetes.io/hostname": f"n{number}"}
            await cluster.add_pod(f"base-{number}", cpu="2", priorityClassName="low", nodeSelector=selected)
        await cluster.until(
            lambda c: len(c.bound_names("base-")) == NODES_THERE - 1, within_s=20, what="something stands on every node"
        )
        if bind_s:
            await cluster.faults({"kind": "delay", "path": "/binding$", "method": "POST", "delay_s": bind_s})
        keeping = asyncio.create_task(keep_budget(cluster))
        churning = asyncio.create_task(churn(cluster))
        try:
            highs = []
            for number in range(int(CHURN_S)):
                await asyncio.sleep(1.0)  # one a second, into a cluster that the churn has filled
                highs.append(f"high-{number:03}")
                await cluster.add_pod(highs[-1], cpu="3", priorityClassName="high")
                await cluster.until(lambda c: c.bound(highs[-1]), within_s=15, what="a preemptor finds its node")
                if len(highs) > 4:
                    await cluster.delete_pod_if_there(highs[len(highs) - 5])
            await churning
        finally:
            for task in (churning, keeping):
                task.cancel()
            await asyncio.gather(churning, keeping, return_exceptions=True)
        await cluster.faults()
        assert cluster.bound(*kept), "a protected pod was evicted though other nodes would do"

        for name in sorted(cluster.pods):
            await cluster.delete_pod_if_there(name)
        await cluster.until(lambda c: not c.pods, within_s=30, what="everything is gone")
        full = await cluster.add_pods((f"fill-{number:02}" for number in range(NODES_THERE)), cpu=str(CPU))
        await cluster.until(lambda c: c.bound(*full), within_s=30, what="all capacity can be used again")
    assert below_budget(cluster.history, PROTECTED - 1, app="kept") == []
    victims = [entry.name for entry in evicted(cluster.history).values()]
    assert victims, "nobody had to be evicted: the scenario shows nothing"
    assert not [name for name in victims if name.startswith("kept")]
