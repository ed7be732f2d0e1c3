"""A mesh on clusters of both releases: a gang of each API is bound whole and told so, on the object of that API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
import yarl

from tests.patience import PATIENCE_S
from tests.process.mesh import ROOT, Mesh
from tests.scenarios.world import Json, World

pytestmark = [pytest.mark.process, pytest.mark.etcd]

DEFINITION = ROOT / "k8s/components/plugins-pod-groups/pod-groups.yaml"
NATIVE = "/apis/scheduling.k8s.io/{}/namespaces/default/podgroups"
PLUGINS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
JOBS = "/apis/batch/v1/namespaces/wants-gangs/jobs"


@asynccontextmanager
async def cluster(folder: Path, release: str) -> AsyncIterator[World]:
    """A mesh and three nodes of 4 cores."""
    flags = ["--simulate", "--kubernetes", release]
    async with Mesh(folder, coordinators=1, agents=2, binders=1, twin_flags=flags) as mesh:
        world = World(mesh)
        watching = asyncio.create_task(world.follow(asyncio.Event()))
        try:
            for number in range(3):
                await world.add_node(f"n{number}", cpu="4")
            yield world
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


async def shown(world: World, collection: str, reached: Callable[[Json], Any]) -> Json:
    """The first object that a watch shows as ``reached`` wants it."""
    url = f"{world.mesh.api_url}{collection}?watch=1"
    async with asyncio.timeout(PATIENCE_S), world.mesh.session.get(yarl.URL(url, encoded=True)) as stream:
        async for line in stream.content:
            event = json.loads(line)
            if event["type"] in ("ADDED", "MODIFIED") and reached(event["object"]):
                found: Json = event["object"]
                return found
    raise AssertionError(f"the watch of {collection} ended")


def condition(type_: str, status: str) -> Callable[[Json], bool]:
    def reached(obj: Json) -> bool:
        conditions = (obj.get("status") or {}).get("conditions") or ()
        return any((one["type"], one["status"]) == (type_, status) for one in conditions)

    return reached


@pytest.mark.parametrize(
    ("release", "version", "type_"),
    [("1.36", "v1alpha2", "PodGroupScheduled"), ("1.37", "v1beta1", "PodGroupInitiallyScheduled")],
)
async def test_a_native_gang_waits_whole_is_bound_whole_and_told_both(
    tmp_path: Path, release: str, version: str, type_: str
) -> None:
    async with cluster(tmp_path, release) as world:
        groups, names = NATIVE.format(version), [f"m{number}" for number in range(3)]
        policy = {"schedulingPolicy": {"gang": {"minCount": 3}}}
        await world.create(groups, "PodGroup", "g", api=f"scheduling.k8s.io/{version}", spec=policy)
        await world.patch_node("n2", {"spec": {"unschedulable": True}})
        await world.add_pods(names, cpu="3", schedulingGroup={"podGroupName": "g"})
        told = await shown(world, groups, condition(type_, "False"))
        [one] = told["status"]["conditions"]
        assert (one["reason"], one["observedGeneration"]) == ("Unschedulable", 1)
        assert not any(world.bound(name) for name in names)
        await shown(
            world, "/apis/events.k8s.io/v1/namespaces/default/events",
            lambda e: e["regarding"]["kind"] == "PodGroup" and e["reason"] == "FailedScheduling",
        )  # fmt: skip
        await world.patch_node("n2", {"spec": {"unschedulable": False}})
        await shown(world, groups, condition(type_, "True"))
        await world.until(lambda c: all(c.bound(name) for name in names), within_s=20, what="all members are bound")


async def test_gangs_by_label_and_by_namespace_are_bound_and_a_group_of_groups_is_told(tmp_path: Path) -> None:
    async with cluster(tmp_path, "1.37") as world:
        # nobody serves the plug-ins' groups when the mesh starts
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        await world.call("POST", path, yaml.safe_load(DEFINITION.read_text()))
        await world.create(PLUGINS, "PodGroup", "x", api="scheduling.x-k8s.io/v1alpha1", spec={"minMember": 2})
        names = ["x0", "x1"]
        await world.add_pods(names, labels={"scheduling.x-k8s.io/pod-group": "x"})
        opted = {"annotations": {"conclave.io/gang": "true"}}
        await world.create("/api/v1/namespaces", "Namespace", "wants-gangs", metadata=opted)
        template = {
            "schedulerName": "conclave", "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]
        }  # fmt: skip
        spec = {"completionMode": "Indexed", "completions": 3, "parallelism": 3, "template": {"spec": template}}
        await world.create(JOBS, "Job", "j", api="batch/v1", spec=spec)
        member = {"workloadRef": {"workloadName": "w", "templateName": "t"}, "parentCompositePodGroupName": "c"}
        groups = NATIVE.format("v1beta1")
        await world.create(
            groups, "PodGroup", "nested", api="scheduling.k8s.io/v1beta1",
            spec={**member, "schedulingPolicy": {"gang": {"minCount": 1}}},
        )  # fmt: skip
        told = await shown(world, groups, condition("PodGroupInitiallyScheduled", "False"))
        assert "CompositePodGroup is not supported" in told["status"]["conditions"][0]["message"]
        await shown(world, "/api/v1/namespaces/wants-gangs/pods", lambda pod: pod["spec"].get("nodeName"))
        await shown(world, PLUGINS, lambda o: (o.get("status") or {}).get("phase") == "Scheduled")
        await world.until(lambda c: all(c.bound(name) for name in names), within_s=20, what="the label counts")
