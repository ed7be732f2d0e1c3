"""Reservations on a real API server: served, kept, taken by a Binding's annotation, and lost to another scheduler,
which knows of none."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from shared.model.node import NOT_REMOVED
from shared.model.units.reservation import RESERVATION_ANNOTATION, RESERVED_ANNOTATIONS
from tests.manifests.rendering import ROOT
from tests.real.conftest import RunningPlane, mesh_of
from tests.real.scene import PATIENCE_S, SLOT, Json, Scene

KIND = ROOT / "k8s/base/reservations-crd.yaml"


async def phase(scene: Scene, path: str, *wanted: str) -> Json:
    status: Json = {}
    async with asyncio.timeout(PATIENCE_S):
        while status.get("phase") not in wanted:
            status = (await scene.call("GET", path)).get("status") or {}
            await asyncio.sleep(0.2)
    return status


async def test_room_is_kept_taken_and_lost_to_another_scheduler(plane: RunningPlane, tmp_path: Path) -> None:
    plane.kubectl("apply", "--server-side", "-f", str(KIND))
    plane.kubectl("wait", "--for=condition=Established", "crd/reservations.conclave.io", "--timeout=60s")
    with mesh_of(plane, tmp_path, "--agents", "1"):
        async with Scene(plane, "reserved") as scene:
            node = await scene.node("a", slots=3)
            path = f"/apis/conclave.io/v1alpha1/namespaces/{scene.name}/reservations"
            amounts = {SLOT: "2"}
            container = {"name": "c", "image": "x", "resources": {"requests": amounts, "limits": amounts}}
            shape = {"spec": {"containers": [container]}}
            for name, owner in (("taken", "mine"), ("lost", "nobody")):
                spec: dict[str, Any] = {"template": shape, "owners": [{"pod": owner}], "nodes": {"names": [node]}}
                body = {"apiVersion": "conclave.io/v1alpha1", "kind": "Reservation", "metadata": {"name": name}}
                await scene.call("POST", path, {**body, "spec": spec})
                assert (await phase(scene, f"{path}/{name}", "Available"))["node"] == node
                bears = (await scene.call("GET", f"/api/v1/nodes/{node}"))["metadata"].get("annotations", {})
                async with asyncio.timeout(PATIENCE_S):
                    while not {*NOT_REMOVED, RESERVED_ANNOTATIONS} <= bears.keys():
                        await asyncio.sleep(0.2)
                        bears = (await scene.call("GET", f"/api/v1/nodes/{node}"))["metadata"].get("annotations", {})
                if name == "taken":
                    await scene.pod("mine", slots=2)
                    await scene.until_bound("mine")
                    await phase(scene, f"{path}/taken", "Succeeded")
                    mine = await scene.call("GET", f"{scene.path}/pods/mine")
                    assert RESERVATION_ANNOTATION in mine["metadata"]["annotations"]
                    await scene.call("DELETE", f"{scene.path}/pods/mine", {"gracePeriodSeconds": 0})
            # as kube-scheduler does, which sees the room as free
            await scene.pod("theirs", slots=2, schedulerName="example.com/other")
            binding = {"metadata": {"name": "theirs"}, "target": {"kind": "Node", "name": node}}
            await scene.call("POST", f"{scene.path}/pods/theirs/binding", binding)
            lost = await phase(scene, f"{path}/lost", "Failed")
            assert lost["conditions"][0]["reason"] == "RoomLost"
