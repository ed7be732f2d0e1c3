"""On a real control plane with the gate DRAWorkloadResourceClaims: a pod group's claim is made by the claim controller,
allocated once for all members, reserved for the group, and free when the group is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.real.conftest import RunningPlane, mesh_of, plane_of
from tests.real.plane import GATES, missing
from tests.real.scene import GROUPS, PATIENCE_S, Scene
from tests.real.test_claims import API, claims, devices, given

MEMBERS = 4


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPlane]:
    """A plane with the gate, and a mesh with two agents on it."""
    if reason := missing():
        pytest.skip(f"no real control plane: {reason}")
    gates = ",".join((*filter(None, GATES.split(",")), "DRAWorkloadResourceClaims=true"))
    with (
        plane_of(tmp_path_factory.mktemp("gated"), "--feature-gates", gates) as plane,
        mesh_of(plane, tmp_path_factory.mktemp("mesh"), "--agents", "2"),
    ):
        yield plane


@pytest.mark.parametrize("by", ["template", "name"])
async def test_members_share_the_claim_of_their_group_which_is_free_when_the_group_goes(
    gated: RunningPlane, by: str
) -> None:
    async with Scene(gated, f"group-{by}") as scene:
        await devices(scene)
        source = {"name": "gpu", "resourceClaimTemplateName": "one"}
        if by == "name":
            source = {"name": "gpu", "resourceClaimName": "shared"}
            exactly = {"deviceClassName": scene.name, "allocationMode": "ExactCount", "count": 1}
            spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
            path = f"{API}/namespaces/{scene.name}/resourceclaims"
            await scene.call("POST", path, {"metadata": {"name": "shared"}, "spec": spec})
        await scene.group("gang", MEMBERS, resourceClaims=[source])
        group = f"{GROUPS}/namespaces/{scene.name}/podgroups/gang"
        made = await scene.call("GET", group)
        assert made["spec"]["resourceClaims"] == [source]
        names = [f"p{number}" for number in range(MEMBERS)]
        for name in names:
            await scene.pod(name, 1, group="gang", resourceClaims=[source])
        await scene.until(lambda: all(scene.node_of(name) for name in names))
        assert len({scene.node_of(name) for name in names}) == 1
        [claim] = await claims(scene)
        assert [one.split("/")[0] for one in given(claim)] == [scene.node_of("p0")]
        reserved = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "gang"}
        assert claim["status"]["reservedFor"] == [{**reserved, "uid": made["metadata"]["uid"]}]
        for name in names:
            await scene.delete(name, grace_s=0)
        assert given((await claims(scene))[0])
        await scene.call("DELETE", group)
        async with asyncio.timeout(PATIENCE_S):
            async for _ in scene.objects(f"{API}/namespaces/{scene.name}/resourceclaims"):
                if not any(map(given, await claims(scene))):
                    break
