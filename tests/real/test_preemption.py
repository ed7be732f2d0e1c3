"""Preemption on a real control plane, alone and beside a busy kube-scheduler, in counts: victims, over-committed nodes.

Only pods of the tests run on the plane. What a test says of order (all were asked before the first had left) is read
from one watch of all pods; nothing is measured in seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import aiohttp
import pytest

from tests.real.conftest import RunningPlane, mesh_of, plane_of
from tests.real.plane import missing

Json = dict[str, Any]

NODES, CPU = 4, 10
WITHIN_S = 180.0
"""Until something happens at all: a bound for a loaded machine."""
STOP = "hollow/stop-seconds"
LISTED_AFTER_S = 10
"""An overloaded server may leave a watch without events, and open: all is listed again."""


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPlane]:
    """A plane of this module's own, with a kube-scheduler and a mesh."""
    if reason := missing():
        pytest.skip(f"no real control plane: {reason}")
    folder = tmp_path_factory.mktemp("plane")
    nodes = ("--nodes", str(NODES), "--cpu", str(CPU), "--kube-scheduler")
    with plane_of(folder, *nodes) as plane, mesh_of(plane, tmp_path_factory.mktemp("mesh"), "--agents", "1"):
        yield plane


class Cluster:
    """What a watch of all pods has shown. ``over``: nodes that were above their CPUs at some time."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session
        self.pods: dict[str, Json] = {}
        self.victims: dict[str, list[str]] = {}
        """By uid, every reason of DisruptionTarget that it was seen leaving with."""
        self.asked_before_the_first_was_gone: int | None = None
        self.over: set[str] = set()
        self._changed = asyncio.Condition()

    async def post(self, path: str, body: Json) -> None:
        async with self.session.post(path, json=body) as answer:
            assert answer.status in (200, 201, 409), await answer.text()

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(WITHIN_S), self._changed:
                await self._changed.wait_for(holds)
        except TimeoutError:
            told = {pod["metadata"]["name"]: pod["status"].get("conditions") for pod in self.ours() if not node_of(pod)}
            raise AssertionError(f"{what}: {len(self.victims)} victims; pending: {told}") from None

    def named(self, prefix: str) -> list[Json]:
        return [pod for pod in self.pods.values() if pod["metadata"]["name"].startswith(prefix)]

    def ours(self) -> list[Json]:
        return self.named("pre-")

    def bound(self, prefix: str) -> int:
        return sum(1 for pod in self.named(prefix) if node_of(pod))

    async def follow(self, listed: asyncio.Event) -> None:
        """Eternal: the API server closes the watch of a client that is slow for a moment, so it lists again."""
        while True:
            async with self.session.get("/api/v1/pods") as answer:
                page = await answer.json()
            there = {pod["metadata"]["uid"] for pod in page["items"]}
            for pod in [pod for uid, pod in self.pods.items() if uid not in there]:
                await self._take("DELETED", pod)  # first, or what came in their place would count beside them
            for pod in page["items"]:
                await self._take("ADDED", pod)
            listed.set()
            with contextlib.suppress(aiohttp.ClientError):
                await self._watch(page["metadata"]["resourceVersion"])

    async def _watch(self, version: str) -> None:
        query = f"allowWatchBookmarks=true&timeoutSeconds={LISTED_AFTER_S}&resourceVersion={version}"
        silent = aiohttp.ClientTimeout(total=None, sock_read=LISTED_AFTER_S + 5)
        async with self.session.get(f"/api/v1/pods?watch=1&{query}", timeout=silent) as stream:
            rest = b""
            async for piece in stream.content.iter_any():
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        return
                    if event["type"] != "BOOKMARK":
                        await self._take(event["type"], event["object"])

    async def _take(self, kind: str, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        why = [c["reason"] for c in pod["status"].get("conditions", ()) if c["type"] == "DisruptionTarget"]
        if pod["metadata"].get("deletionTimestamp") and why:
            self.victims.setdefault(uid, []).extend(why)
        if kind == "DELETED":
            self.pods.pop(uid, None)
            if uid in self.victims and self.asked_before_the_first_was_gone is None:
                self.asked_before_the_first_was_gone = len(self.victims)
        else:
            self.pods[uid] = pod
        used = Counter[str]()
        for one in self.pods.values():
            if node_of(one) and one["status"].get("phase") not in ("Succeeded", "Failed"):
                used[node_of(one)] += int(one["spec"]["containers"][0]["resources"]["requests"]["cpu"])
        self.over |= {node for node, cpus in used.items() if cpus > CPU}
        async with self._changed:
            self._changed.notify_all()


def node_of(pod: Json) -> str:
    return str(pod["spec"].get("nodeName") or "")


@contextlib.asynccontextmanager
async def cluster_of(plane: RunningPlane, *namespaces: str) -> AsyncIterator[Cluster]:
    """The plane as its watch shows it; the namespaces are there, and gone with their pods afterwards."""
    context = ssl.create_default_context(cafile=plane.ca)
    connector = aiohttp.TCPConnector(ssl=context, limit=64)
    headers = {"Authorization": f"Bearer {plane.token}"}
    async with aiohttp.ClientSession(plane.url, headers=headers, connector=connector) as session:
        cluster, listed = Cluster(session), asyncio.Event()
        for name, value in (("low", 1), ("high", 1000)):
            await cluster.post(
                "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": value}
            )
        for namespace in namespaces:
            plane.kubectl("create", "namespace", namespace)
            plane.kubectl("wait", "--for=create", "serviceaccount/default", "-n", namespace, "--timeout=60s")
        following = asyncio.create_task(cluster.follow(listed))
        try:
            await listed.wait()
            yield cluster
            assert not following.done(), following.exception()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            for namespace in namespaces:
                plane.kubectl("delete", "pods", "--all", "-n", namespace, "--force", "--grace-period=0")
                plane.kubectl("delete", "namespace", namespace, "--wait=true", "--timeout=120s")


def pod_of(
    name: str,
    cpu: int,
    priority: str,
    scheduler: str,
    *,
    stop_s: int,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Json:
    requests = {"requests": {"cpu": str(cpu)}}
    return {
        "metadata": {"name": name, "labels": labels or {}, "annotations": {STOP: str(stop_s)}},
        "spec": {
            "schedulerName": scheduler, "priorityClassName": priority, "terminationGracePeriodSeconds": 60,
            "containers": [{"name": "c", "image": "x", "resources": requests}], **spec,
        },
    }  # fmt: skip


async def add(cluster: Cluster, namespace: str, *pods: Json) -> None:
    await asyncio.gather(*(cluster.post(f"/api/v1/namespaces/{namespace}/pods", pod) for pod in pods))


async def crowd(cluster: Cluster, namespace: str, cpu: int, stop_s: int) -> None:
    """A Deployment of kube-scheduler's that wants more than there is, so that what leaves comes again at once."""
    fits = NODES * (CPU // cpu)
    labels = {"app": "busy"}
    template = pod_of("x", cpu, "low", "default-scheduler", stop_s=stop_s, labels=labels)
    del template["metadata"]["name"]
    spec = {"replicas": fits + 20, "selector": {"matchLabels": labels}, "template": template}
    await cluster.post(
        f"/apis/apps/v1/namespaces/{namespace}/deployments", {"metadata": {"name": "busy"}, "spec": spec}
    )
    await cluster.until(lambda: cluster.bound("busy") == fits, "the nodes are full")


async def test_a_burst_of_preemptors_asks_all_its_victims_before_the_first_has_left(beside: RunningPlane) -> None:
    count = NODES * CPU
    async with cluster_of(beside, "burst") as cluster:
        await add(cluster, "burst", *(pod_of(f"low-{n}", 1, "low", "conclave", stop_s=30) for n in range(count)))
        await cluster.until(lambda: cluster.bound("low-") == count, "the nodes are full")
        await add(cluster, "burst", *(pod_of(f"pre-{n}", 1, "high", "conclave", stop_s=0) for n in range(count)))
        await cluster.until(lambda: cluster.bound("pre-") == count, "all preemptors are bound")
        assert cluster.asked_before_the_first_was_gone == count
        assert len(cluster.victims) == count
        assert {reason for told in cluster.victims.values() for reason in told} == {"PreemptionByScheduler"}
        assert cluster.over == set()


async def test_one_preemptor_beside_a_busy_kube_scheduler_takes_one_victim(beside: RunningPlane) -> None:
    async with cluster_of(beside, "one") as cluster:
        await crowd(cluster, "one", 1, stop_s=3)
        await add(cluster, "one", pod_of("pre-0", 1, "high", "conclave", stop_s=0))
        await cluster.until(lambda: cluster.bound("pre-") == 1, "the preemptor is bound")
        assert len(cluster.victims) == 1
        assert cluster.over == set()


async def test_a_gang_beside_a_busy_kube_scheduler_takes_as_many_victims_as_it_needs(beside: RunningPlane) -> None:
    size = 4
    async with cluster_of(beside, "gang") as cluster:
        await crowd(cluster, "gang", 3, stop_s=3)
        group = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": size}}}}
        await cluster.post("/apis/scheduling.k8s.io/v1alpha2/namespaces/gang/podgroups", group)
        member: Json = {"schedulingGroup": {"podGroupName": "g"}}
        await add(
            cluster, "gang", *(pod_of(f"pre-{n}", 3, "high", "conclave", stop_s=0, **member) for n in range(size))
        )
        await cluster.until(lambda: cluster.bound("pre-") == size, "the gang runs")
        assert len(cluster.victims) == size
        assert cluster.over == set()
        for _ in range(int(WITHIN_S)):  # opened once the coordinator has seen the gang bound
            if not (closed := [node for node in beside.get("nodes")["items"] if "making-room" in json.dumps(node)]):
                break
            await asyncio.sleep(1)
        assert not closed


async def test_a_budget_with_an_empty_selector_protects_every_pod_of_its_namespace(beside: RunningPlane) -> None:
    async with cluster_of(beside, "kept", "free") as cluster:
        budget = {"metadata": {"name": "all"}, "spec": {"selector": {}, "maxUnavailable": 0}}
        await cluster.post("/apis/policy/v1/namespaces/kept/poddisruptionbudgets", budget)
        half = NODES // 2
        kept = [pod_of(f"kept-{n}", CPU, "low", "conclave", stop_s=0) for n in range(half)]
        await add(cluster, "kept", *kept)
        await cluster.until(lambda: cluster.bound("kept-") == half, "the protected ones stand")
        await add(
            cluster, "free", *(pod_of(f"free-{n}", CPU, "low", "conclave", stop_s=0) for n in range(NODES - half))
        )
        await cluster.until(lambda: cluster.bound("free-") == NODES - half, "the nodes are full")
        await add(
            cluster, "free", *(pod_of(f"pre-{n}", CPU, "high", "conclave", stop_s=0) for n in range(NODES - half))
        )
        await cluster.until(lambda: cluster.bound("pre-") == NODES - half, "the preemptors are bound")
        assert cluster.bound("kept-") == half


async def test_a_victim_that_its_budget_lets_go_ends_with_the_schedulers_reason(beside: RunningPlane) -> None:
    async with cluster_of(beside, "budgeted") as cluster:
        budget = {"metadata": {"name": "some"}, "spec": {"selector": {}, "maxUnavailable": 1}}
        await cluster.post("/apis/policy/v1/namespaces/budgeted/poddisruptionbudgets", budget)
        labels = {"app": "low"}
        template = pod_of("x", CPU, "low", "conclave", stop_s=20, labels=labels)
        del template["metadata"]["name"]
        spec = {"replicas": NODES, "selector": {"matchLabels": labels}, "template": template}
        await cluster.post("/apis/apps/v1/namespaces/budgeted/deployments", {"metadata": {"name": "low"}, "spec": spec})
        await cluster.until(lambda: cluster.bound("low") == NODES, "the nodes are full")
        beside.kubectl(
            "wait", "-n", "budgeted", "pdb/some", "--for=jsonpath={.status.disruptionsAllowed}=1", "--timeout=120s"
        )
        await add(cluster, "budgeted", pod_of("pre-0", CPU, "high", "conclave", stop_s=0))
        await cluster.until(
            lambda: any(told[-1] == "PreemptionByScheduler" for told in cluster.victims.values()),
            "it says why it leaves",
        )
        assert len(cluster.victims) == 1
