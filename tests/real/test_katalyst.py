"""Katalyst's CustomNodeResource on a real API server: its definition with the status apart, as Katalyst ships it;
pods of dedicated cores are bound by zone, and wait by zone."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.real.conftest import RunningPlane, mesh_of
from tests.real.scene import Scene
from twin.model.zones import KATALYST_GROUP, KATALYST_TOPOLOGIES, definition

Json = dict[str, Any]
PATH = f"/apis/{KATALYST_GROUP}/v1alpha1/customnoderesources"


@pytest.fixture(scope="module")
def mesh(plane: RunningPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The definition is there before the mesh looks what is served."""
    folder = tmp_path_factory.mktemp("katalyst")
    made = definition(KATALYST_TOPOLOGIES)
    made["spec"]["versions"][0]["subresources"] = {"status": {}}
    file = folder / "crd.json"
    file.write_text(json.dumps(made))
    plane.kubectl("apply", "-f", str(file))
    plane.kubectl("wait", "--for=condition=Established", f"crd/{KATALYST_TOPOLOGIES}", "--timeout=60s")
    with mesh_of(plane, folder, "--agents", "2"):
        yield
    plane.kubectl("delete", "crd", KATALYST_TOPOLOGIES)


@pytest.fixture
async def scene(plane: RunningPlane, mesh: None, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    async with Scene(plane, request.node.name[5:35].replace("_", "-").strip("-")) as found:
        yield found


async def tell(scene: Scene, node: str, *zones: Json) -> None:
    """Katalyst's agent tells of a machine of zones of 2 CPUs; ``zones``: what each pod has there, by uid."""
    amounts = {"cpu": "2", "memory": "4Gi"}
    children = [
        {
            "type": "Numa", "name": str(number), "resources": {"capacity": amounts, "allocatable": amounts},
            "allocations": [
                {"consumer": f"{scene.name}/{name}/{scene.pods[name]['metadata']['uid']}", "requests": has}
                for name, has in held.items()
            ],
        }
        for number, held in enumerate(zones)
    ]  # fmt: skip
    tree = [{"type": "Socket", "name": "0", "resources": {}, "children": children}]
    status = {"topologyPolicy": "NumericContainerLevel", "topologyZone": tree, "resources": {}}
    body = {"apiVersion": f"{KATALYST_GROUP}/v1alpha1", "kind": "CustomNodeResource", "metadata": {"name": node}}
    await scene.call("POST", PATH, body, but=(409,))
    await scene.call("PATCH", f"{PATH}/{node}/status", {"status": status})


async def dedicated(scene: Scene, name: str, cpu: str, *, exclusive: bool = False) -> None:
    enhancement = {"numa_binding": "true"} | ({"numa_exclusive": "true"} if exclusive else {})
    amounts = {"cpu": cpu, "memory": "1Gi"}
    body = {
        "metadata": {
            "name": name,
            "annotations": {
                "katalyst.kubewharf.io/qos_level": "dedicated_cores",
                "katalyst.kubewharf.io/memory_enhancement": json.dumps(enhancement),
            },
        },
        "spec": {
            "schedulerName": scene.scheduler,
            "nodeSelector": {"scene": scene.name},
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "x", "resources": {"requests": amounts, "limits": amounts}}],
        },
    }
    await scene.call("POST", f"{scene.path}/pods", body)


async def test_dedicated_cores_are_bound_and_wait_by_zone(scene: Scene) -> None:
    node = await scene.node("a", slots=1)
    await tell(scene, node, {}, {})
    await dedicated(scene, "alone", "1", exclusive=True)
    await scene.until(lambda: scene.node_of("alone") == node)
    await dedicated(scene, "bound", "1")
    # nobody knows which zone the first one has
    await scene.until(lambda: "cannot align container" in scene.refused("bound"))
    await tell(scene, node, {"alone": {"cpu": "2", "memory": "4Gi"}}, {})
    await scene.until(lambda: scene.node_of("bound") == node)
    # 2 CPUs are free: one of them in a zone that somebody has alone
    await dedicated(scene, "two", "2")
    await scene.until(lambda: "cannot align container" in scene.refused("two"))
    has, whole = {"cpu": "1", "memory": "1Gi"}, {"cpu": "2", "memory": "4Gi"}
    await tell(scene, node, {"alone": whole}, {"bound": has})
    await dedicated(scene, "too", "1", exclusive=True)
    await scene.until(lambda: "cannot align container" in scene.refused("too"))
    await scene.delete("bound")
    await scene.until(lambda: "bound" in scene.stopped)
    await tell(scene, node, {"alone": whole}, {})
    await scene.until(lambda: bool(scene.node_of("two")) != bool(scene.node_of("too")))
