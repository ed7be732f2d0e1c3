"""The twin's workload controllers and garbage collector over a real registry: who gets pods, what goes with whom."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from twin.bootstrap import make_registry
from twin.controllers.garbage_collector import GarbageCollector
from twin.controllers.workloads import DEPLOYMENTS, JOBS, SETS, WorkloadController
from twin.registry.status import ApiError

Json = dict[str, Any]
TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}


class Cluster:
    """A registry with both controllers; pods run when the test says so."""

    def __init__(self) -> None:
        self.registry = make_registry(clock=time.time, rng=Random(1))
        self.players = [WorkloadController(self.registry), GarbageCollector(self.registry)]
        self.changed = asyncio.Event()
        self.registry.subscribe(lambda _accepted: self.changed.set())

    def create(self, resource: str, name: str, **body: Any) -> Json:
        namespaced = self.registry.kind(resource).namespaced
        namespace = "default" if namespaced else ""
        obj = {"metadata": {"name": name, **body.pop("metadata", {})}, **body}
        return self.registry.create(self.registry.context("create", resource, namespace), resource, namespace, obj)

    def deployment(self, replicas: int = 3, **spec: Any) -> None:
        selector = {"matchLabels": {"app": "web"}}
        self.create(DEPLOYMENTS, "web", spec={"replicas": replicas, "selector": selector, "template": TEMPLATE, **spec})

    def job(self, **spec: Any) -> None:
        pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
        self.create(JOBS, "job", spec={"template": {"spec": pod}, **spec})

    def patch(self, resource: str, name: str, change: Json, namespace: str = "default") -> None:
        ctx = self.registry.context("patch", resource, namespace, name)
        self.registry.patch(ctx, resource, namespace, name, change)

    def delete(self, resource: str, name: str, namespace: str = "default", **options: Any) -> None:
        ctx = self.registry.context("delete", resource, namespace, name)
        self.registry.delete(ctx, resource, namespace, name, options)

    def get(self, resource: str, name: str, namespace: str = "default") -> Json:
        found = self.registry.get(resource, namespace, name)
        assert found is not None
        return found

    def pods(self) -> list[Json]:
        return list(self.registry.list("pods", "default"))

    def sets(self) -> dict[str, int]:
        """Replicas of every ReplicaSet by its image."""
        found = self.registry.list(SETS, "default")
        return {one["spec"]["template"]["spec"]["containers"][0]["image"]: one["spec"]["replicas"] for one in found}

    def run(self, pods: list[Json] | None = None, phase: str = "Running") -> None:
        """What a kubelet would write."""
        for pod in self.pods() if pods is None else pods:
            name, now = pod["metadata"]["name"], "2026-01-01T00:00:00Z"
            ready = {"type": "Ready", "status": str(phase == "Running"), "lastTransitionTime": now}
            status = {**pod["status"], "phase": phase, "conditions": [ready]}
            ctx = self.registry.context("patch", "pods", "default", name)
            self.registry.guaranteed_update(
                ctx, "pods", "default", name, lambda old, new=status: {**old, "status": new}
            )

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not true():
                self.changed.clear()
                await self.changed.wait()

    async def quiet(self) -> None:
        """Until nothing is to be looked at."""
        for _ in range(1000):
            if not any(player.busy for player in self.players):
                return
            await asyncio.sleep(0)
        raise AssertionError("the controllers find no rest")


@asynccontextmanager
async def playing() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    for player in cluster.players:
        player.start()
    try:
        yield cluster
    finally:
        for player in cluster.players:
            player.stop()


async def test_a_first_deployment_gets_its_pods_and_says_so() -> None:
    async with playing() as cluster:
        cluster.deployment()
        await cluster.until(lambda: len(cluster.pods()) == 3)
        pod = cluster.pods()[0]
        owner = pod["metadata"]["ownerReferences"][0]
        assert (owner["kind"], owner["controller"]) == ("ReplicaSet", True)
        assert pod["metadata"]["labels"]["app"] == "web"
        cluster.run()
        await cluster.until(lambda: cluster.get(DEPLOYMENTS, "web")["status"].get("availableReplicas") == 3)
        status = cluster.get(DEPLOYMENTS, "web")["status"]
        assert (status["replicas"], status["updatedReplicas"], status["observedGeneration"]) == (3, 3, 1)
        assert {one["type"]: one["status"] for one in status["conditions"]} == {
            "Available": "True",
            "Progressing": "True",
        }


async def test_a_roll_out_never_goes_below_its_bounds() -> None:
    async with playing() as cluster:
        cluster.deployment(4)
        await cluster.until(lambda: len(cluster.pods()) == 4)
        cluster.run()
        await cluster.until(lambda: cluster.get(DEPLOYMENTS, "web")["status"].get("availableReplicas") == 4)
        cluster.patch(DEPLOYMENTS, "web", {"spec": {"template": {"metadata": {"labels": {"v": "2"}}}}})
        low, high = 4, 4

        def done() -> bool:
            nonlocal low, high
            ready = [one for one in cluster.pods() if one["status"]["phase"] == "Running"]
            low, high = min(low, len(ready)), max(high, len(cluster.pods()))
            cluster.run([one for one in cluster.pods() if one["status"]["phase"] == "Pending"])
            return all(one["metadata"]["labels"].get("v") == "2" for one in cluster.pods()) and len(cluster.pods()) == 4

        await cluster.until(done)
        assert (low >= 3, high <= 5) == (True, True)
        await cluster.until(lambda: cluster.get(DEPLOYMENTS, "web")["status"].get("updatedReplicas") == 4)
        revisions = {one["metadata"]["annotations"]["deployment.kubernetes.io/revision"]: one["spec"]["replicas"]
                     for one in cluster.registry.list(SETS, "default")}  # fmt: skip
        assert revisions == {"1": 0, "2": 4}


async def test_a_deployment_that_recreates_waits_for_the_end_of_the_old_pods() -> None:
    async with playing() as cluster:
        cluster.deployment(2, strategy={"type": "Recreate"})
        await cluster.until(lambda: len(cluster.pods()) == 2)
        for pod in cluster.pods():
            target = {"kind": "Node", "name": "n"}
            ctx = cluster.registry.context("create", "pods", "default", pod["metadata"]["name"])
            bind = cluster.registry.kind("pods").subresources["binding"].create
            assert bind is not None
            bind(
                ctx,
                cluster.registry,
                pod["metadata"]["name"],
                {"metadata": {"name": pod["metadata"]["name"]}, "target": target},
            )
        change = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}}}
        cluster.patch(DEPLOYMENTS, "web", change)
        await cluster.until(lambda: all(one["metadata"].get("deletionTimestamp") for one in cluster.pods()))
        await cluster.quiet()
        assert cluster.sets() == {"i:1": 0}
        for pod in cluster.pods():
            cluster.delete("pods", pod["metadata"]["name"], gracePeriodSeconds=0)
        await cluster.until(lambda: cluster.sets() == {"i:1": 0, "i:2": 2})


async def test_a_size_is_followed_up_and_down_and_lost_pods_are_replaced() -> None:
    async with playing() as cluster:
        cluster.deployment(1)
        await cluster.until(lambda: len(cluster.pods()) == 1)
        cluster.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 70}})
        await cluster.until(lambda: len(cluster.pods()) == 70)
        cluster.delete("pods", cluster.pods()[0]["metadata"]["name"], gracePeriodSeconds=0)
        await cluster.until(lambda: len(cluster.pods()) == 70)
        cluster.run(cluster.pods()[:2])
        ready = {one["metadata"]["name"] for one in cluster.pods()[:2]}
        cluster.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 2}})
        await cluster.until(lambda: {one["metadata"]["name"] for one in cluster.pods()} == ready)


async def test_a_refused_pod_is_told_in_a_condition_and_tried_again() -> None:
    async with playing() as cluster:
        cluster.create("resourcequotas", "none", spec={"hard": {"pods": "0"}}, status={"hard": {"pods": "0"}})
        quota = cluster.registry.kind("resourcequotas")
        cluster.registry.guaranteed_update(
            cluster.registry.context("update", quota, "default", "none"), "resourcequotas", "default", "none",
            lambda old: {**old, "status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}},
        )  # fmt: skip
        cluster.deployment(1)

        def trouble() -> list[Json]:
            sets = list(cluster.registry.list(SETS, "default"))
            return (sets[0].get("status") or {}).get("conditions") or [] if sets else []

        await cluster.until(lambda: any(one["reason"] == "FailedCreate" for one in trouble()))
        assert "exceeded quota" in trouble()[0]["message"]
        cluster.delete("resourcequotas", "none")
        await cluster.until(lambda: len(cluster.pods()) == 1 and not trouble())


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
async def test_what_a_deployment_owned_goes_with_it(policy: str) -> None:
    async with playing() as cluster:
        cluster.deployment(40)
        await cluster.until(lambda: len(cluster.pods()) == 40)
        cluster.delete(DEPLOYMENTS, "web", propagationPolicy=policy)
        await cluster.until(lambda: not cluster.pods() and not cluster.sets())
        await cluster.until(lambda: cluster.registry.get(DEPLOYMENTS, "default", "web") is None)


async def test_orphans_stay_without_their_owner() -> None:
    async with playing() as cluster:
        cluster.deployment(2)
        await cluster.until(lambda: len(cluster.pods()) == 2)
        cluster.delete(DEPLOYMENTS, "web", propagationPolicy="Orphan")
        await cluster.until(lambda: cluster.registry.get(DEPLOYMENTS, "default", "web") is None)
        (orphan,) = cluster.registry.list(SETS, "default")
        assert "ownerReferences" not in orphan["metadata"]
        assert len(cluster.pods()) == 2


async def test_a_namespace_goes_with_what_stands_in_it() -> None:
    async with playing() as cluster:
        cluster.create("namespaces", "team")
        ctx = cluster.registry.context("create", "configmaps", "team")
        cluster.registry.create(ctx, "configmaps", "team", {"metadata": {"name": "c"}})
        cluster.delete("namespaces", "team", "")
        await cluster.until(lambda: cluster.registry.get("namespaces", "", "team") is None)
        assert cluster.registry.get("configmaps", "team", "c") is None


async def test_a_job_is_complete_when_enough_pods_succeeded() -> None:
    async with playing() as cluster:
        cluster.job(completions=3, parallelism=2)
        await cluster.until(lambda: len(cluster.pods()) == 2)
        cluster.run(phase="Succeeded")
        await cluster.until(lambda: len(cluster.pods()) == 3)
        cluster.run([one for one in cluster.pods() if one["status"]["phase"] == "Pending"], "Succeeded")
        await cluster.until(lambda: bool(cluster.get(JOBS, "job")["status"].get("completionTime")))
        status = cluster.get(JOBS, "job")["status"]
        assert [one["type"] for one in status["conditions"]] == ["SuccessCriteriaMet", "Complete"]
        assert (status["succeeded"], status.get("active", 0)) == (3, 0)


async def test_a_pod_that_ended_counts_though_it_was_deleted_at_once() -> None:
    async with playing() as cluster:
        cluster.job(completions=1)
        await cluster.until(lambda: len(cluster.pods()) == 1)
        await cluster.quiet()
        pod = cluster.pods()[0]
        cluster.run([pod], "Succeeded")
        cluster.delete("pods", pod["metadata"]["name"], gracePeriodSeconds=0)
        await cluster.until(lambda: cluster.get(JOBS, "job")["status"].get("succeeded") == 1)


async def test_controllers_that_are_stopped_do_nothing() -> None:
    """Ablation: it is the controllers that make the pods."""
    cluster = Cluster()
    cluster.deployment()
    await asyncio.sleep(0)
    assert not cluster.pods()
    with pytest.raises(ApiError):
        cluster.registry.stored(cluster.registry.kind(SETS), "default", "web")
