"""The twin's pods leave when a device that they have is tainted, and rules are told what they come to."""

from __future__ import annotations

from typing import Any

from tests.unit.twin.controllers.test_device_claims import ALLOCATION, BY_NAME, CLAIMS, SPEC, Cluster, playing
from twin.controllers.device_taints import SLICES, DeviceTaintEviction
from twin.kinds.devices.taints import RULES

Json = dict[str, Any]
TAINT = {"key": "broken", "effect": "NoExecute"}


def bind(cluster: Cluster, pod: str) -> None:
    kind = cluster.registry.kind("pods")
    ctx = cluster.registry.context("create", kind, "default", pod)
    handler = kind.subresources["binding"].create
    assert handler is not None
    handler(ctx, cluster.registry, pod, {"metadata": {"name": pod}, "target": {"kind": "Node", "name": "n"}})


def slices(generation: int = 1, *taints: Json) -> Json:
    pool = {"name": "n", "generation": generation, "resourceSliceCount": 1}
    return {"driver": "d", "pool": pool, "nodeName": "n", "devices": [{"name": "gpu-0", "taints": list(taints)}]}


async def scene(cluster: Cluster) -> None:
    """A pod that runs on ``n`` with the device, under the controller."""
    player = DeviceTaintEviction(cluster.registry)
    cluster.players.append(player)
    player.start()
    cluster.create("nodes", "n", status={"allocatable": {"pods": "10"}})
    cluster.create(SLICES, "s", spec=slices())
    cluster.create(CLAIMS, "shared", spec=SPEC)
    cluster.pod("p", BY_NAME)
    cluster.allocate("shared", "p")


def leaves(cluster: Cluster) -> bool:
    pod = cluster.registry.get("pods", "default", "p")
    return pod is None or "deletionTimestamp" in pod["metadata"]


def told(cluster: Cluster) -> list[tuple[str, str]]:
    rule = cluster.registry.get(RULES, "", "r")
    assert rule is not None
    return [(one["status"], one["reason"]) for one in (rule.get("status") or {}).get("conditions") or ()]


async def test_a_pod_leaves_when_its_device_is_tainted_and_says_why() -> None:
    async with playing() as cluster:
        await scene(cluster)
        bind(cluster, "p")
        await cluster.quiet()
        assert not leaves(cluster)
        ctx = cluster.registry.context("patch", SLICES, "", "s")
        cluster.registry.patch(ctx, SLICES, "", "s", {"spec": slices(2, TAINT)})
        await cluster.until(lambda: leaves(cluster))
        conditions = {one["type"]: one for one in cluster.get("pods", "p")["status"]["conditions"]}
        assert conditions["DisruptionTarget"]["reason"] == "DeletionByDeviceTaintManager"


async def test_a_pod_that_is_bound_after_the_taint_came_leaves_too() -> None:
    async with playing() as cluster:
        await scene(cluster)
        cluster.create(RULES, "r", spec={"deviceSelector": {"device": "gpu-0"}, "taint": TAINT})
        await cluster.quiet()
        assert not leaves(cluster)
        assert told(cluster) == [("False", "NotStarted")]
        bind(cluster, "p")
        await cluster.until(lambda: leaves(cluster))


async def test_a_rule_without_a_selector_evicts_nobody_and_one_of_no_effect_counts() -> None:
    async with playing() as cluster:
        await scene(cluster)
        bind(cluster, "p")
        cluster.create(RULES, "r", spec={"taint": TAINT})
        cluster.create(RULES, "what-if", spec={"deviceSelector": {}, "taint": {**TAINT, "effect": "None"}})
        await cluster.until(lambda: told(cluster) == [("False", "NotStarted")])
        await cluster.quiet()
        assert not leaves(cluster)
        rule = cluster.registry.get(RULES, "", "what-if")
        assert rule is not None
        assert rule["status"]["conditions"][0]["message"].startswith(
            "1 published device selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace"
        )


async def test_a_claim_that_tolerates_for_ever_keeps_its_device() -> None:
    async with playing() as cluster:
        await scene(cluster)
        bind(cluster, "p")
        result = ALLOCATION["devices"]["results"][0]
        toleration = {"key": "broken", "operator": "Exists", "effect": "NoExecute"}
        allocation = {"devices": {"results": [{**result, "tolerations": [toleration]}]}}
        cluster.write("shared", {**cluster.get(CLAIMS, "shared")["status"], "allocation": allocation})
        cluster.create(RULES, "r", spec={"deviceSelector": {}, "taint": TAINT})
        await cluster.until(lambda: told(cluster) == [("False", "NotStarted")])
        await cluster.quiet()
        assert not leaves(cluster)
