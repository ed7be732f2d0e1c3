"""On a real control plane: pods whose extended resources a class stands for, by our claims and by kube-scheduler's.

The API server's own rules hold: what may be created, told in a pod's status and deleted; the claim controller and the
garbage collector take what is left with the pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.real.conftest import RunningPlane, mesh_of
from tests.real.scene import PATIENCE_S, Scene
from tests.real.test_claims import API, FINALIZER, claims, given

Json = dict[str, Any]
NODES, DEVICES = 3, 4
EXTENDED = "resource.kubernetes.io/extended-resource-claim"


@pytest.fixture(scope="module")
def mesh(plane: RunningPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A mesh with two agents."""
    with mesh_of(plane, tmp_path_factory.mktemp("mesh"), "--agents", "2") as ready:
        yield ready


def resource_of(scene: Scene) -> str:
    return f"{scene.name}.example.com/gpu"


async def devices(scene: Scene) -> None:
    """So many on each of its nodes, of a class that stands for a resource of this scene's."""
    driver = f"{scene.name}.example.com"
    spec: Json = {
        "selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}],
        "extendedResourceName": resource_of(scene),
    }
    await scene.call("POST", f"{API}/deviceclasses", {"metadata": {"name": scene.name}, "spec": spec})
    for number in range(NODES):
        node = await scene.node(f"n{number}", slots=100)
        spec = {
            "driver": driver, "nodeName": node, "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"d{n}"} for n in range(DEVICES)],
        }  # fmt: skip
        await scene.call("POST", f"{API}/resourceslices", {"metadata": {"name": f"{node}-slice"}, "spec": spec})


async def requesting(scene: Scene, name: str, scheduler: str, *, count: int = 1, resource: str = "") -> None:
    amounts = {(resource or resource_of(scene)): str(count)}
    container = {"name": "c", "image": "x", "resources": {"requests": amounts, "limits": amounts}}
    await scene.pod(name, 1, schedulerName=scheduler, containers=[container])


async def test_a_pod_is_bound_with_a_claim_as_kube_schedulers_is(plane: RunningPlane, mesh: object) -> None:
    async with Scene(plane, "extended") as scene:
        await devices(scene)
        implicit = f"deviceclass.resource.kubernetes.io/{scene.name}"
        for who in ("conclave", "default-scheduler"):
            await requesting(scene, f"{who}-named", who, count=2)
            await requesting(scene, f"{who}-implicit", who, resource=implicit)
        names = [f"{who}-{how}" for who in ("conclave", "default-scheduler") for how in ("named", "implicit")]
        await scene.until(lambda: all(scene.node_of(name) for name in names))
        made = {one["metadata"]["ownerReferences"][0]["name"]: one for one in await claims(scene)}
        assert set(made) == set(names)
        for how in ("named", "implicit"):
            ours, theirs = made[f"conclave-{how}"], made[f"default-scheduler-{how}"]
            assert ours["spec"] == theirs["spec"]
            assert ours["metadata"]["annotations"][EXTENDED] == theirs["metadata"]["annotations"][EXTENDED] == "true"
            assert ours["metadata"]["finalizers"] == theirs["metadata"]["finalizers"] == [FINALIZER]
            told, other = (
                scene.pods[f"{who}-{how}"]["status"]["extendedResourceClaimStatus"]
                for who in ("conclave", "default-scheduler")
            )
            assert told["resourceClaimName"] == ours["metadata"]["name"]
            assert told["requestMappings"] == other["requestMappings"]
            owner, model = ours["metadata"]["ownerReferences"][0], theirs["metadata"]["ownerReferences"][0]
            assert {**owner, "name": "", "uid": ""} == {**model, "name": "", "uid": ""}
            assert {one.split("/")[0] for one in given(ours)} == {scene.node_of(f"conclave-{how}")}


async def test_beside_a_kube_scheduler_no_device_of_ours_is_anothers_and_what_is_left_goes(
    plane: RunningPlane, mesh: object
) -> None:
    async with Scene(plane, "besides") as scene:
        await devices(scene)
        names = [f"{who}-{n}" for n in range(NODES * DEVICES // 2) for who in ("ours", "theirs")]
        await asyncio.gather(
            *(requesting(scene, n, "conclave" if n.startswith("ours") else "default-scheduler") for n in names)
        )
        await scene.until(lambda: sum(bool(scene.node_of(name)) for name in names) >= NODES * DEVICES // 2)
        ours = {name for name in names if name.startswith("ours") and scene.node_of(name)}
        assert ours
        holders: dict[str, list[tuple[int, str]]] = {}
        for claim in await claims(scene):
            meta = claim["metadata"]
            owner = meta["ownerReferences"][0]["name"]
            if owner in ours or owner.startswith("theirs"):
                for device in given(claim):
                    holders.setdefault(device, []).append((int(meta["resourceVersion"]), owner))
        assert sum(owner in ours for held in holders.values() for _, owner in held) == len(ours)
        for device, held in holders.items():
            first, *later = sorted(held)  # a kube-scheduler does not look again, and may come after us
            assert not ours.intersection(owner for _, owner in later), (device, first, later)
        for name in names:
            await scene.delete(name, grace_s=0)
        async with asyncio.timeout(PATIENCE_S):
            async for _ in scene.objects(f"{API}/namespaces/{scene.name}/resourceclaims"):
                if not await claims(scene):
                    break
