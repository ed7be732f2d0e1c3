"""The twin's device drivers: what a node publishes follows its annotation, as a new generation each time."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.twin.controllers.test_device_claims import Cluster, playing
from twin.controllers.device_drivers import SLICES, DeviceDrivers
from twin.controllers.kubelet_objects import FAIL_ANNOTATION
from twin.model.devices import DEVICES_ANNOTATION
from twin.model.usage import TWIN_NODE_ANNOTATION

Json = dict[str, Any]


def driver(count: int = 2, **more: Any) -> Json:
    return {"driver": "gpu.example.com", "count": count, **more}


def annotations(*drivers: Json) -> dict[str, str]:
    return {TWIN_NODE_ANNOTATION: "true", DEVICES_ANNOTATION: json.dumps(list(drivers))}


def begin(cluster: Cluster, *drivers: Json) -> None:
    player = DeviceDrivers(cluster.registry)
    cluster.players.append(player)
    player.start()
    cluster.create("nodes", "n", metadata={"annotations": annotations(*drivers)})


async def annotate(cluster: Cluster, values: dict[str, str | None]) -> None:
    ctx = cluster.registry.context("patch", "nodes", "", "n")
    cluster.registry.patch(ctx, "nodes", "", "n", {"metadata": {"annotations": values}})
    await cluster.quiet()


def published(cluster: Cluster) -> list[tuple[int, int, int]]:
    """Generation, number of slices, devices of each slice."""
    found = [one["spec"] for one in cluster.registry.list(SLICES)]
    return [
        (one["pool"]["generation"], one["pool"]["resourceSliceCount"], len(one.get("devices") or ())) for one in found
    ]


async def test_a_node_publishes_what_its_annotation_says_and_once() -> None:
    async with playing() as cluster:
        begin(cluster, driver(130), {"driver": "nic.example.com", "count": 1})
        await cluster.quiet()
        assert published(cluster) == [(1, 2, 128), (1, 2, 2), (1, 1, 1)]
        before = [one["metadata"]["resourceVersion"] for one in cluster.registry.list(SLICES)]
        await annotate(cluster, {"note": "nothing of devices"})
        assert [one["metadata"]["resourceVersion"] for one in cluster.registry.list(SLICES)] == before


async def test_a_change_is_a_new_generation_of_the_whole_pool() -> None:
    async with playing() as cluster:
        begin(cluster, driver(130))
        await cluster.quiet()
        await annotate(cluster, annotations(driver(129)))
        assert published(cluster) == [(2, 2, 128), (2, 2, 1)]
        await annotate(cluster, annotations(driver(3)))
        assert published(cluster) == [(3, 1, 3)]
        await annotate(cluster, annotations(driver(3, failed=[1])))
        assert published(cluster) == [(4, 1, 3)]
        counters = {"counters": {"slices": "7"}, "partitions": [{"name": "half", "count": 2, "takes": {"slices": "3"}}]}
        await annotate(cluster, annotations(driver(1, **counters)))
        assert published(cluster) == [(5, 2, 0), (5, 2, 3)]


async def test_a_stopped_driver_withdraws_its_slices_and_a_failed_node_publishes_nothing_new() -> None:
    async with playing() as cluster:
        begin(cluster, driver())
        await cluster.quiet()
        await annotate(cluster, {**annotations(driver(3)), FAIL_ANNOTATION: "true"})
        assert published(cluster) == [(1, 1, 2)]
        await annotate(cluster, {FAIL_ANNOTATION: None})
        assert published(cluster) == [(2, 1, 3)]
        await annotate(cluster, annotations(driver(stopped=True)))
        assert published(cluster) == []
        await annotate(cluster, annotations(driver()))
        assert published(cluster) == [(1, 1, 2)]
        await annotate(cluster, {DEVICES_ANNOTATION: None})
        assert published(cluster) == []


async def test_a_slice_that_somebody_deleted_or_changed_is_written_again() -> None:
    async with playing() as cluster:
        begin(cluster, driver())
        await cluster.quiet()
        name = next(iter(cluster.registry.list(SLICES)))["metadata"]["name"]
        cluster.registry.delete(cluster.registry.context("delete", SLICES, "", name), SLICES, "", name, {})
        await cluster.quiet()
        assert published(cluster) == [(1, 1, 2)]
        ctx = cluster.registry.context("patch", SLICES, "", name)
        cluster.registry.patch(ctx, SLICES, "", name, {"spec": {"devices": None}})
        await cluster.quiet()
        assert published(cluster) == [(2, 1, 2)]


async def test_slices_go_with_their_node_and_come_with_another_of_its_name() -> None:
    async with playing() as cluster:
        begin(cluster, driver())
        await cluster.quiet()
        ctx = cluster.registry.context("delete", "nodes", "", "n")
        cluster.registry.delete(ctx, "nodes", "", "n", {})
        cluster.create("nodes", "n", metadata={"annotations": annotations(driver(3))})
        await cluster.quiet()
        assert published(cluster) == [(1, 1, 3)]
        node = cluster.registry.get("nodes", "", "n")
        assert node is not None
        (slice_,) = cluster.registry.list(SLICES)
        assert slice_["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]


async def test_what_cannot_be_used_leaves_what_is_published_and_is_told_once() -> None:
    async with playing() as cluster:
        begin(cluster, driver())
        await cluster.quiet()
        for bad in ("[{]", json.dumps([driver(attributes={"not-an-id": 1})])):
            for note in ("a", "b"):
                await annotate(cluster, {DEVICES_ANNOTATION: bad, "note": note})
        assert published(cluster) == [(1, 1, 2)]
        told = [one["message"] for one in cluster.registry.list("events") if one["reason"] == "TwinDevices"]
        assert len(told) == 2
        assert "conclave.io/twin-devices" in told[0] + told[1]
        assert "a valid C identifier" in told[0] + told[1]


async def test_a_node_that_nobody_plays_publishes_nothing() -> None:
    async with playing() as cluster:
        begin(cluster)
        cluster.create("nodes", "real", metadata={"annotations": {DEVICES_ANNOTATION: json.dumps([driver()])}})
        await cluster.quiet()
        assert published(cluster) == []
