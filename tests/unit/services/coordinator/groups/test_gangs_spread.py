"""Gangs whose members are spread over domains: those on their way together do not wait for each other."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from shared.model.cluster_events import ObjectChanged
from shared.model.pod import Pod
from shared.model.units.pod_group import GroupSource, PodGroup, group_key
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene

RACK = "rack"
KEY = group_key(GroupSource.NATIVE, "default", "train")


def scene_with(racks: int) -> Scene:
    scene = Scene()
    for number in range(racks):
        scene.add_node(make_node(f"n{number}").allocatable(cpu="32").label(**{RACK: f"r{number}"}).node())
    scene.begin()
    scene.run()
    return scene


def member(name: str, group: str = KEY) -> Pod:
    pod = make_pod(name).cpu("1").set(labels={"app": "train"})
    selector = {"matchLabels": {"app": "train"}}
    rule = {"topologyKey": RACK, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    pod.json["spec"]["topologySpreadConstraints"] = [rule]
    return replace(pod.pod(), group=group)


def tell_group(scene: Scene, key: str, minimum: int) -> None:
    name = key.rsplit("/", 1)[1]
    group = PodGroup(key, GroupSource.NATIVE, "default", name, gang=True, min_count=minimum)
    scene.inbox.append(ObjectChanged("podgroups", f"default/{name}", group))


def test_a_gang_of_more_members_than_domains_is_placed_evenly_in_one_plan() -> None:
    scene = scene_with(racks=3)
    tell_group(scene, KEY, 8)
    for number in range(8):
        scene.add_pod(member(f"m{number}"))
    scene.run(batch=100, until_s=2.0)
    [plan] = scene.plans
    assert [len(gang.members) for gang in plan.gangs] == [8]
    assert sorted(Counter(placement.node for placement in plan.placements).values()) == [2, 3, 3]


def test_two_gangs_of_one_selector_are_both_placed() -> None:
    """What is on its way of the other gang is not counted on."""
    scene, other = scene_with(racks=3), group_key(GroupSource.NATIVE, "default", "other")
    for key in (KEY, other):
        tell_group(scene, key, 4)
    for number in range(4):
        scene.add_pod(member(f"m{number}"))
        scene.add_pod(member(f"o{number}", other))
    scene.run(batch=100, until_s=30.0)
    assert len(scene.bindings) == 8
    nodes = Counter(placement.node for plan in scene.plans for placement in plan.placements)
    assert max(nodes.values()) - min(nodes.values()) <= 1
