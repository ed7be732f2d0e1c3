"""Queue objects through the coordinator: order, quota, what is told, and what is taken back."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from msgspec.structs import replace

from services.coordinator.core.events import QueueHistoryRead
from services.coordinator.core.instructions import EmitEvent, TellQueue
from shared.model.cluster_events import ObjectChanged
from shared.model.units.pod_group import GroupSource, PodGroup
from shared.model.units.queue import QUEUE_LABEL, Queue
from shared.scheduling.places import Place
from shared.wire.records import QueueHistoryRecord
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.queues.queue_scenes import KEY, add, bound, cpus, place, put, scene_with, told


def test_a_maximum_holds_back_what_exceeds_it_and_says_so() -> None:
    scene = scene_with(Queue("a", maximum=cpus(2)))
    add(scene, "a", "p0", "p1", "p2")
    scene.run(batch=100, until_s=6)
    assert bound(scene) == ["p0", "p1"]
    assert place(scene, "p2") is Place.GATED
    assert told(scene, "p2").startswith("queue a: cpu 2 of maximum 2 is used; it asks for 1 and waits")


def test_a_pod_that_ends_lets_the_next_go() -> None:
    scene = scene_with(Queue("a", maximum=cpus(2)))
    add(scene, "a", "p0", "p1", "p2")
    scene.run(batch=100, until_s=3)
    scene.delete_pod("uid-p0")
    scene.run()
    assert bound(scene) == ["p0", "p1", "p2"]


def test_a_maximum_that_is_raised_lets_the_next_go() -> None:
    scene = scene_with(Queue("a", maximum=cpus(1)))
    add(scene, "a", "p0", "p1")
    scene.run(batch=100, until_s=3)
    put(scene, Queue("a", maximum=cpus(2)))
    scene.run()
    assert bound(scene) == ["p0", "p1"]


def test_a_quota_is_not_exceeded_within_one_cycle() -> None:
    scene = scene_with(Queue("a", maximum=cpus(3)), nodes=8)
    add(scene, "a", *(f"p{number}" for number in range(30)))
    scene.run(batch=100)
    assert len(bound(scene)) == 3


def test_queues_share_by_weight() -> None:
    scene = scene_with(Queue("a"), Queue("b"), nodes=2)
    add(scene, "a", *(f"a{number}" for number in range(10)))
    add(scene, "b", *(f"b{number}" for number in range(10)))
    scene.run(batch=100)
    assert Counter(name[0] for name in bound(scene)) == {"a": 4, "b": 4}


def test_namespaces_are_bound_to_queues() -> None:
    scene = scene_with(Queue("a", namespaces=("default",), maximum=cpus(1)))
    add(scene, "", "p0", "p1")
    scene.run(batch=100)
    assert bound(scene) == ["p0"]


def test_pods_that_were_there_before_the_queue_count() -> None:
    scene = scene_with()
    add(scene, "", "p0", "p1")
    scene.run(batch=100)
    put(scene, Queue("a", namespaces=("default",), maximum=cpus(3)))
    add(scene, "", "p2", "p3")
    scene.run(batch=100)
    assert bound(scene) == ["p0", "p1", "p2"]


def test_pods_that_waited_before_the_queue_came_are_held_by_it() -> None:
    scene = scene_with(nodes=1)
    add(scene, "", "big", cpu="9")
    scene.run(batch=100)
    put(scene, Queue("a", namespaces=("default",), maximum=cpus(2)))
    scene.run()
    add(scene, "", "p0", "p1", "p2")
    scene.run(batch=100)
    assert bound(scene) == ["p0", "p1"]


def test_a_label_to_no_queue_is_told_and_others_go() -> None:
    scene = scene_with()
    add(scene, "typo", "lost")
    add(scene, "", "p0")
    scene.run(batch=100, until_s=6)
    assert bound(scene) == ["p0"]
    assert "there is no Queue of this name" in told(scene, "lost")
    put(scene, Queue("typo"))
    scene.run()
    assert bound(scene) == ["p0", "lost"]


def test_a_label_that_is_corrected_lets_the_pod_go() -> None:
    scene = scene_with(Queue("a"))
    add(scene, "typo", "p0")
    scene.run(batch=100, until_s=3)
    scene.change_pod("uid-p0", labels={QUEUE_LABEL: "a"})
    scene.run()
    assert bound(scene) == ["p0"]


def test_when_the_last_queue_goes_the_order_is_as_before() -> None:
    scene = scene_with(Queue("a", namespaces=("default",), maximum=cpus(1)))
    add(scene, "", "p0", "p1", "p2")
    scene.run(batch=100, until_s=3)
    scene.inbox.append(ObjectChanged("queues", "a", None))
    scene.run(until_s=3)
    assert bound(scene) == ["p0", "p1", "p2"]
    assert scene.core.state.queue.turns is None
    assert scene.core.state.cache.changed is None


def test_without_queues_nothing_is_counted() -> None:
    scene = scene_with()
    add(scene, "", "p0", "p1")
    scene.run(batch=100)
    assert scene.core.state.queue.turns is None
    assert scene.core.state.queues.charges == {}


def test_a_pod_that_no_node_takes_holds_no_quota() -> None:
    scene = scene_with(Queue("a", maximum=cpus(9)))
    add(scene, "a", "big", cpu="8")
    add(scene, "a", "p0", "p1", "p2")
    scene.run(batch=100, until_s=30)
    assert bound(scene) == ["p0", "p1", "p2"]
    assert scene.core.state.queues.structure.nodes["a"].used["cpu"] == 3000


def test_a_deleted_pod_in_flight_holds_no_quota() -> None:
    scene = scene_with(Queue("a", maximum=cpus(2)))
    scene.hold_plans = True
    add(scene, "a", "p0", "p1", "p2")
    scene.run(batch=100)
    scene.delete_pod("uid-p0")
    scene.hold_plans = False
    for plan in scene.held_plans:
        scene.inbox.append(scene.bind(plan))
    scene.run(batch=100, until_s=5)
    assert bound(scene) == ["p1", "p2"]
    assert scene.core.state.queues.structure.nodes["a"].used["cpu"] == 2000


def test_a_successor_counts_the_same() -> None:
    scene = scene_with(Queue("a", maximum=cpus(2)))
    add(scene, "a", "p0", "p1", "p2")
    scene.run(batch=100)
    before = scene.core.state.queues.structure.nodes["a"].used
    put(scene, Queue("a", maximum=cpus(2)))
    queue = scene.inbox.pop()
    scene.replace_leader(set())
    scene.inbox.appendleft(queue)
    scene.run(batch=100, until_s=3)
    after = scene.core.state.queues.structure.nodes["a"].used
    assert {k: v for k, v in before.items() if v} == {k: v for k, v in after.items() if v}
    assert bound(scene) == ["p0", "p1"]


def test_a_gang_is_held_back_as_a_whole_and_goes_as_a_whole() -> None:
    scene = scene_with(Queue("a", maximum=cpus(3)))
    add(scene, "a", "other")
    scene.run(batch=100)
    group = PodGroup(KEY, GroupSource.NATIVE, "default", "train", gang=True, min_count=3, labels={QUEUE_LABEL: "a"})
    scene.inbox.append(ObjectChanged("podgroups", "default/train", group))
    for number in range(3):
        scene.add_pod(replace(make_pod(f"m{number}").cpu("1").pod(), group=KEY))
    scene.run(batch=100, until_s=5)
    assert bound(scene) == ["other"]
    assert "queue a: cpu 1 of maximum 3 is used; it asks for 3" in told(scene, "m0")
    scene.delete_pod("uid-other")
    scene.run(until_s=5)
    assert sorted(bound(scene)) == ["m0", "m1", "m2", "other"]


def test_a_gang_goes_with_as_many_as_the_quota_has_room_for() -> None:
    scene = scene_with(Queue("a", maximum=cpus(3), namespaces=("default",)))
    group = PodGroup(KEY, GroupSource.NATIVE, "default", "train", gang=True, min_count=2)
    scene.inbox.append(ObjectChanged("podgroups", "default/train", group))
    for number in range(5):
        scene.add_pod(replace(make_pod(f"m{number}").cpu("1").pod(), group=KEY))
    scene.run(batch=100, until_s=5)
    assert len(bound(scene)) == 3
    scene.delete_pod(scene.bindings[0][0])
    scene.run(until_s=5)
    assert len(bound(scene)) == 4


def test_what_was_borrowed_is_taken_back_on_a_node_where_it_helps() -> None:
    scene = scene_with(Queue("a", guaranteed=cpus(4), reclaim=True), Queue("b"), nodes=2)
    add(scene, "b", *(f"b{number}" for number in range(8)))
    scene.run(batch=100, until_s=5)
    assert len(bound(scene)) == 8
    add(scene, "a", "a0", cpu="3")
    scene.run(batch=100, until_s=30)
    assert bound(scene)[-1] == "a0"
    assert len(scene.evicted) == 3


def test_nothing_is_taken_back_where_reclaim_is_off() -> None:
    scene = scene_with(Queue("a", guaranteed=cpus(4)), Queue("b"), nodes=2)
    add(scene, "b", *(f"b{number}" for number in range(8)))
    scene.run(batch=100, until_s=5)
    add(scene, "a", "a0", cpu="3")
    scene.run(batch=100, until_s=30)
    assert scene.evicted == []


def test_what_a_limit_above_holds_back_is_taken_back_and_nobody_steals_it() -> None:
    queues = [
        Queue("top", maximum=cpus(6), guaranteed=cpus(6)),
        Queue("a", "top", guaranteed=cpus(4), reclaim=True),
        Queue("b", "top"),
        Queue("thief", "top"),
    ]
    scene = scene_with(*queues, nodes=4)
    scene.keep_victims = True
    add(scene, "b", *(f"b{number}" for number in range(6)))
    scene.run(batch=100, until_s=5)
    add(scene, "a", "a0", cpu="3")
    add(scene, "thief", "t0", "t1", "t2")
    scene.run(batch=100, until_s=5)
    assert len(scene.evicted) == 3
    for uid in scene.evicted:
        scene.delete_pod(uid)
        scene.run(until_s=2)
    scene.run(until_s=5)
    assert bound(scene)[6:] == ["a0"]
    assert len(scene.evicted) == 3


def test_a_lowered_limit_takes_back() -> None:
    scene = scene_with(Queue("a", maximum=cpus(6), reclaim=True), nodes=2)
    add(scene, "a", *(f"p{number}" for number in range(6)))
    scene.run(batch=100, until_s=5)
    put(scene, Queue("a", maximum=cpus(2), reclaim=True))
    scene.run(until_s=10)
    assert len(scene.evicted) == 4
    notes = {event.note for event in scene.of(EmitEvent) if event.action == "Preempting"}
    assert notes == {"Evicted since its queue uses more than its limits, which were lowered"}


def test_the_status_says_what_is_used_and_what_is_wrong() -> None:
    scene = scene_with(Queue("a", maximum=cpus(2)), Queue("b", "gone"))
    add(scene, "a", "p0", "p1", "p2")
    scene.run(batch=100, until_s=5)
    status = {tell.queue.name: tell.status for tell in scene.of(TellQueue)}
    assert (status["a"].used["cpu"], status["a"].pending, status["a"].held) == ("2", 1, 1)
    assert [c.status for c in status["a"].conditions if c.type == "Ready"] == ["True"]
    [ready] = [c for c in status["b"].conditions if c.type == "Ready"]
    assert (ready.status, ready.message) == (
        "False",
        "spec.parent: there is no Queue gone; create it or correct the field",
    )


def test_units_that_no_node_takes_are_pending_until_they_are_gone() -> None:
    """Else a queue would hide that its gangs wait for room, and no alert could tell of it."""
    scene = scene_with(Queue("top"), Queue("a", "top"))
    add(scene, "a", "large", "larger", cpu="9")
    scene.run(batch=100, until_s=5)
    for queue in ("a", "top"):
        told = [tell.status for tell in scene.of(TellQueue) if tell.queue.name == queue][-1]
        assert (told.pending, told.held) == (2, 0)
    scene.delete_pod("uid-larger")
    scene.run(batch=100, until_s=10)
    assert [tell.status.pending for tell in scene.of(TellQueue) if tell.queue.name == "top"][-1] == 1


def test_a_status_that_is_shown_is_not_written_again() -> None:
    scene = scene_with(Queue("a"))
    scene.run(until_s=5)
    [tell] = scene.of(TellQueue)
    put(scene, replace(Queue("a"), written=replace(tell.status)))
    scene.run(until_s=60)
    assert len(scene.of(TellQueue)) == 1


def test_past_use_is_gone_on_from_when_its_queue_is_seen() -> None:
    scene = scene_with(Queue("b"))
    kept = QueueHistoryRecord(time=1_000, past={"a": {"cpu": 8_000_000}}, term=3)
    scene.inbox.append(QueueHistoryRead(kept, 1_050))
    scene.run(until_s=5)
    assert scene.core.queues.past.record(1_055).past == kept.past
    put(scene, Queue("a", half_life_s=50.0))
    scene.run(until_s=2)
    past = scene.core.state.queues.history.past["a"]["cpu"]
    assert 3_500_000 < past < 4_000_000
    add(scene, "a", "a0")
    add(scene, "b", "b0", "b1", "b2")
    scene.run(batch=100)
    assert bound(scene)[:3] == ["b0", "b1", "b2"]
    assert scene.core.queues.past.record(1_060).past["a"]["cpu"] == scene.core.state.queues.history.past["a"]["cpu"]


def test_what_was_borrowed_is_taken_back_for_a_gang_over_several_nodes() -> None:
    scene = scene_with(Queue("a", guaranteed=cpus(4), reclaim=True), Queue("b"), nodes=2)
    add(scene, "b", *(f"b{number}" for number in range(8)))
    scene.run(batch=100, until_s=5)
    group = PodGroup(KEY, GroupSource.NATIVE, "default", "train", gang=True, min_count=4, labels={QUEUE_LABEL: "a"})
    scene.inbox.append(ObjectChanged("podgroups", "default/train", group))
    for number in range(4):
        scene.add_pod(replace(make_pod(f"m{number}").cpu("1").pod(), group=KEY))
    scene.run(batch=100, until_s=30)
    assert sorted(bound(scene)[8:]) == ["m0", "m1", "m2", "m3"]
    assert len(scene.evicted) == 4


def test_room_that_comes_is_shared_by_those_that_wait_parked() -> None:
    scene = scene_with(Queue("double", weight=Fraction(2)), Queue("single"), nodes=1, cpu="0")
    add(scene, "double", *(f"d{number}" for number in range(16)))
    add(scene, "single", *(f"s{number}" for number in range(16)))
    scene.run(batch=100, until_s=5)
    scene.add_node(make_node("new").allocatable(cpu="12").node())
    scene.run(until_s=30)
    assert Counter(name[0] for name in bound(scene)) == {"d": 8, "s": 4}


def test_pods_woken_in_their_backoff_are_shared_too() -> None:
    scene = scene_with(Queue("double", weight=Fraction(2)), Queue("single"), nodes=1, cpu="0")
    add(scene, "double", *(f"d{number}" for number in range(16)))
    add(scene, "single", *(f"s{number}" for number in range(16)))
    scene.run(batch=100)
    scene.add_node(make_node("new").allocatable(cpu="12").node())
    scene.run(until_s=0.5)  # all of them back off still
    assert Counter(name[0] for name in bound(scene)) == {"d": 8, "s": 4}


def test_no_more_is_taken_back_than_was_borrowed_however_long_victims_take_to_leave() -> None:
    scene = scene_with(Queue("a", guaranteed=cpus(4), reclaim=True), Queue("b", guaranteed=cpus(5)), nodes=2)
    scene.keep_victims = True
    add(scene, "b", *(f"b{number}" for number in range(8)))
    scene.run(batch=100, until_s=5)
    add(scene, "a", *(f"a{number}" for number in range(6)))
    scene.run(batch=100, until_s=30)
    assert len(scene.evicted) == 3


def test_a_queue_takes_back_no_more_than_it_is_guaranteed_while_victims_leave() -> None:
    scene = scene_with(Queue("a", guaranteed=cpus(3), reclaim=True), Queue("b"), nodes=2)
    scene.keep_victims = True
    add(scene, "b", *(f"b{number}" for number in range(8)))
    scene.run(batch=100, until_s=5)
    add(scene, "a", *(f"a{number}" for number in range(6)))
    scene.run(batch=100, until_s=30)
    assert len(scene.evicted) == 3
    for uid in list(scene.evicted):
        scene.delete_pod(uid)
    scene.run(batch=100, until_s=30)
    assert Counter(name[0] for name in bound(scene)[8:]) == {"a": 3}
    assert len(scene.evicted) == 3


def test_many_lone_pods_take_back_within_seconds() -> None:
    scene = scene_with(Queue("a", guaranteed=cpus(16), reclaim=True), Queue("b"), nodes=4)
    add(scene, "b", *(f"b{number}" for number in range(16)))
    scene.run(batch=100, until_s=5)
    add(scene, "a", *(f"a{number}" for number in range(16)))
    scene.run(batch=100, until_s=4)
    assert len(scene.evicted) == 16
    assert len(bound(scene)) == 32
