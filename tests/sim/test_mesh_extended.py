"""Pods whose extended resources a class stands for go through the whole mesh: where, by which claim, and back."""

from __future__ import annotations

from typing import Any

import pytest

from services.binder.core.instructions import WriteClaim
from services.coordinator.inspect.explain import explain
from shared.kube.pods.convert_devices import EXTENDED_CLAIM
from shared.kube.scheduling_kinds import DEVICE_CLAIMS
from shared.model.units.pod_group import GroupSource, PodGroup, group_key
from shared.scheduling.devices.extended import claim_name
from tests.builders import make_node, make_pod
from tests.sim.claims import (
    CLASSES,
    FINALIZER,
    IMPLICIT,
    RESOURCE,
    add_claiming,
    add_class,
    add_devices,
    add_requesting,
    by_plugin,
    devices_of,
    leaked,
    made_for,
)
from tests.sim.test_mesh_claims import Scene


class ClassScene(Scene):
    """Nodes with devices of a class that stands for ``RESOURCE``; ``plugins``: further nodes with a device plugin's."""

    def __init__(
        self, *, nodes: int = 2, devices: int = 2, plugins: int = 0, agents: int = 2, shards: tuple[str, ...] = ()
    ) -> None:  # fmt: skip
        super().__init__(nodes=nodes, devices=devices, agents=agents, shards=shards)
        add_class(self.kube, resource=RESOURCE)
        for number in range(plugins):
            self.kube.add_node(make_node(f"plugin{number}").allocatable(cpu="4", **{RESOURCE: "1"}))

    def on(self, name: str) -> str:
        return self.world.node_of(name)


@pytest.mark.parametrize("agents", [1, 4])
@pytest.mark.parametrize("resource", [RESOURCE, IMPLICIT])
def test_a_pod_gets_a_claim_of_its_own_made_as_kube_scheduler_makes_it(resource: str, agents: int) -> None:
    scene = ClassScene(agents=agents)
    uid = add_requesting(scene.kube, "a", count=2, resource=resource)
    scene.go()
    [claim] = made_for(scene.kube, "a")
    node, meta = scene.on("a"), claim["metadata"]
    assert [one.split("/")[1] for one in devices_of(claim)] == [node, node]
    assert meta["ownerReferences"] == [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": uid, "controller": True}]
    assert (meta["annotations"][EXTENDED_CLAIM], meta["finalizers"]) == ("true", [FINALIZER])
    assert meta["name"].startswith("a-extended-resources-")
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}
    assert claim["spec"] == {"devices": {"requests": [{"name": "container-0-request-1", "exactly": exactly}]}}
    assert claim["status"]["reservedFor"] == [{"resource": "pods", "name": "a", "uid": uid}]
    assert scene.kube.pods["default/a"]["status"]["extendedResourceClaimStatus"] == {
        "resourceClaimName": meta["name"],
        "requestMappings": [{"containerName": "c", "resourceName": resource, "requestName": "container-0-request-1"}],
    }
    assert leaked(scene.kube) == []


def test_no_more_are_bound_than_there_are_devices_and_the_next_is_when_one_is_free() -> None:
    scene = ClassScene(nodes=2, devices=2)
    names = [f"p{number}" for number in range(6)]
    for name in names:
        add_requesting(scene.kube, name)
    scene.go()
    bound = [name for name in names if scene.on(name)]
    waiting = [name for name in names if name not in bound]
    assert len(bound) == 4
    assert scene.told(waiting[0]).startswith("0/2 nodes are available: 2 cannot allocate all claims.")
    scene.kube.remove_pod(bound[0])
    scene.go()
    assert sum(bool(scene.on(name)) for name in waiting) == 1
    assert leaked(scene.kube) == []


def test_nodes_with_a_device_plugin_give_their_own_and_the_others_devices() -> None:
    scene = ClassScene(nodes=1, devices=2, plugins=2)
    names = [f"p{number}" for number in range(6)]
    for name in names:
        add_requesting(scene.kube, name)
    scene.go()
    nodes = sorted(scene.on(name) for name in names)
    assert nodes == ["", "", "n0", "n0", "plugin0", "plugin1"]
    for name in names:
        assert len(made_for(scene.kube, name)) == (scene.on(name) == "n0")
    assert leaked(scene.kube) == []
    waiting = next(name for name in names if not scene.on(name))
    told = scene.told(waiting)
    assert "2 Insufficient example.com/gpu" in told
    assert "1 cannot allocate all claims" in told


def test_a_pod_waits_until_a_class_stands_for_what_it_requests() -> None:
    scene = Scene()
    add_requesting(scene.kube, "a")
    scene.go(5.0)
    assert scene.told("a").startswith("0/2 nodes are available: 2 Insufficient example.com/gpu.")
    add_class(scene.kube, resource=RESOURCE)
    scene.go(5.0)
    assert scene.world.node_of("a")


def test_a_pod_that_waits_is_judged_by_amounts_once_no_class_stands_for_what_it_requests() -> None:
    scene = ClassScene(devices=0)
    add_requesting(scene.kube, "a")
    scene.go(5.0)
    assert "2 cannot allocate all claims" in scene.told("a")
    add_class(scene.kube)
    scene.go(5.0)
    assert scene.told("a").startswith("0/2 nodes are available: 2 Insufficient example.com/gpu.")
    scene.kube.add_node(make_node("plugin").allocatable(cpu="4", **{RESOURCE: "1"}))
    scene.go(5.0)
    assert scene.on("a") == "plugin"
    assert made_for(scene.kube, "a") == []


def test_a_gang_is_bound_whole_on_devices_and_a_device_plugins_or_not_at_all() -> None:
    scene = ClassScene(nodes=1, devices=1, plugins=1)
    key = group_key(GroupSource.PLUGINS, "default", "g")
    scene.world.tell_group(PodGroup(key, GroupSource.PLUGINS, "default", "g", gang=True, min_count=3))
    for number in range(3):
        add_requesting(scene.kube, f"p{number}", group="g")
    scene.go(10.0)
    assert not any(scene.on(f"p{n}") for n in range(3))
    assert not any(made_for(scene.kube, f"p{n}") for n in range(3))
    add_devices(scene.kube, "n0", 2)
    scene.go(60.0)
    assert sorted(scene.on(f"p{n}") for n in range(3)) == ["n0", "n0", "plugin0"]
    assert leaked(scene.kube) == []


def left(scene: ClassScene, name: str, *, count: int, node: str = "") -> dict[str, Any]:
    """A claim that an attempt has left for the pod, asking for ``count``; ``node``: it was given a device there."""
    meta = scene.kube.pods[f"default/{name}"]["metadata"]
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    status: dict[str, Any] = {}
    if node:
        result = {"request": "container-0-request-1", "driver": "gpu.example.com", "pool": node, "device": "d0"}
        fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
        status["allocation"] = {
            "devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]},
        }  # fmt: skip
    claim = {
        "metadata": {
            "name": claim_name(name, meta["uid"]), "namespace": "default", "annotations": {EXTENDED_CLAIM: "true"},
            "finalizers": [FINALIZER],
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": meta["uid"], "controller": True}
            ],
        },
        "spec": {"devices": {"requests": [{"name": "container-0-request-1", "exactly": exactly}]}},
        "status": status,
    }  # fmt: skip
    scene.kube.put_object(DEVICE_CLAIMS, claim)
    return claim


@pytest.mark.parametrize("node", ["", "n1"])
def test_a_claim_that_an_attempt_has_left_is_used_where_it_asks_for_what_is_needed(node: str) -> None:
    scene = ClassScene()
    add_requesting(scene.kube, "a")
    uid = left(scene, "a", count=1, node=node)["metadata"]["uid"]
    scene.go()
    [claim] = made_for(scene.kube, "a")
    assert claim["metadata"]["uid"] == uid
    assert scene.on("a") == (node or devices_of(claim)[0].split("/")[1])
    assert leaked(scene.kube) == []


@pytest.mark.parametrize("node", ["", "n1"])
def test_one_that_asks_for_something_else_is_deleted_and_the_pod_placed_with_another(node: str) -> None:
    scene = ClassScene()
    add_requesting(scene.kube, "a")
    before = left(scene, "a", count=2, node=node)["metadata"]["uid"]
    scene.go(30.0)
    [claim] = made_for(scene.kube, "a")
    assert claim["metadata"]["uid"] != before
    assert scene.on("a")
    assert leaked(scene.kube) == []


class Killed(Exception):
    """What a failpoint does to the process."""


@pytest.mark.parametrize("node", ["", "n1"])
@pytest.mark.parametrize("point", ["before_claim_delete", "after_claim_delete"])
def test_a_coordinator_that_dies_as_it_deletes_one_leaves_nothing_behind(point: str, node: str) -> None:
    scene = ClassScene()
    world = scene.world
    reached: list[str] = []

    def reach(name: str) -> None:
        reached.append(name)
        if name == point:
            raise Killed

    world.writes._reached = reach
    add_requesting(scene.kube, "a")
    before = left(scene, "a", count=2, node=node)["metadata"]["uid"]
    with pytest.raises(Killed):
        scene.go(30.0)
    there = any(claim["metadata"]["uid"] == before for claim in made_for(scene.kube, "a"))
    assert there is (point == "before_claim_delete")
    world.writes._reached = reached.append
    world.replace_coordinator()
    scene.go(30.0)
    assert reached.count("before_claim_delete") == 1 + (point == "before_claim_delete")
    [claim] = made_for(scene.kube, "a")
    assert claim["metadata"]["uid"] != before
    assert scene.on("a")
    assert leaked(scene.kube) == []


def test_one_that_was_left_on_a_node_that_is_full_is_deleted_and_the_pod_goes_elsewhere() -> None:
    scene = ClassScene(plugins=1)
    scene.kube.change_node("n1", unschedulable=True)
    add_requesting(scene.kube, "a")
    left(scene, "a", count=1, node="n1")
    scene.go(30.0)
    assert scene.on("a") in ("n0", "plugin0")
    assert by_plugin(scene.kube, "plugin0") == 1
    assert leaked(scene.kube) == []


@pytest.mark.parametrize("agents", [1, 4])
def test_binders_of_several_shards_place_them_and_a_gang_that_spans_both(agents: int) -> None:
    scene = ClassScene(nodes=4, devices=1, agents=agents, shards=("0", "1"))
    key = group_key(GroupSource.PLUGINS, "default", "g")
    scene.world.tell_group(PodGroup(key, GroupSource.PLUGINS, "default", "g", gang=True, min_count=3))
    names = [f"p{number}" for number in range(3)]
    for name in names:
        add_requesting(scene.kube, name, group="g")
    add_requesting(scene.kube, "lone")
    scene.go(60.0)
    assert len({scene.on(name) for name in (*names, "lone")} - {""}) == 4
    assert leaked(scene.kube) == []


def test_a_pod_may_claim_by_name_and_request_what_a_class_stands_for() -> None:
    scene = ClassScene(nodes=1, devices=2, plugins=1)
    add_devices(scene.kube, "plugin0", 1)
    for name in ("both", "second"):
        uid = add_claiming(scene.kube, name)
        pod = scene.kube._copy(f"default/{name}")
        pod["spec"]["containers"][0]["resources"]["requests"][RESOURCE] = "1"
        scene.kube._store_pod(pod)
        assert pod["metadata"]["uid"] == uid
        scene.go()
    assert sorted(scene.on(name) for name in ("both", "second")) == ["n0", "plugin0"]
    for name in ("both", "second"):
        made = made_for(scene.kube, name)
        assert len(made) == (scene.on(name) == "n0")  # none that asks for nothing, as kube-scheduler 1.36 makes
        assert devices_of(scene.claim(f"{name}-gpu"))
    assert leaked(scene.kube) == []


def test_init_containers_use_what_those_after_them_hold() -> None:
    scene = ClassScene(nodes=1, devices=3)
    add_requesting(scene.kube, "a", count=1)
    pod = scene.kube._copy("default/a")
    amounts = {"requests": {RESOURCE: "2"}}
    pod["spec"]["initContainers"] = [{"name": "first", "resources": amounts}]
    scene.kube._store_pod(pod)
    for _ in range(40):
        scene.drain()
        scene.advance(scene.world.now + 0.25)
    [claim] = made_for(scene.kube, "a")
    asked = {one["name"]: one["exactly"]["count"] for one in claim["spec"]["devices"]["requests"]}
    assert asked == {"container-0-request-0": 1, "container-1-request-1": 1}
    told = scene.kube.pods["default/a"]["status"]["extendedResourceClaimStatus"]["requestMappings"]
    assert sorted((one["containerName"], one["requestName"]) for one in told) == [
        ("c", "container-1-request-1"), ("first", "container-0-request-0"), ("first", "container-1-request-1"),
    ]  # fmt: skip
    assert scene.on("a") == "n0"


def test_explain_says_which_device_is_refused_by_what() -> None:
    scene = ClassScene(nodes=2, devices=1, plugins=1)
    for name in "abcd":
        add_requesting(scene.kube, name)
    scene.go(10.0)
    waiting = next(name for name in "abcd" if not scene.on(name))
    core = scene.world.coordinator.core
    pod = core.state.queue.entries[scene.world.uid(waiting)].pod
    [asked] = explain(core, pod, {}, scene.world.now)["devices"]
    assert (asked["request"], asked["class"], asked["free"]) == ("container-0-request-1", "gpu", 0)
    assert [(one["reason"], one["devices"]) for one in asked["refused"]] == [("in use", 2)]


def test_a_standby_that_takes_over_amid_a_binding_counts_the_claim_that_is_to_be_made() -> None:
    scene = ClassScene(nodes=1, devices=1)
    add_requesting(scene.kube, "a")
    add_requesting(scene.kube, "b")
    for _ in range(200):
        if any(isinstance(effect, WriteClaim) for effect in scene.world.binder.effects):
            break
        scene.step()
    scene.kill_coordinator()
    scene.go(30.0)
    assert sorted(scene.on(name) for name in "ab") == ["", "n0"]
    assert leaked(scene.kube) == []


def test_a_pod_takes_what_a_device_plugin_gave_a_lesser_one_where_no_devices_are_left() -> None:
    scene = ClassScene(nodes=1, devices=0, plugins=1)
    add_requesting(scene.kube, "low")
    scene.go()
    assert scene.on("low") == "plugin0"
    add_requesting(scene.kube, "high")
    pod = scene.kube._copy("default/high")
    pod["spec"]["priority"] = 100
    scene.kube._store_pod(pod)
    scene.go(60.0)
    assert scene.on("high") == "plugin0"
    assert "default/low" not in scene.kube.pods or not scene.on("low")
    assert made_for(scene.kube, "high") == []


def test_a_gang_waits_until_a_class_stands_for_what_its_members_request() -> None:
    scene = Scene(nodes=2, devices=1)
    key = group_key(GroupSource.PLUGINS, "default", "g")
    scene.world.tell_group(PodGroup(key, GroupSource.PLUGINS, "default", "g", gang=True, min_count=2))
    for number in range(2):
        add_requesting(scene.kube, f"p{number}", group="g")
    scene.go(10.0)
    assert not any(scene.world.node_of(f"p{n}") for n in range(2))
    add_class(scene.kube, resource=RESOURCE)
    scene.go(60.0)
    assert sorted(scene.world.node_of(f"p{n}") for n in range(2)) == ["n0", "n1"]
    assert leaked(scene.kube) == []


@pytest.mark.parametrize("gang", [False, True])
@pytest.mark.parametrize("count", [1, 2])
def test_pods_that_lack_nothing_but_cpu_on_nodes_with_devices_are_woken_when_it_is_free(
    count: int, *, gang: bool
) -> None:
    scene = ClassScene(nodes=2, devices=2)
    for number in range(2):
        scene.kube.add_pod(make_pod(f"plain{number}").cpu("4").on(f"n{number}"))
    names = [f"p{number}" for number in range(2)]
    if gang:
        key = group_key(GroupSource.PLUGINS, "default", "g")
        scene.world.tell_group(PodGroup(key, GroupSource.PLUGINS, "default", "g", gang=True, min_count=2))
    for name in names:
        add_requesting(scene.kube, name, cpu="3", count=count, group="g" if gang else "")
    scene.go(10.0)
    assert not any(scene.on(name) for name in names)
    for number in range(2):
        scene.kube.remove_pod(f"plain{number}")
    scene.go(10.0)
    assert sorted(scene.on(name) for name in names) == ["n0", "n1"]
    assert leaked(scene.kube) == []


def test_a_pod_is_told_how_to_have_what_the_api_server_does_not_keep_and_waits_for_it() -> None:
    scene = ClassScene()
    scene.kube.drops_extended = True
    add_requesting(scene.kube, "a")
    scene.go(10.0)
    assert scene.on("a") == ""
    assert "--feature-gates=DRAExtendedResource=true" in scene.told("a")
    scene.kube.drops_extended = False
    scene.go(60.0)
    assert scene.on("a")
    assert leaked(scene.kube) == []


def test_a_pod_is_told_whose_claim_has_the_name_of_its_own_and_waits_until_that_is_gone() -> None:
    scene = ClassScene()
    key = f"default/{claim_name('a', add_requesting(scene.kube, 'a'))}"
    meta = {"name": key.removeprefix("default/"), "namespace": "default"}
    scene.kube.put_object(DEVICE_CLAIMS, {"metadata": meta, "spec": {"devices": {"requests": []}}, "status": {}})
    scene.go(10.0)
    assert scene.on("a") == ""
    assert f"claim {key} was not made for pod a; delete it" in scene.told("a")
    scene.kube.drop_object(DEVICE_CLAIMS, key)
    scene.go(60.0)
    assert scene.on("a")
    assert leaked(scene.kube) == []


def test_a_class_that_takes_the_resource_over_from_another_serves_who_comes_then() -> None:
    scene = ClassScene(nodes=1, devices=2)
    add_requesting(scene.kube, "a")
    scene.go()
    spec = {"selectors": [{"cel": {"expression": "true"}}], "extendedResourceName": RESOURCE}
    newer = {"metadata": {"name": "newer", "creationTimestamp": "2030-01-01T00:00:00Z"}, "spec": spec}
    scene.kube.put_object(CLASSES, newer)
    add_requesting(scene.kube, "b")
    scene.go()
    [claim] = made_for(scene.kube, "b")
    assert claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "newer"
    assert made_for(scene.kube, "a")[0]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "gpu"
    assert leaked(scene.kube) == []
