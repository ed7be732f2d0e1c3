"""The twin's volume controllers over a real registry: what becomes of claims and volumes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from lab.audit.rules import Json
from lab.traces.workload import node_json
from tests.patience import PATIENCE_S
from twin.bootstrap import make_registry
from twin.controllers.volumes import CLAIMS, CLASSES, VOLUMES, VolumeController
from twin.model.volumes import BIND_COMPLETED, PROVISION_ANNOTATION, SELECTED_NODE, ZONE

DRIVER = "csi.example.com"


class Cluster:
    """A registry with volume controllers at a thousand times the speed of time."""

    def __init__(self) -> None:
        self.registry = make_registry(clock=time.time, rng=Random(1))
        self.controller = VolumeController(self.registry, speed=1000.0)
        self.changed = asyncio.Event()
        self.registry.subscribe(lambda _accepted: self.changed.set())

    def create(
        self, resource: str, kind: str, name: str, *, version: str = "v1", namespace: str = "", **body: Any
    ) -> Json:
        metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **body.pop("metadata", {})}
        obj = {"apiVersion": version, "kind": kind, "metadata": metadata, **body}
        return self.registry.create(
            self.registry.context("create", resource, namespace, name), resource, namespace, obj
        )

    def storage_class(self, name: str, *, delayed: bool = True, after: str = "", **body: Any) -> None:
        mode = "WaitForFirstConsumer" if delayed else "Immediate"
        metadata = {"annotations": {PROVISION_ANNOTATION: after}} if after else {}
        body = {"provisioner": DRIVER, "volumeBindingMode": mode, **body}
        self.create(CLASSES, "StorageClass", name, version="storage.k8s.io/v1", metadata=metadata, **body)

    def claim(self, name: str, storage_class: str, *, size: str = "1Gi", selected: str = "", **spec: Any) -> None:
        metadata = {"annotations": {SELECTED_NODE: selected}} if selected else {}
        wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
        wanted["storageClassName"] = storage_class
        self.create(CLAIMS, "PersistentVolumeClaim", name, namespace="default", metadata=metadata, spec=wanted)

    def volume(self, name: str, storage_class: str, *, size: str = "1Gi", **spec: Any) -> None:
        offered = {
            "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": storage_class,
            "csi": {"driver": DRIVER, "volumeHandle": name}, **spec,
        }  # fmt: skip
        self.create(VOLUMES, "PersistentVolume", name, spec=offered)

    def node(self, name: str, zone: str = "") -> None:
        node = node_json(name, {"cpu": "4", "memory": "8Gi", "pods": "110"}, labels={ZONE: zone} if zone else None)
        self.registry.create(self.registry.context("create", "nodes", "", name), "nodes", "", node)

    def pod(self, name: str, **volume: Any) -> None:
        spec = {"containers": [{"name": "c", "image": "i"}], "volumes": [{"name": "data", **volume}]}
        self.create("pods", "Pod", name, namespace="default", spec=spec)

    def select(self, claim: str, node: str) -> None:
        patch = {"metadata": {"annotations": {SELECTED_NODE: node}}}
        self.registry.patch(self.registry.context("patch", CLAIMS, "default", claim), CLAIMS, "default", claim, patch)

    def delete(self, resource: str, namespace: str, name: str, **options: Any) -> None:
        ctx = self.registry.context("delete", resource, namespace, name)
        self.registry.delete(ctx, resource, namespace, name, options)

    def get_claim(self, name: str) -> Json:
        claim = self.registry.get(CLAIMS, "default", name)
        assert claim is not None
        return claim

    def phase(self, claim: str) -> str:
        return str(self.get_claim(claim)["status"]["phase"])

    def volume_phase(self, name: str) -> str:
        volume = self.registry.get(VOLUMES, "", name)
        return str(volume["status"]["phase"]) if volume else "gone"

    def made(self) -> list[Json]:
        return [volume for volume in self.registry.list(VOLUMES) if volume["metadata"]["name"].startswith("pvc-")]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    async def rest(self) -> None:
        """Everything that follows from what happened so far has been done."""
        async with asyncio.timeout(PATIENCE_S):
            while self.controller.busy:  # noqa: ASYNC110  # one turn of the loop is one batch; there is no event
                await asyncio.sleep(0)


@asynccontextmanager
async def running() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    cluster.controller.start()
    yield cluster
    cluster.controller.stop()
    assert cluster.controller.refused == 0


async def test_a_claim_that_waits_for_its_consumer_gets_a_volume_once_a_node_is_selected() -> None:
    async with running() as cluster:
        cluster.storage_class("slow")
        cluster.node("n0", zone="z1")
        cluster.claim("data", "slow")
        await cluster.rest()
        assert (cluster.phase("data"), cluster.made()) == ("Pending", [])
        cluster.select("data", "n0")
        await cluster.until(lambda: cluster.phase("data") == "Bound")
        (volume,) = cluster.made()
        claim = cluster.get_claim("data")
    assert volume["metadata"]["name"] == f"pvc-{claim['metadata']['uid']}" == claim["spec"]["volumeName"]
    assert claim["metadata"]["annotations"][BIND_COMPLETED] == "yes"
    assert claim["status"] == {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    assert volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]
    assert (volume["spec"]["csi"]["driver"], volume["status"]["phase"]) == (DRIVER, "Bound")
    (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": ZONE, "operator": "In", "values": ["z1"]}]


async def test_an_immediate_claim_gets_a_volume_at_once_also_when_its_class_comes_later() -> None:
    async with running() as cluster:
        cluster.claim("early", "fast")
        await cluster.rest()
        assert cluster.phase("early") == "Pending"
        cluster.storage_class("fast", delayed=False)
        cluster.claim("late", "fast")
        await cluster.until(lambda: cluster.phase("early") == cluster.phase("late") == "Bound")
        assert len(cluster.made()) == 2


async def test_the_smallest_static_volume_that_fits_is_taken_and_no_other() -> None:
    async with running() as cluster:
        for name, size in (("huge", "9Gi"), ("small", "1Gi"), ("right", "3Gi")):
            cluster.volume(name, "", size=size)
        await cluster.until(lambda: cluster.volume_phase("right") == "Available")
        cluster.claim("data", "", size="2Gi")
        await cluster.until(lambda: cluster.phase("data") == "Bound")
        assert cluster.get_claim("data")["spec"]["volumeName"] == "right"
        cluster.claim("too-large", "", size="10Gi")
        cluster.claim("labelled", "", selector={"matchLabels": {"disk": "ssd"}})
        await cluster.rest()
        assert (cluster.phase("too-large"), cluster.phase("labelled")) == ("Pending", "Pending")
        assert [cluster.volume_phase(name) for name in ("huge", "small")] == ["Available", "Available"]


async def test_a_reservation_by_the_scheduler_is_completed_though_the_claim_waits_for_its_consumer() -> None:
    async with running() as cluster:
        cluster.storage_class("local", provisioner="kubernetes.io/no-provisioner")
        cluster.volume("disk", "local")
        cluster.claim("data", "local")
        await cluster.rest()
        assert cluster.phase("data") == "Pending"
        meta = cluster.get_claim("data")["metadata"]
        reference = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "data", "uid": meta["uid"]}
        ctx = cluster.registry.context("patch", VOLUMES, "", "disk")
        cluster.registry.patch(ctx, VOLUMES, "", "disk", {"spec": {"claimRef": reference}})
        await cluster.until(lambda: cluster.phase("data") == "Bound")
        assert cluster.volume_phase("disk") == "Bound"


async def test_provisioning_takes_its_time_and_may_never_end() -> None:
    loop = asyncio.get_running_loop()
    async with running() as cluster:
        cluster.storage_class("takes-its-time", delayed=False, after="300")
        cluster.storage_class("hangs", delayed=False, after="never")
        cluster.claim("hanging", "hangs")
        started_s = loop.time()
        cluster.claim("data", "takes-its-time")
        await cluster.until(lambda: cluster.phase("data") == "Bound")
        assert loop.time() - started_s >= 0.3, "300 virtual seconds at this speed"
        assert (cluster.phase("hanging"), len(cluster.made())) == ("Pending", 1)


async def test_a_claim_deleted_while_its_volume_is_made_gets_none() -> None:
    async with running() as cluster:
        cluster.storage_class("slow", delayed=False, after="1000")
        cluster.claim("data", "slow")
        cluster.claim("other", "slow")
        await cluster.rest()
        cluster.delete(CLAIMS, "default", "data")
        await cluster.until(lambda: cluster.phase("other") == "Bound")
        assert len(cluster.made()) == 1


async def test_a_selected_node_that_is_gone_is_taken_back_so_that_another_is_chosen() -> None:
    async with running() as cluster:
        cluster.storage_class("slow")
        cluster.node("n0")
        cluster.claim("ghost", "slow", selected="gone")
        await cluster.until(lambda: SELECTED_NODE not in cluster.get_claim("ghost")["metadata"]["annotations"])
        assert cluster.made() == []


async def test_what_a_deleted_claim_leaves_is_deleted_or_released_by_the_policy() -> None:
    async with running() as cluster:
        cluster.storage_class("fast", delayed=False)
        cluster.volume("kept", "")
        await cluster.until(lambda: cluster.volume_phase("kept") == "Available")
        cluster.claim("made", "fast")
        cluster.claim("static", "")
        await cluster.until(lambda: cluster.phase("made") == cluster.phase("static") == "Bound")
        cluster.delete(CLAIMS, "default", "made")
        cluster.delete(CLAIMS, "default", "static")
        await cluster.until(lambda: not cluster.made() and cluster.volume_phase("kept") == "Released")


async def test_a_claim_in_use_stays_until_its_pod_is_gone() -> None:
    async with running() as cluster:
        cluster.storage_class("fast", delayed=False)
        cluster.claim("data", "fast")
        cluster.pod("user", persistentVolumeClaim={"claimName": "data"})
        await cluster.until(lambda: cluster.phase("data") == "Bound")
        cluster.delete(CLAIMS, "default", "data")
        await cluster.rest()
        assert cluster.get_claim("data")["metadata"]["deletionTimestamp"]
        cluster.delete("pods", "default", "user", gracePeriodSeconds=0)
        await cluster.until(lambda: cluster.registry.get(CLAIMS, "default", "data") is None)


async def test_a_bound_claim_whose_volume_is_gone_is_lost() -> None:
    async with running() as cluster:
        cluster.volume("disk", "")
        await cluster.until(lambda: cluster.volume_phase("disk") == "Available")
        cluster.claim("data", "")
        await cluster.until(lambda: cluster.phase("data") == "Bound")
        kind = cluster.registry.kind(VOLUMES)
        ctx = cluster.registry.context("delete", VOLUMES, "", "disk")
        cluster.registry.remove(ctx, kind, cluster.registry.stored(kind, "", "disk"))
        await cluster.until(lambda: cluster.phase("data") == "Lost")


async def test_ephemeral_volumes_get_claims_that_go_with_their_pod() -> None:
    async with running() as cluster:
        cluster.storage_class("fast", delayed=False)
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        cluster.pod("job", ephemeral={"volumeClaimTemplate": {"spec": {**spec, "storageClassName": "fast"}}})
        await cluster.until(lambda: cluster.registry.get(CLAIMS, "default", "job-data") is not None)
        await cluster.until(lambda: cluster.phase("job-data") == "Bound")
        (owner,) = cluster.get_claim("job-data")["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("Pod", "job", True)
        cluster.delete("pods", "default", "job", gracePeriodSeconds=0)
        await cluster.until(lambda: cluster.registry.get(CLAIMS, "default", "job-data") is None)
        await cluster.until(lambda: not cluster.made())
