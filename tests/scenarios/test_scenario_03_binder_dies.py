"""Scenario 3: the binder dies between a victim's deletion and the bind: no second victim, and nobody steals the place.

The nomination is in etcd, or in the pod's status; whoever takes over reads it back (I9) and keeps the node for it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.invariants import evictions_above
from tests.scenarios.world import World, world

pytestmark = [pytest.mark.process, pytest.mark.etcd]


def leaving(cluster: World, name: str) -> bool:
    """The API shows the victim as going, or gone."""
    return name not in cluster.pods or bool(cluster.pods[name]["metadata"].get("deletionTimestamp"))


@pytest.mark.parametrize("service", ["binder", "coordinator"])
async def test_the_preemptor_gets_its_node_after_the_crash_and_one_victim_was_enough(
    tmp_path: Path, service: str
) -> None:
    async with world(tmp_path, agents=2) as cluster:
        await cluster.add_node("n0", cpu="1")
        await cluster.add_node("n1", cpu="1")
        lows = await cluster.add_pods(["low-0", "low-1"], cpu="1", terminationGracePeriodSeconds=1)
        await cluster.until(lambda c: c.bound(*lows), within_s=20, what="both nodes are full")
        thieves = await cluster.add_pods([f"thief-{number}" for number in range(3)], cpu="1")
        await cluster.until(lambda c: all(map(c.told, thieves)), within_s=20, what="the thieves wait")
        victim = await cluster.mesh.leader(service)
        await cluster.create(
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            "PriorityClass",
            "high",
            api="scheduling.k8s.io/v1",
            value=1000,
        )
        await cluster.add_pod("high", cpu="1", priorityClassName="high")
        await cluster.until(lambda c: any(leaving(c, low) for low in lows), within_s=20, what="a victim goes")
        cluster.mesh.kill(victim)
        await cluster.until(lambda c: c.bound("high"), within_s=20, what="the preemptor has its node")
        assert not cluster.bound_names("thief"), "a pod of lower priority took the freed place"
    assert evictions_above(cluster.history, 1) == []
