"""Scenario 4: two preemptors of equal priority, one victim whose place fits one of them: one eviction, one winner."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.invariants import evictions_above
from tests.scenarios.world import length, world

pytestmark = [pytest.mark.process, pytest.mark.etcd]

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.mark.parametrize("spare", [False, True])
async def test_one_victim_goes_one_preemptor_wins_and_the_other_waits_or_goes_elsewhere(
    tmp_path: Path, spare: bool
) -> None:
    async with world(tmp_path, agents=2) as cluster:
        await cluster.create(CLASSES, "PriorityClass", "high", api="scheduling.k8s.io/v1", value=1000)
        await cluster.add_node("n0", cpu="1")
        await cluster.add_pod("low", cpu="1")
        await cluster.until(lambda c: c.bound("low"), within_s=20, what="the node is full")
        await cluster.add_node("n1", cpu="500m")  # preempting there helps nobody
        names = await cluster.add_pods(["high-0", "high-1"], cpu="1", priorityClassName="high")
        await cluster.until(lambda c: len(c.bound_names("high")) == 1, within_s=15, what="one of them wins")
        await cluster.never(lambda c: len(c.bound_names()) > 1, for_s=length(short=2, full=15), what="both were bound")
        (other,) = names - cluster.bound_names()
        assert "Insufficient cpu" in cluster.told(other)
        if spare:
            await cluster.add_node("n2", cpu="1")
            await cluster.until(lambda c: c.node(other) == "n2", within_s=10, what="the other goes elsewhere")
    assert evictions_above(cluster.history, 1) == []


async def test_a_pod_that_never_preempts_evicts_nobody(tmp_path: Path) -> None:
    async with world(tmp_path, agents=2) as cluster:
        await cluster.create(
            CLASSES, "PriorityClass", "polite", api="scheduling.k8s.io/v1", value=1000, preemptionPolicy="Never"
        )
        await cluster.add_node("n0", cpu="1")
        await cluster.add_pod("low", cpu="1")
        await cluster.until(lambda c: c.bound("low"), within_s=20, what="the node is full")
        await cluster.add_pod("high", cpu="1", priorityClassName="polite")
        await cluster.until(lambda c: bool(c.told("high")), within_s=10, what="it says why it waits")
        assert "Never" in cluster.told("high")
        await cluster.never(lambda c: c.bound("high"), for_s=length(short=2, full=15), what="it evicted somebody")
    assert evictions_above(cluster.history, 0) == []
