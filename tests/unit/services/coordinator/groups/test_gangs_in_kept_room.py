"""Room that is kept for the members of a pod group is taken by all that it lacks, or by nobody."""

from __future__ import annotations

from msgspec.structs import replace

from shared.kube.objects import ObjectMeta
from shared.kube.reservations import ReservationObject, reserve_pod_from_api
from shared.model.cluster_events import ObjectChanged, PodUpserted
from shared.model.units.pod_group import GroupSource, GroupTopology, PodGroup, group_key
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene

KEY = group_key(GroupSource.NATIVE, "default", "train")
GROUP = PodGroup(KEY, GroupSource.NATIVE, "default", "train", gang=True, min_count=3)


def room(number: int, phase: str = "Available") -> PodUpserted:
    """Three of a node's four cores for one member."""
    spec = {"resources": {"cpu": "3"}, "owners": [{"pod": f"m{number}"}], "allocateOnce": True}
    meta = ObjectMeta(name=f"room-{number}", namespace="default", uid=f"room-{number}")
    return PodUpserted(reserve_pod_from_api(ReservationObject(meta, spec, {"phase": phase, "node": f"n{number}"})))


def waiting(rooms: int, group: PodGroup = GROUP) -> Scene:
    """Three nodes, rooms on so many of them, a gang of three that would fill all, and an older pod that fits too."""
    scene = Scene()
    for number in range(3):
        scene.add_node(make_node(f"n{number}").allocatable(cpu="4").node())
    scene.begin()
    scene.run()
    scene.inbox.extend(room(number) for number in range(3))
    scene.run()
    scene.add_pod(make_pod("rival").cpu("3").pod())
    scene.inbox.append(ObjectChanged("podgroups", "default/train", group))
    scene.inbox.extend(room(number, "Expired") for number in range(rooms, 3))  # the rival's
    for number in range(3):
        scene.add_pod(replace(make_pod(f"m{number}").cpu("3").pod(), group=KEY))
    scene.run(batch=100, until_s=10.0)
    return scene


def test_with_room_kept_for_each_the_gang_is_planned_as_one_and_a_rival_that_came_first_waits() -> None:
    scene = waiting(3)
    [plan] = scene.plans
    [gang] = plan.gangs
    assert (gang.group, gang.min_count, len(gang.members)) == (KEY, 3, 3)
    assert sorted((one.uid, one.node, one.reservation) for one in plan.placements) == [
        (f"uid-m{number}", f"n{number}", f"room-{number}") for number in range(3)
    ]
    assert scene.core.place_of("uid-rival") == ["unschedulable"]


def test_with_less_room_than_it_lacks_no_member_takes_any_and_what_is_kept_stays_kept() -> None:
    scene = waiting(2)
    assert [one for plan in scene.plans for one in plan.placements if one.reservation] == []
    reserved = scene.core.state.cluster.reserved
    assert sorted(reserved.standing) == ["room-0", "room-1"]
    assert not reserved.takers
    assert scene.bindings == [("uid-rival", "n2")]


def test_a_gang_within_a_domain_takes_no_rooms() -> None:
    scene = waiting(3, replace(GROUP, topology=GroupTopology("zone", required=True)))
    assert scene.plans == []


def test_a_gang_that_waits_hears_of_room_for_its_last_member_and_comes_before_a_rival() -> None:
    scene = Scene()
    for number in range(3):
        scene.add_node(make_node(f"n{number}").allocatable(cpu="4").node())
        scene.add_pod(replace(make_pod(f"other{number}").cpu("2").pod(), node_name=f"n{number}"))
    scene.begin()
    scene.inbox.append(ObjectChanged("podgroups", "default/train", GROUP))
    for name, group in (("rival", ""), ("m0", KEY), ("m1", KEY), ("m2", KEY)):
        scene.add_pod(replace(make_pod(name).cpu("3").pod(), group=group))
    scene.run(batch=100, until_s=5.0)
    for number in range(3):
        scene.inbox.append(room(number))
        scene.delete_pod(f"uid-other{number}")
        scene.run(batch=100, until_s=2.0)
    scene.run(batch=100, until_s=10.0)
    [plan] = scene.plans
    assert sorted(one.reservation for one in plan.placements) == ["room-0", "room-1", "room-2"]
