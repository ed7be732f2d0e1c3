"""Budgets of the twin are kept over real controllers: evictions are judged by what they allow at that moment."""

from __future__ import annotations

import pytest

from tests.unit.twin.controllers.test_workloads import Cluster, Json, playing
from twin.controllers.disruptions import BUDGETS, DisruptionController
from twin.kinds.pod.eviction import evict_pod
from twin.model.disruptions import CoveredPods
from twin.registry.status import ApiError


def evict(cluster: Cluster, name: str) -> int:
    """The answer's code."""
    ctx = cluster.registry.context("create", "pods", "default", name)
    try:
        return evict_pod(ctx, cluster.registry, name, {"metadata": {"name": name}}).code
    except ApiError as error:
        return error.code


async def test_a_second_eviction_waits_for_the_first_ones_replacement() -> None:
    async with playing() as cluster:
        player = DisruptionController(cluster.registry)
        player.start()

        def allowed(count: int) -> bool:
            return (cluster.get(BUDGETS, "web").get("status") or {}).get("disruptionsAllowed") == count

        selector = {"matchLabels": {"app": "web"}}
        cluster.create(BUDGETS, "web", spec={"selector": selector, "maxUnavailable": 1})
        cluster.deployment(3)
        await cluster.until(lambda: len(cluster.pods()) == 3)
        assert not allowed(1)  # nobody is Ready yet
        cluster.run()
        await cluster.until(lambda: allowed(1))
        first, second = (pod["metadata"]["name"] for pod in cluster.pods()[:2])
        assert evict(cluster, first) == 201
        assert evict(cluster, second) == 429

        def waiting() -> list[Json]:
            return [pod for pod in cluster.pods() if pod["status"]["phase"] == "Pending"]

        await cluster.until(lambda: bool(waiting()))
        assert evict(cluster, second) == 429
        cluster.run(waiting())
        await cluster.until(lambda: allowed(1))
        assert evict(cluster, second) == 201
        player.stop()


async def test_a_pod_that_changes_costs_its_budget_one_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []
    async with playing() as cluster:
        player = DisruptionController(cluster.registry)
        player.start()
        cluster.create(BUDGETS, "web", spec={"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1})
        cluster.deployment(20)
        await cluster.until(lambda: len(cluster.pods()) == 20)
        count = CoveredPods.put

        def put(self: CoveredPods, pod: Json) -> None:
            counted.append(pod["metadata"]["name"])
            count(self, pod)

        monkeypatch.setattr(CoveredPods, "put", put)
        pod = cluster.pods()[0]
        cluster.run([pod])
        await cluster.until(lambda: cluster.get(BUDGETS, "web")["status"]["currentHealthy"] == 1)
        assert set(counted) == {pod["metadata"]["name"]}
        player.stop()
