"""Beside another scheduler: a node where room is made bears marks as long as it is, and what a kubelet refused is
free."""

from __future__ import annotations

import asyncio
from pathlib import Path

from shared.model.node import HELD_TAINT, NOT_REMOVED, OUR_ANNOTATIONS
from tests.real.conftest import RunningPlane, mesh_of
from tests.real.scene import PATIENCE_S, SLOT, Json, Scene


def marks(node: Json) -> set[str]:
    """What of ours the node bears."""
    taints = {taint["key"] for taint in node["spec"].get("taints", ())}
    there = {*taints, *node["metadata"].get("annotations", ())}
    return there & {HELD_TAINT, *NOT_REMOVED, OUR_ANNOTATIONS}


async def test_a_node_is_held_while_room_is_made(plane: RunningPlane, tmp_path: Path) -> None:
    with mesh_of(plane, tmp_path, "--agents", "1"):
        async with Scene(plane, "held") as scene:
            node = await scene.node("a", slots=2)
            path, theirs = f"/api/v1/nodes/{node}", {NOT_REMOVED[1]: "true"}
            await scene.call("PATCH", path, {"metadata": {"annotations": theirs}})
            await scene.pod("low", slots=2, held=True)
            await scene.until_bound("low")
            await scene.pod("theirs", slots=9, schedulerName="example.com/other")  # another scheduler is at work
            await scene.pod("high", slots=2, priority=300)
            await scene.until(lambda: "low" in scene.stopped)
            assert marks(await scene.call("GET", path)) == {HELD_TAINT, *NOT_REMOVED, OUR_ANNOTATIONS}
            await scene.end("low")
            await scene.until_bound("high")
            async with asyncio.timeout(PATIENCE_S):
                async for event in scene.objects(f"/api/v1/nodes?fieldSelector=metadata.name%3D{node}"):
                    if marks(event["object"]) == theirs.keys():
                        break


async def test_a_pod_that_a_kubelet_refused_counts_nowhere(plane: RunningPlane, tmp_path: Path) -> None:
    """Two schedulers gave the same room away at once."""
    with mesh_of(plane, tmp_path, "--agents", "1"):
        async with Scene(plane, "refused") as scene:
            node = await scene.node("a", slots=3)
            for name in ("first", "late"):
                await scene.pod(name, slots=2, schedulerName="example.com/other")
                binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
                await scene.call("POST", f"{scene.path}/pods/{name}/binding", binding)
                await scene.until(lambda name=name: scene.pods[name]["status"].get("phase") in ("Running", "Failed"))
            assert scene.pods["late"]["status"]["reason"] == f"OutOf{SLOT}"
            await scene.pod("ours", slots=1)
            await scene.until_bound("ours")
            await scene.pod("more", slots=1)
            await scene.until_refused("more")
