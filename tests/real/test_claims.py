"""On a real control plane: pods with claims are bound by the mesh, beside a real kube-scheduler on the same devices.

The API server's own rules hold: admission of ``resourceclaims/binding``, validation of the status, the claim controller
that makes claims from templates and frees them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.real.conftest import RunningPlane, mesh_of
from tests.real.scene import PATIENCE_S, Scene

Json = dict[str, Any]
API = "/apis/resource.k8s.io/v1"
NODES, DEVICES, EACH = 4, 4, 10
FINALIZER = "resource.kubernetes.io/delete-protection"


@pytest.fixture(scope="module")
def mesh(plane: RunningPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A mesh with two agents."""
    with mesh_of(plane, tmp_path_factory.mktemp("mesh"), "--agents", "2") as ready:
        yield ready


async def devices(scene: Scene) -> None:
    """So many of a class of this scene's on each of its nodes, and a template that asks for one."""
    driver = f"{scene.name}.example.com"
    selector = {"cel": {"expression": f"device.driver == '{driver}' && device.attributes['{driver}'].index < 100"}}
    await scene.call(
        "POST", f"{API}/deviceclasses", {"metadata": {"name": scene.name}, "spec": {"selectors": [selector]}}
    )
    for number in range(NODES):
        node = await scene.node(f"n{number}", slots=100)
        spec = {
            "driver": driver, "nodeName": node, "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"d{n}", "attributes": {"index": {"int": n}}} for n in range(DEVICES)],
        }  # fmt: skip
        await scene.call("POST", f"{API}/resourceslices", {"metadata": {"name": f"{node}-slice"}, "spec": spec})
    exactly = {"deviceClassName": scene.name, "allocationMode": "ExactCount", "count": 1}
    claim = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    body = {"metadata": {"name": "one"}, "spec": {"spec": claim}}
    await scene.call("POST", f"{API}/namespaces/{scene.name}/resourceclaimtemplates", body)


async def claiming(scene: Scene, name: str, scheduler: str) -> None:
    source = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    await scene.pod(name, 1, schedulerName=scheduler, resourceClaims=source)


async def claims(scene: Scene) -> list[Json]:
    found: list[Json] = (await scene.call("GET", f"{API}/namespaces/{scene.name}/resourceclaims"))["items"]
    return found


def given(claim: Json) -> list[str]:
    results = (claim.get("status", {}).get("allocation") or {}).get("devices", {}).get("results", ())
    return [f"{one['pool']}/{one['device']}" for one in results]


def user_of(claim: Json) -> str:
    users = claim["status"].get("reservedFor", ())
    return str(users[0]["name"]) if users else ""


def refused(scene: Scene, name: str) -> bool:
    return "cannot allocate all claims" in str(scene.condition(name, "PodScheduled"))


async def settled(scene: Scene) -> list[Json]:
    """The claims that have devices, once each belongs to a pod that is bound, and none of ours took what another had
    already. A kube-scheduler looks at what others have taken when it chooses, and not again when it writes: one that
    writes later than we bind gives the device twice, as two kube-schedulers do to each other."""
    async with asyncio.timeout(PATIENCE_S):
        async for _ in scene.objects(f"{API}/namespaces/{scene.name}/resourceclaims"):
            found = sorted((one for one in await claims(scene) if given(one)), key=written)
            users = [user_of(one) for one in found]
            had = set[str]()
            late = []
            for claim in found:
                late += [device for device in given(claim) if device in had and user_of(claim).startswith("ours")]
                had.update(given(claim))
            if found and not late and all(user and scene.node_of(user) for user in users):
                return found
    raise AssertionError("the watch has ended")


def written(claim: Json) -> int:
    return int(claim["metadata"]["resourceVersion"])


async def test_pods_with_claims_are_bound_beside_a_kube_scheduler(plane: RunningPlane, mesh: object) -> None:
    async with Scene(plane, "claims") as scene:
        await devices(scene)
        names = [f"{who}-{n}" for n in range(EACH) for who in ("ours", "theirs")]
        await asyncio.gather(
            *(claiming(scene, n, "conclave" if n.startswith("ours") else "default-scheduler") for n in names)
        )
        await scene.until(lambda: all(scene.node_of(name) or refused(scene, name) for name in names))
        found = await settled(scene)
        ours = [claim for claim in found if user_of(claim).startswith("ours")]
        assert ours, "the kube-scheduler took all"
        assert max(Counter(device for claim in ours for device in given(claim)).values()) == 1
        for claim in ours:
            assert given(claim)[0].split("/")[0] == scene.node_of(user_of(claim))
            assert claim["metadata"]["finalizers"] == [FINALIZER]


async def test_a_claim_of_ours_is_shared_by_its_pods_and_freed_by_the_controller(
    plane: RunningPlane, mesh: object
) -> None:
    async with Scene(plane, "shared") as scene:
        await devices(scene)
        path = f"{API}/namespaces/{scene.name}/resourceclaims"
        exactly = {"deviceClassName": scene.name, "allocationMode": "ExactCount", "count": 2}
        spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
        for number in range(5):
            await scene.pod(f"p{number}", 1, resourceClaims=[{"name": "gpu", "resourceClaimName": "both"}])
        await scene.call("POST", path, {"metadata": {"name": "both"}, "spec": spec})
        await scene.until(lambda: all(scene.node_of(f"p{n}") for n in range(5)))
        assert len({scene.node_of(f"p{n}") for n in range(5)}) == 1
        claim = await scene.call("GET", f"{path}/both")
        assert len(given(claim)) == 2
        assert {one["name"] for one in claim["status"]["reservedFor"]} == {f"p{n}" for n in range(5)}
        for number in range(5):
            await scene.delete(f"p{number}", grace_s=0)
        async with asyncio.timeout(PATIENCE_S):
            async for event in scene.objects(f"{path}?fieldSelector=metadata.name%3Dboth"):
                if not given(event["object"]):
                    break
