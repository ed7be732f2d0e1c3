"""Gangs whose members or minimum change while they wait: nobody is forgotten, and no limit is exceeded."""

from __future__ import annotations

from services.coordinator.core.events import ControlSeen
from services.coordinator.core.instructions import EmitEvent, PatchCondition
from services.coordinator.core.state import CoreSettings
from shared.model.cluster_events import ObjectChanged
from shared.model.units.pod_group import WhenGangBreaks
from shared.model.units.queue import Queue
from shared.scheduling.places import Place
from shared.wire.messages import EvictionReason
from shared.wire.records import Paused
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.groups.test_gangs import (
    KEY,
    add_members,
    place_of,
    refused,
    scene_with,
    tell_group,
)
from tests.unit.services.coordinator.scene import Scene


def put_queue(scene: Scene, cpu: int) -> None:
    queue = Queue("a", maximum={"cpu": cpu * 1000}, namespaces=("default",), generation=1)
    scene.inbox.append(ObjectChanged("queues", "a", queue))


def break_gang(scene: Scene, alive: str, gone: str) -> None:
    """One of the two members is bound, the other refused for good and deleted."""
    scene.hold_plans = True
    scene.run(batch=100)
    refused(scene, f"uid-{gone}")
    scene.hold_plans = False
    scene.run(batch=100)
    scene.delete_pod(f"uid-{gone}")
    scene.run(batch=100, until_s=1.0)
    assert f"uid-{alive}" in {uid for uid, _ in scene.bindings}


def test_a_timeout_that_is_shortened_holds_at_once() -> None:
    scene = scene_with(nodes=1)
    tell_group(scene, 2, broken=WhenGangBreaks.EVICT, timeout_s=3600.0)
    add_members(scene, 2)
    break_gang(scene, "m0", "m1")
    tell_group(scene, 2, broken=WhenGangBreaks.EVICT, timeout_s=10.0)
    scene.run(until_s=15.0)
    assert scene.evicted == ["uid-m0"]


def test_a_gang_that_a_quota_holds_and_that_loses_a_member_goes_when_there_is_room() -> None:
    scene = scene_with()
    put_queue(scene, 3)
    scene.add_pod(make_pod("other").cpu("2").pod())
    scene.run(batch=100)
    tell_group(scene, 2)
    add_members(scene, 3, cpu="1")
    scene.run(batch=100, until_s=5.0)
    assert scene.core.state.queue.entries["uid-m0"].place is Place.GATED
    scene.delete_pod("uid-m2")
    scene.run(until_s=5.0)
    scene.delete_pod("uid-other")
    scene.run(until_s=5.0)
    assert {uid for uid, _ in scene.bindings} == {"uid-other", "uid-m0", "uid-m1"}


def test_a_minimum_that_rises_while_the_gang_waits_its_turn_exceeds_no_quota() -> None:
    scene = scene_with()
    put_queue(scene, 3)
    scene.add_pod(make_pod("other").cpu("1").pod())
    scene.run(batch=100)
    scene.inbox.append(ControlSeen(Paused(by="operator:anna", reason="works", since="2026-11-22T02:00:00.000Z")))
    tell_group(scene, 2)
    add_members(scene, 3, cpu="1")
    scene.run(batch=100, until_s=1.0)
    tell_group(scene, 3)
    scene.run(batch=100, until_s=1.0)
    scene.inbox.append(ControlSeen())
    scene.run(batch=100, until_s=5.0)
    assert [uid for uid, _ in scene.bindings] == ["uid-other"]


def test_members_that_a_quota_left_out_go_with_the_gang_when_it_needs_them() -> None:
    """Three of five fit into the quota; two of the three go before the cluster has room for any."""
    scene = scene_with(nodes=1, cpu="4")
    put_queue(scene, 7)
    scene.add_pod(make_pod("other").cpu("4").pod())
    scene.run(batch=100)
    tell_group(scene, 2)
    add_members(scene, 5, cpu="1")
    scene.run(batch=100, until_s=5.0)
    for name in ("m0", "m1"):
        scene.delete_pod(f"uid-{name}")
    scene.run(until_s=5.0)
    scene.delete_pod("uid-other")
    scene.run(until_s=30.0)
    assert {uid for uid, _ in scene.bindings} >= {"uid-m2", "uid-m3", "uid-m4"}


def test_a_group_is_not_tried_before_the_cluster_has_what_it_names() -> None:
    scene = scene_with(nodes=1, cpu="4")
    tell_group(scene, 2, min_resources=(("cpu", 6000),))
    add_members(scene, 2, cpu="1")
    scene.run(batch=100, until_s=10.0)
    assert scene.bindings == []
    told = [one.message for one in scene.of(PatchCondition)]
    assert any("spec.minResources[cpu]: 6 is more than the cluster has, 4; add nodes" in text for text in told)
    scene.add_node(make_node("n1").allocatable(cpu="4").node())
    scene.run(batch=100, until_s=5.0)
    assert len(scene.bindings) == 2


def test_queues_that_go_and_come_again_know_how_large_the_cluster_is() -> None:
    scene = scene_with(nodes=1, cpu="4")
    put_queue(scene, 3)
    scene.run(batch=100)
    scene.inbox.append(ObjectChanged("queues", "a", None))
    scene.run(batch=100)
    put_queue(scene, 3)
    scene.run(batch=100)
    assert scene.core.state.queues.capacity["cpu"] == 4000


def test_nobody_is_evicted_while_scheduling_is_paused_and_the_time_begins_anew() -> None:
    scene = scene_with(nodes=1)
    tell_group(scene, 2, broken=WhenGangBreaks.EVICT, timeout_s=10.0)
    add_members(scene, 2)
    break_gang(scene, "m0", "m1")
    scene.inbox.append(ControlSeen(Paused(by="operator:anna", reason="works", since="2026-11-22T02:00:00.000Z")))
    scene.run(batch=100, until_s=60.0)
    assert scene.evicted == []
    scene.inbox.append(ControlSeen())
    scene.run(batch=100, until_s=9.0)
    assert scene.evicted == []
    scene.run(batch=100, until_s=2.0)
    assert scene.evicted == ["uid-m0"]


def test_members_of_a_broken_gang_are_told_why_they_leave() -> None:
    scene = scene_with(nodes=1)
    tell_group(scene, 2, broken=WhenGangBreaks.EVICT, timeout_s=10.0)
    add_members(scene, 2)
    break_gang(scene, "m0", "m1")
    scene.run(batch=100, until_s=15.0)
    [eviction] = [eviction for plan in scene.plans for eviction in plan.evictions]
    assert (eviction.reason, eviction.preemptor) == (EvictionReason.BROKEN_GANG, KEY)
    [event] = [event for event in scene.of(EmitEvent) if event.reason == "GangBroken"]
    assert event.uid == "uid-m0"


def test_a_gang_whose_repeats_are_not_spaced_does_not_hold_up_the_loop() -> None:
    """Settings may say that notices are repeated at once."""
    scene = Scene(settings=CoreSettings(validate=True, notice_repeat_s=0.0))
    scene.begin()
    tell_group(scene, 2)
    add_members(scene, 1)
    scene.run(batch=100, until_s=30.0)
    assert place_of(scene, "m0") == ["gated"]
