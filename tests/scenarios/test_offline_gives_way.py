"""Offline pods give way on real processes: as many as must, whoever dies amid it, and they come back after the peak.

Somebody else lends here, as Koordinator does: a write of the node's allocatable. The invariants are held against the
whole history by ``world``.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.groups.test_gang_crash_points import RECOVERY_S, deaths
from tests.scenarios.invariants import evicted, evictions_above
from tests.scenarios.world import FULL, PODS, World, world

pytestmark = [pytest.mark.process, pytest.mark.etcd]

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
CPU, MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
GIVES_WAY = {"coordinator": ["--offline-eviction", "on"]}

COORDINATOR, BINDER = ["before_victims_plan", "after_victims_plan"], ["before_evict@2"]
if FULL:
    BINDER.append("before_evict")


async def lend(cluster: World, node: str, millis: int) -> None:
    """What Koordinator's manager would write."""
    lent = {CPU: str(millis), MEMORY: "8Gi"}
    await cluster.patch_node_status(node, {"status": {"allocatable": lent, "capacity": lent}})


async def offline_jobs(cluster: World, name: str, count: int, requests: dict[str, str] | None = None) -> None:
    """So many offline pods that a controller keeps on the node ``name``."""
    wanted = requests or {CPU: "1000", MEMORY: "64Mi"}
    pod: dict[str, Any] = {
        "metadata": {"labels": {"app": name, "koordinator.sh/qosClass": "BE"}},
        "spec": {
            "schedulerName": "conclave",
            "nodeSelector": {"kubernetes.io/hostname": name},
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "i", "resources": {"requests": wanted, "limits": wanted}}],
        },
    }
    spec = {"replicas": count, "selector": {"matchLabels": {"app": name}}, "template": pod}
    await cluster.create(DEPLOYMENTS, "Deployment", name, api="apps/v1", spec=spec)


async def one_peak(cluster: World, name: str, *, count: int = 8) -> None:
    await cluster.add_node(name, cpu="16")
    await lend(cluster, name, 1000 * count)
    await offline_jobs(cluster, name, count)
    await cluster.until(
        lambda c: len(c.bound_names(f"{name}-")) == count, within_s=RECOVERY_S, what=f"{name}: all offline pods run"
    )


def waiting(cluster: World, name: str) -> list[str]:
    """Pods of the node that were made anew and know why they wait."""
    names = [pod for pod in cluster.pods if pod.startswith(f"{name}-") and not cluster.node(pod)]
    return [pod for pod in names if f"Insufficient {CPU}" in cluster.told(pod)]


async def given_way(cluster: World, name: str, runs: int, waits: int) -> None:
    await cluster.until(
        lambda c: len(c.bound_names(f"{name}-")) == runs and len(waiting(c, name)) == waits,
        within_s=RECOVERY_S, what=f"{name}: {runs} run and {waits} wait",
    )  # fmt: skip


async def test_offline_pods_give_way_once_whoever_dies_amid_it_and_come_back_after_the_peak(tmp_path: Path) -> None:
    peaks = 0
    async with world(tmp_path, agents=2, flags=GIVES_WAY) as cluster:
        for service, failpoints in {"coordinator": COORDINATOR, "binder": BINDER}.items():
            async with aclosing(deaths(cluster, service, failpoints)) as armed:
                async for death in armed:
                    peaks += 1
                    name = f"peak{peaks}"
                    await one_peak(cluster, name)
                    await lend(cluster, name, 5500)
                    await death()
                    await given_way(cluster, name, 5, 3)
                    await lend(cluster, name, 8000)
                    await given_way(cluster, name, 8, 0)
    assert evictions_above(cluster.history, 3 * peaks) == []
    assert len(evicted(cluster.history)) == 3 * peaks


@pytest.mark.parametrize("agents", [1, 4])
async def test_a_peak_that_comes_and_goes_costs_no_more_than_it_must(tmp_path: Path, agents: int) -> None:
    async with world(tmp_path, agents=agents, flags=GIVES_WAY) as cluster:
        await one_peak(cluster, "a")
        await one_peak(cluster, "b")
        for lent in (7000, 4000, 6000, 2000):
            await lend(cluster, "a", lent)
            await given_way(cluster, "a", lent // 1000, 8 - lent // 1000)
        assert len(cluster.bound_names("b-")) == 8
    assert evictions_above(cluster.history, 1 + 3 + 4) == []


async def test_a_gang_is_spared_while_others_can_leave_and_breaks_whole_over_its_nodes(tmp_path: Path) -> None:
    flags = ["--simulate", "--kubernetes", "1.37"]
    async with world(tmp_path, agents=2, flags=GIVES_WAY, twin_flags=flags) as cluster:
        for name in ("a", "b"):
            await cluster.add_node(name, cpu="16")
            await lend(cluster, name, 4000)
        policy = {"schedulingPolicy": {"gang": {"minCount": 4}}}
        api = cluster.groups_api.removeprefix("/apis/")
        await cluster.create(
            f"{cluster.groups_api}/namespaces/default/podgroups", "PodGroup", "g", api=api, spec=policy
        )
        await asyncio.gather(*(willing(cluster, f"g-{n}", "ab"[n % 2], group="g") for n in range(4)))
        await asyncio.gather(*(willing(cluster, f"lone-{n}", "a") for n in range(2)))
        await cluster.until(lambda c: len(c.bound_names()) == 6, within_s=RECOVERY_S, what="all run")
        await lend(cluster, "a", 2000)
        await cluster.until(lambda c: not c.bound_names("lone"), within_s=RECOVERY_S, what="the lone ones left")
        assert len(cluster.bound_names("g-")) == 4
        await lend(cluster, "a", 1000)
        await cluster.until(lambda c: not c.bound_names("g-"), within_s=RECOVERY_S, what="the gang left whole")
    assert evictions_above(cluster.history, 6) == []


async def willing(cluster: World, name: str, node: str, *, group: str = "") -> None:
    """An offline pod without a controller that may be evicted."""
    wanted = {CPU: "1000"}
    spec: dict[str, Any] = {
        "schedulerName": "conclave",
        "nodeSelector": {"kubernetes.io/hostname": node},
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "i", "resources": {"requests": wanted, "limits": wanted}}],
        **({"schedulingGroup": {"podGroupName": group}} if group else {}),
    }
    await cluster.create(PODS, "Pod", name, metadata={"annotations": {"conclave.io/preemptible": "true"}}, spec=spec)


@pytest.mark.parametrize("agents", [1, 4])
async def test_online_pods_take_the_room_of_offline_ones_of_their_priority_and_of_no_others(
    tmp_path: Path, agents: int
) -> None:
    flags = {"coordinator": ["--offline-preemption", "on"]}
    async with world(tmp_path, agents=agents, flags=flags) as cluster:
        await cluster.add_node("a", cpu="4")
        await offline_jobs(cluster, "a", 3, requests={"cpu": "1"})
        await cluster.add_pod("bare", cpu="1", labels={"conclave.io/qos": "offline"})
        await cluster.until(lambda c: len(c.bound_names()) == 4, within_s=RECOVERY_S, what="the node is full")
        names = await cluster.add_pods([f"online-{number}" for number in range(4)], cpu="1")
        await cluster.until(
            lambda c: len(c.bound_names("online")) == 3 and len(c.bound_names("a-")) == 0 and c.bound("bare"),
            within_s=RECOVERY_S, what="three took the room of offline pods",
        )  # fmt: skip
        (last,) = names - cluster.bound_names()
        await cluster.until(lambda c: bool(c.told(last)), within_s=RECOVERY_S, what="the last one says why it waits")
    assert evictions_above(cluster.history, 3) == []


async def test_without_the_setting_nobody_is_evicted(tmp_path: Path) -> None:
    async with world(tmp_path, agents=1) as cluster:
        await one_peak(cluster, "a", count=2)
        await lend(cluster, "a", 500)
        await cluster.never(lambda c: len(c.bound_names("a-")) < 2, for_s=2, what="an offline pod left")
    assert evictions_above(cluster.history, 0) == []
