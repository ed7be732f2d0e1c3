"""Pods that claim devices, placed by real processes, of which the binder or the coordinator is killed on the way.

Whatever was written by then, the successor ends with each pod bound to devices of its own, and no claim is left with
devices that no pod uses. Every step is tried in memory (``tests/sim/test_mesh_claims_walk.py``); here the named
failpoints, in two mesh processes, over HTTP.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from shared.runtime.process.failpoints import VARIABLE
from tests.patience import PATIENCE_S
from tests.scenarios.invariants import node_of
from tests.scenarios.world import World, world

pytestmark = [pytest.mark.process, pytest.mark.etcd]

Json = dict[str, Any]
API = "/apis/resource.k8s.io/v1"
CLAIMS = f"{API}/namespaces/default/resourceclaims"
GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
NODES, DEVICES = 3, 4
DRIVER = "gpu.example.com"
BY_TEMPLATE = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}


RESOURCE = "example.com/gpu"


async def add_devices(cluster: World) -> None:
    """Nodes with devices, a class for them that stands for a resource, and a template that asks for one."""
    spec: Json = {
        "selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}],
        "extendedResourceName": RESOURCE,
    }
    await cluster.create(f"{API}/deviceclasses", "DeviceClass", "gpu", api="resource.k8s.io/v1", spec=spec)
    for number in range(NODES):
        node = f"n{number}"
        await cluster.add_node(node)
        spec = {
            "driver": DRIVER, "nodeName": node, "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"d{n}"} for n in range(DEVICES)],
        }  # fmt: skip
        await cluster.create(f"{API}/resourceslices", "ResourceSlice", node, api="resource.k8s.io/v1", spec=spec)
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    asked = {"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}
    path = f"{API}/namespaces/default/resourceclaimtemplates"
    await cluster.create(path, "ResourceClaimTemplate", "one", api="resource.k8s.io/v1", spec=asked)


async def given(cluster: World) -> dict[str, list[str]]:
    """Pods by name to the devices that their claims have; under "" those that nobody uses."""
    found: dict[str, list[str]] = {}
    for claim in (await cluster.call("GET", CLAIMS))["items"]:
        status = claim.get("status") or {}
        results = (status.get("allocation") or {}).get("devices", {}).get("results", ())
        devices = [f"{one['pool']}/{one['device']}" for one in results]
        for user in status.get("reservedFor") or ([{"name": ""}] if devices else []):
            found.setdefault(user["name"], []).extend(devices)
    return found


PLACES = ("before_claim_mark@3", "after_claim_mark@3", "after_claim_status@3", "before_bind@3", "after_bind@3")


@pytest.mark.parametrize("place", PLACES)
async def test_a_binder_killed_at_a_step_is_succeeded_and_each_pod_has_devices_of_its_own(
    tmp_path: Path, place: str
) -> None:
    async with world(tmp_path, agents=2, coordinators=1, binders=1, flags={"binder": ["--validate"]}) as cluster:
        mesh = cluster.mesh
        await add_devices(cluster)
        doomed = await mesh.add("binder", 1, {VARIABLE: f"{place}=kill"})
        doomed.wanted = False
        mesh.kill("binder-0")  # it comes back, and stands by
        await mesh.services["binder-0"].ended.wait()
        names = await cluster.add_pods((f"p{n}" for n in range(NODES * DEVICES)), **BY_TEMPLATE)
        await cluster.until(lambda c: c.bound(*names), within_s=60, what="all are bound")
        async with asyncio.timeout(PATIENCE_S):
            await doomed.ended.wait()  # all may be bound before its end is noticed
        assert doomed.codes == [-signal.SIGKILL]
        await each_has_its_own(cluster, names)


MADE = (
    "before_claim_create@3", "after_claim_create@3", "after_claim_status@3", "before_pod_status@3",
    "after_pod_status@3", "after_bind@3",
)  # fmt: skip


@pytest.mark.parametrize("place", MADE)
async def test_a_binder_killed_at_a_step_leaves_each_pod_one_claim_for_its_extended_resources(
    tmp_path: Path, place: str
) -> None:
    async with world(tmp_path, agents=2, coordinators=1, binders=1, flags={"binder": ["--validate"]}) as cluster:
        mesh = cluster.mesh
        await add_devices(cluster)
        doomed = await mesh.add("binder", 1, {VARIABLE: f"{place}=kill"})
        doomed.wanted = False
        mesh.kill("binder-0")
        await mesh.services["binder-0"].ended.wait()
        names = await cluster.add_pods((f"p{n}" for n in range(NODES * DEVICES)), **requesting(1))
        await cluster.until(lambda c: c.bound(*names), within_s=60, what="all are bound")
        async with asyncio.timeout(PATIENCE_S):
            await doomed.ended.wait()  # all may be bound before its end is noticed
        assert doomed.codes == [-signal.SIGKILL]
        await each_has_its_own(cluster, names)
        made = (await cluster.call("GET", CLAIMS))["items"]
        told = [cluster.pods[name]["status"]["extendedResourceClaimStatus"]["resourceClaimName"] for name in names]
        assert sorted(told) == sorted(claim["metadata"]["name"] for claim in made)


def requesting(count: int) -> Json:
    amounts = {"cpu": "10m", RESOURCE: str(count)}
    container = {"name": "c", "image": "x", "resources": {"requests": amounts, "limits": {RESOURCE: str(count)}}}
    return {"containers": [container]}


async def test_a_coordinator_killed_in_a_burst_is_succeeded_and_each_pod_has_devices_of_its_own(tmp_path: Path) -> None:
    async with world(tmp_path, agents=2, coordinators=2, binders=1, flags={"coordinator": ["--validate"]}) as cluster:
        await add_devices(cluster)
        names = await cluster.add_pods((f"p{n}" for n in range(NODES * DEVICES + 2)), **BY_TEMPLATE)
        await cluster.until(lambda c: c.bound_names(), within_s=30, what="one is bound")
        cluster.mesh.kill(await cluster.mesh.leader("coordinator"))
        await cluster.until(lambda c: len(c.bound_names()) == NODES * DEVICES, within_s=60, what="all devices are used")
        bound = cluster.bound_names()
        await each_has_its_own(cluster, bound)
        refused = "cannot allocate all claims"
        await cluster.until(
            lambda c: all(refused in c.told(name) for name in names - bound), within_s=30, what="the others are told"
        )
        await cluster.delete_pod(min(bound))  # its devices are free, and somebody else's
        await cluster.until(
            lambda c: len(c.bound_names()) == NODES * DEVICES and c.bound_names() != bound, within_s=30,
            what="one of those that wait is bound",
        )  # fmt: skip


async def each_has_its_own(cluster: World, names: set[str]) -> None:
    devices = await given(cluster)
    assert devices.keys() == names
    for name, found in devices.items():
        assert [one.split("/")[0] for one in found] == [node_of(cluster.pods[name])], devices
    assert max(Counter(one for found in devices.values() for one in found).values()) == 1


PLACES_OF_A_GROUP = (
    "before_claim_mark", "after_claim_mark", "after_claim_status", "after_gang_first_bind", "before_gang_next_bind@2",
)  # fmt: skip


@pytest.mark.parametrize("place", PLACES_OF_A_GROUP)
async def test_a_binder_killed_at_a_step_leaves_a_gang_the_one_claim_of_its_group(tmp_path: Path, place: str) -> None:
    async with world(tmp_path, agents=2, coordinators=1, binders=1, flags={"binder": ["--validate"]}) as cluster:
        mesh = cluster.mesh
        await add_devices(cluster)
        doomed = await mesh.add("binder", 1, {VARIABLE: f"{place}=kill"})
        doomed.wanted = False
        mesh.kill("binder-0")
        await mesh.services["binder-0"].ended.wait()
        group = await add_group(cluster, "gang", 4)
        names = await cluster.add_pods(
            (f"p{n}" for n in range(4)), schedulingGroup={"podGroupName": "gang"}, **BY_TEMPLATE
        )
        await cluster.until(lambda c: c.bound(*names), within_s=60, what="all are bound")
        async with asyncio.timeout(PATIENCE_S):
            await doomed.ended.wait()  # all may be bound before its end is noticed
        assert doomed.codes == [-signal.SIGKILL]
        assert len({node_of(cluster.pods[name]) for name in names}) == 1
        [claim] = (await cluster.call("GET", CLAIMS))["items"]
        assert [one["uid"] for one in claim["status"]["reservedFor"]] == [group["metadata"]["uid"]]
        [device] = (await given(cluster))["gang"]
        assert device.split("/")[0] == node_of(cluster.pods["p0"])


async def add_group(cluster: World, name: str, minimum: int) -> Json:
    """A gang with the claim that its members name, too."""
    spec = {"schedulingPolicy": {"gang": {"minCount": minimum}}, **BY_TEMPLATE}
    await cluster.create(GROUPS, "PodGroup", name, api="scheduling.k8s.io/v1alpha2", spec=spec)
    return await cluster.call("GET", f"{GROUPS}/{name}")
