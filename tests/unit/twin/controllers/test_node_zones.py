"""The twin's kubelets let pods on by zones or refuse them for good; an exporter tells of it, late where told so."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.twin.controllers.test_device_claims import Cluster, playing
from twin.cluster_file import ClusterFile, NodesOfFile, populate
from twin.controllers.node_zones import NodeZonesController
from twin.model.zones import KATALYST_TOPOLOGIES, TOPOLOGIES, Zones

Json = dict[str, Any]


def begin(cluster: Cluster, **zones: Any) -> NodeZonesController:
    populate(cluster.registry, ClusterFile([NodesOfFile(1, "n", cpu="16", memory="64Gi", zones=Zones(**zones))]))
    player = NodeZonesController(cluster.registry)
    cluster.players.append(player)
    player.start()
    return player


def pod(cluster: Cluster, name: str, cpu: str, *, node: str = "n", guaranteed: bool = True) -> None:
    amounts = {"cpu": cpu, "memory": "1Gi"}
    resources = {"requests": amounts, **({"limits": amounts} if guaranteed else {})}
    cluster.create(
        "pods", name, spec={"nodeName": node, "containers": [{"name": "c", "image": "i", "resources": resources}]}
    )


def available(cluster: Cluster, resource: str = "cpu") -> list[str]:
    found = cluster.registry.get(TOPOLOGIES, "", "n")
    assert found is not None
    return [one["available"] for zone in found["zones"] for one in zone["resources"] if one["name"] == resource]


def phase(cluster: Cluster, name: str) -> tuple[str, str]:
    found = cluster.registry.get("pods", "default", name)
    assert found is not None
    return found["status"]["phase"], found["status"].get("reason", "")


async def test_zones_are_published_and_follow_the_pods() -> None:
    async with playing() as cluster:
        begin(cluster)
        await cluster.quiet()
        assert available(cluster) == ["8", "8"]
        pod(cluster, "a", "5")
        await cluster.quiet()
        assert available(cluster) == ["3", "8"]
        cluster.registry.delete(
            cluster.registry.context("delete", "pods", "default", "a"), "pods", "default", "a",
            {"gracePeriodSeconds": 0},
        )  # fmt: skip
        await cluster.quiet()
        assert available(cluster) == ["8", "8"]


async def test_a_pod_that_no_zone_has_room_for_is_refused_for_good() -> None:
    async with playing() as cluster:
        player = begin(cluster)
        for name in ("a", "b", "c"):
            pod(cluster, name, "5")
        await cluster.quiet()
        assert [phase(cluster, name)[0] for name in "ab"] == ["Pending", "Pending"]
        assert phase(cluster, "c") == ("Failed", "TopologyAffinityError")
        assert player.refusals == {"n": 1}
        assert available(cluster) == ["3", "3"]


async def test_pods_that_nothing_aligns_are_in_no_zone() -> None:
    async with playing() as cluster:
        begin(cluster)
        pod(cluster, "a", "12", guaranteed=False)
        await cluster.quiet()
        assert phase(cluster, "a")[0] == "Pending"
        assert available(cluster) == ["8", "8"]


async def test_an_exporter_is_as_late_as_it_is_told_to_be() -> None:
    async with playing() as cluster:
        begin(cluster, late_s=3600.0)
        await cluster.quiet()
        pod(cluster, "a", "5")
        await cluster.quiet()
        assert available(cluster) == ["8", "8"]


async def test_an_annotation_that_cannot_be_read_leaves_the_zones() -> None:
    async with playing() as cluster:
        begin(cluster)
        await cluster.quiet()
        ctx = cluster.registry.context("patch", "nodes", "", "n")
        patch = {"metadata": {"annotations": {"conclave.io/twin-zones": json.dumps({"count": 99})}}}
        cluster.registry.patch(ctx, "nodes", "", "n", patch)
        await cluster.quiet()
        assert available(cluster) == ["8", "8"]


async def test_an_agent_of_katalyst_names_its_pods_and_refuses_by_its_own_rules() -> None:
    async with playing() as cluster:
        begin(cluster, exporter="katalyst", policy="numeric")
        dedicated(cluster, "alone", "2", exclusive=True)
        dedicated(cluster, "beside", "3")
        dedicated(cluster, "too", "2", exclusive=True)
        pod(cluster, "shared", "4")
        await cluster.quiet()
        found = cluster.registry.get(KATALYST_TOPOLOGIES, "", "n")
        assert found is not None
        assert cluster.registry.get(TOPOLOGIES, "", "n") is None
        zones = [zone for socket in found["status"]["topologyZone"] for zone in socket["children"]]
        held = [
            {one["consumer"].split("/")[1]: one["requests"] for one in zone["allocations"]}
            for zone in zones
        ]  # fmt: skip
        assert held == [
            {"alone": {"cpu": "8", "memory": str(32 * 2**30)}}, {"beside": {"cpu": "3", "memory": str(2**30)}},
        ]  # fmt: skip
        assert phase(cluster, "too") == ("Failed", "TopologyAffinityError")


def dedicated(cluster: Cluster, name: str, cpu: str, *, exclusive: bool = False) -> None:
    enhancement = {"numa_binding": "true"} | ({"numa_exclusive": "true"} if exclusive else {})
    annotations = {
        "katalyst.kubewharf.io/qos_level": "dedicated_cores",
        "katalyst.kubewharf.io/memory_enhancement": json.dumps(enhancement),
    }
    resources = {"requests": {"cpu": cpu, "memory": "1Gi"}}
    spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i", "resources": resources}]}
    cluster.create("pods", name, spec=spec, metadata={"annotations": annotations})
