"""A mesh of ours lends on a real control plane: its API server decides who owns what nodes say, kubelets go on telling.

Hollow kubelets run the pods; a metrics server behind the aggregator says what these and their nodes use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.traces.workload import pod_json
from shared.model.resources import parse_quantity
from tests.node_loans import CPU, MANAGER, NAMES, both
from tests.real.conftest import RunningPlane, mesh_of
from tests.real.metrics_server import SYSTEM, USAGE, metrics_server
from tests.real.scene import PATIENCE_S, Json, Scene

ONLINE_MILLIS = 1000


def lent(node: Json) -> tuple[int, ...]:
    """What it says it lends; -1: nothing of it."""
    return tuple(parse_quantity(node["status"]["allocatable"].get(name, "-1")) for name in NAMES)


async def until(scene: Scene, node: str, true: Callable[[Json], bool]) -> Json:
    """The node once that is ``true``."""
    async with asyncio.timeout(PATIENCE_S):
        async for event in scene.objects(f"/api/v1/nodes?fieldSelector=metadata.name%3D{node}"):
            if true(event["object"]):
                found: Json = event["object"]
                return found
    raise AssertionError


async def test_a_mesh_lends_beside_kubelets_and_another_lender(
    plane: RunningPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"LEND": "on", "LEND_WINDOW_S": "3", "METRICS_EVERY_S": "1", "LEND_REWRITE_S": "3"}.items():
        monkeypatch.setenv(f"CONCLAVE_COORDINATOR_{name}", value)
    with metrics_server(plane, tmp_path):
        async with Scene(plane, "lending") as scene:
            ours, theirs = await scene.node("ours", slots=9), await scene.node("theirs", slots=9)
            await scene.call("PATCH", f"/api/v1/nodes/{theirs}/status?fieldManager=koord-manager", {
                "status": both("1234", "5")
            })  # fmt: skip
            use = f'{{"s":3600,"u":[[0,{ONLINE_MILLIS},{2**28},0,0]]}}'
            with mesh_of(plane, tmp_path / "mesh", "--agents", "1"):
                web = pod_json("web", {"cpu": "3"}, namespace="lending", annotations={USAGE: use})
                web["spec"]["nodeSelector"] = {"kubernetes.io/hostname": ours}
                await scene.call("POST", f"{scene.path}/pods", web)
                await scene.until_bound("web")
                # 60 % of 4 cores less what is used
                wanted = 2400 - ONLINE_MILLIS - SYSTEM[0]
                node = await until(scene, ours, lambda node: lent(node)[0] == wanted)
                told = {one["manager"] for one in node["metadata"]["managedFields"] if CPU in str(one["fieldsV1"])}
                assert told == {MANAGER}
                # a core more, as its kubelet tells
                await scene.call("PATCH", f"/api/v1/nodes/{ours}/status?fieldManager=kubelet", {
                    "status": {"capacity": {"cpu": "5"}, "allocatable": {"cpu": "5"}}
                })  # fmt: skip
                node = await until(scene, ours, lambda node: lent(node)[0] == wanted + 600)
                assert node["status"]["allocatable"]["cpu"] == "5"
                found = await scene.call("GET", f"/api/v1/nodes/{theirs}")
                assert lent(found) == (1234, 5)
