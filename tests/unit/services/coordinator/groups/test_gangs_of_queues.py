"""Gangs and queues: all members of a gang are in one queue, so that its limits hold for the gang as a whole."""

from __future__ import annotations

from msgspec.structs import replace

from shared.model.units.queue import QUEUE_LABEL, Queue
from shared.scheduling.places import Place
from tests.builders import make_pod
from tests.unit.services.coordinator.groups.test_gangs import KEY, place_of, tell_group
from tests.unit.services.coordinator.queues.queue_scenes import bound, cpus, put, scene_with
from tests.unit.services.coordinator.scene import Scene


def add(scene: Scene, *queues: str) -> None:
    for number, queue in enumerate(queues):
        labels = {QUEUE_LABEL: queue} if queue else {}
        scene.add_pod(replace(make_pod(f"m{number}").cpu("1").pod(), group=KEY, labels=labels))


def test_a_gang_whose_members_name_two_queues_waits_and_says_so() -> None:
    """Its first member's queue has no limit: the others would exceed theirs unseen."""
    scene = scene_with(Queue("open"), Queue("small", maximum=cpus(1)))
    tell_group(scene, 3)
    add(scene, "open", "small", "small")
    scene.run(batch=100, until_s=6)
    assert bound(scene) == []
    assert place_of(scene, "m0") == ["gated"]
    assert "members name different queues (open, small)" in scene.pods["uid-m0"].condition[2]


def test_it_goes_once_they_name_one() -> None:
    scene = scene_with(Queue("open"), Queue("small", maximum=cpus(1)))
    tell_group(scene, 3)
    add(scene, "open", "open", "small")
    scene.run(batch=100, until_s=6)
    scene.change_pod("uid-m2", labels={QUEUE_LABEL: "open"})
    scene.run(batch=100, until_s=6)
    assert len(bound(scene)) == 3


def test_members_without_a_label_are_in_the_queue_of_their_group() -> None:
    scene = scene_with(Queue("open"))
    tell_group(scene, 3, labels={QUEUE_LABEL: "open"})
    add(scene, "", "open", "")
    scene.run(batch=100, until_s=6)
    assert len(bound(scene)) == 3


def used(scene: Scene, queue: str) -> int:
    """Milli-cores that count in a queue."""
    return scene.core.state.queues.structure.nodes[queue].used.get("cpu", 0)


def test_a_gang_moves_at_once_when_its_group_names_another_queue() -> None:
    scene = scene_with(Queue("small", maximum=cpus(1)), Queue("open"))
    tell_group(scene, 3, labels={QUEUE_LABEL: "small"})
    add(scene, "", "", "")
    scene.run(batch=100, until_s=6)
    assert bound(scene) == []
    tell_group(scene, 3, labels={QUEUE_LABEL: "open"})
    scene.run(batch=100)
    assert len(bound(scene)) == 3
    assert (used(scene, "small"), used(scene, "open")) == (0, 3000)
    tell_group(scene, 3, labels={QUEUE_LABEL: "small"})
    scene.run(batch=100)
    assert (used(scene, "small"), used(scene, "open")) == (3000, 0), "what runs counts where it is said to"


def test_a_parked_gang_moves_too() -> None:
    scene = scene_with(Queue("a"), Queue("b"), nodes=1, cpu="2")
    tell_group(scene, 3, labels={QUEUE_LABEL: "a"})
    add(scene, "", "", "")
    scene.run(batch=100, until_s=6)
    turns = scene.core.state.queue.turns
    assert turns is not None
    assert list(turns.parked) == ["a"]
    tell_group(scene, 3, labels={QUEUE_LABEL: "b"})
    scene.run(batch=100, until_s=30)
    assert list(turns.parked) == ["b"]


def test_members_that_go_one_by_one_move_with_their_groups_label() -> None:
    scene = scene_with(Queue("small", maximum=cpus(1)), Queue("open"))
    tell_group(scene, 1, gang=False, labels={QUEUE_LABEL: "small"})
    add(scene, "", "", "")
    scene.run(batch=100, until_s=6)
    assert len(bound(scene)) == 1
    tell_group(scene, 1, gang=False, labels={QUEUE_LABEL: "open"})
    scene.run(batch=100)
    assert len(bound(scene)) == 3


def test_a_newcomer_waits_with_the_gang_that_a_quota_holds_back() -> None:
    scene = scene_with(Queue("small", maximum=cpus(1)))
    tell_group(scene, 2, labels={QUEUE_LABEL: "small"})
    add(scene, "", "")
    scene.run(batch=100, until_s=6)
    queue = scene.core.state.queue
    before = {how: count for how, count in queue.incoming.items() if how[0] is Place.ACTIVE}
    scene.add_pod(replace(make_pod("m2").cpu("1").pod(), group=KEY))
    scene.run(batch=100, until_s=6)
    assert {how: count for how, count in queue.incoming.items() if how[0] is Place.ACTIVE} == before
    assert place_of(scene, "m2") == ["gated"]
    put(scene, Queue("small", maximum=cpus(3)))
    scene.run(batch=100, until_s=6)
    assert len(bound(scene)) == 3


def test_members_that_waited_alone_go_together_once_their_gang_needs_them() -> None:
    """Each stood in its queue for itself; taken so it would be half a gang."""
    scene = scene_with(Queue("q", maximum=cpus(2)))
    tell_group(scene, 2, labels={QUEUE_LABEL: "q"})
    add(scene, "", "", "", "")
    scene.run(batch=100, until_s=6)
    assert sorted(bound(scene)) == ["m0", "m1"]
    put(scene, Queue("q", maximum=cpus(1)))
    for name in ("m0", "m1"):
        scene.delete_pod(f"uid-{name}")
    scene.run(batch=100, until_s=6)
    assert sorted(bound(scene)) == ["m0", "m1"]
    put(scene, Queue("q", maximum=cpus(2)))
    scene.run(batch=100, until_s=6)
    assert sorted(bound(scene)) == ["m0", "m1", "m2", "m3"]
