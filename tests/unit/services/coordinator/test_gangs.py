"""Pod groups through the coordinator: placed together or not at all."""

from __future__ import annotations

from msgspec.structs import replace

from services.coordinator.core.instructions import PatchCondition, TellPodGroup
from shared.model.cluster_events import ObjectChanged
from shared.model.pod_group import PodGroup, Source, group_key
from shared.scheduling.pod_groups import MIXED, TOO_FEW
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene

KEY = group_key(Source.NATIVE, "default", "train")


def scene_with(nodes: int = 4, cpu: str = "4") -> Scene:
    scene = Scene()
    for number in range(nodes):
        scene.add_node(make_node(f"n{number}").allocatable(cpu=cpu).node())
    scene.begin()
    scene.run()
    return scene


def tell_group(scene: Scene, minimum: int = 3, **changes: object) -> None:
    group = PodGroup(KEY, Source.NATIVE, "default", "train", gang=True, min_count=minimum)
    scene.inbox.append(ObjectChanged("podgroups", "default/train", replace(group, **changes)))


def add_members(scene: Scene, count: int, cpu: str = "2", *, start: int = 0) -> None:
    for number in range(start, start + count):
        scene.add_pod(replace(make_pod(f"m{number}").cpu(cpu).pod(), group=KEY))


def place_of(scene: Scene, name: str) -> list[str]:
    return scene.core.place_of(f"uid-{name}")


def test_a_gang_that_fits_is_planned_as_one() -> None:
    scene = scene_with()
    tell_group(scene)
    add_members(scene, 4)
    scene.run(batch=100)
    assert len(scene.bindings) == 4
    [plan] = scene.plans
    [gang] = plan.gangs
    assert (gang.group, gang.min_count, len(gang.members)) == (KEY, 3, 4)
    assert set(gang.members) == {placement.unit for placement in plan.placements}
    assert gang.unit not in gang.members


def test_a_gang_below_its_minimum_binds_nobody() -> None:
    scene = scene_with(nodes=1)
    tell_group(scene)
    add_members(scene, 3)
    scene.run(batch=100)
    assert scene.bindings == []
    assert [place_of(scene, f"m{number}") for number in range(3)] == [["unschedulable"]] * 3
    told = [patch.message for patch in scene.of(PatchCondition)]
    assert len(told) == 3
    assert all("minCount (3) cannot be satisfied: 2 scheduled, 0 remaining" in text for text in told)
    assert [tell.condition[:2] for tell in scene.of(TellPodGroup)] == [("False", "Unschedulable")]
    scene.add_node(make_node("more").allocatable(cpu="4").node())
    scene.run(batch=100, until_s=5.0)
    assert len(scene.bindings) == 3


def test_members_wait_for_their_group_and_for_each_other() -> None:
    scene = scene_with()
    add_members(scene, 2)
    scene.run(batch=100, until_s=6.0)
    assert place_of(scene, "m0") == ["gated"]
    assert 'waiting for pods\'s pod group "train" to appear' in scene.pods["uid-m0"].condition[2]
    tell_group(scene)
    scene.run(batch=100, until_s=6.0)
    assert place_of(scene, "m0") == ["gated"]
    assert TOO_FEW in scene.pods["uid-m0"].condition[2]
    add_members(scene, 1, start=2)
    scene.run(batch=100)
    assert len(scene.bindings) == 3


def test_members_of_two_schedulers_wait_and_are_told_why() -> None:
    scene = scene_with()
    tell_group(scene, 2)
    add_members(scene, 2)
    scene.add_pod(replace(make_pod("other").pod(), group=KEY, scheduler_name="default-scheduler"))
    scene.run(batch=100, until_s=6.0)
    assert scene.bindings == []
    assert MIXED in scene.pods["uid-m0"].condition[2]
    scene.delete_pod("uid-other")
    scene.run(batch=100)
    assert len(scene.bindings) == 2


def test_a_minimum_that_falls_lets_a_parked_gang_go() -> None:
    scene = scene_with(nodes=1)
    tell_group(scene, 3)
    add_members(scene, 3)
    scene.run(batch=100)
    assert scene.bindings == []
    tell_group(scene, 2)
    scene.run(batch=100, until_s=2.0)
    assert len(scene.bindings) == 2
    assert place_of(scene, "m2") == ["unschedulable"]


def test_leftovers_wait_and_go_alone_once_the_minimum_runs() -> None:
    scene = scene_with(nodes=1)
    tell_group(scene, 2)
    add_members(scene, 3)
    scene.run(batch=100)
    assert len(scene.bindings) == 2
    scene.add_node(make_node("more").allocatable(cpu="4").node())
    scene.run(batch=100, until_s=5.0)
    assert len(scene.bindings) == 3
    assert not scene.plans[-1].gangs


def test_a_group_that_cannot_be_used_is_told_so_even_without_members() -> None:
    scene = scene_with()
    problem = "spec.x: bad; correct it"
    tell_group(scene, problem=problem)
    scene.run(batch=100)
    assert [tell.condition for tell in scene.of(TellPodGroup)] == [("False", "Unschedulable", problem)]
    tell_group(scene)
    scene.run(batch=100)
    assert len(scene.of(TellPodGroup)) == 1
