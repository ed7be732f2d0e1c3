"""Offline pods give way on real processes: as many as must, whoever dies amid it, and they come back after the peak.

Somebody else lends here, as Koordinator does: a write of the node's allocatable. The invariants are held against the
whole history by ``world``.
"""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.groups.test_gang_crash_points import RECOVERY_S, deaths
from tests.scenarios.invariants import evicted, evictions_above
from tests.scenarios.world import FULL, World, world

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


async def offline_jobs(cluster: World, name: str, count: int) -> None:
    """So many offline pods that a controller keeps on the node ``name``."""
    wanted = {CPU: "1000", MEMORY: "64Mi"}
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


async def test_without_the_setting_nobody_is_evicted(tmp_path: Path) -> None:
    async with world(tmp_path, agents=1) as cluster:
        await one_peak(cluster, "a", count=2)
        await lend(cluster, "a", 500)
        await cluster.never(lambda c: len(c.bound_names("a-")) < 2, for_s=2, what="an offline pod left")
    assert evictions_above(cluster.history, 0) == []
