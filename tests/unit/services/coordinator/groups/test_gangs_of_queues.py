"""Gangs and queues: all members of a gang are in one queue, so that its limits hold for the gang as a whole."""

from __future__ import annotations

from msgspec.structs import replace

from shared.model.queue import QUEUE_LABEL, Queue
from tests.builders import make_pod
from tests.unit.services.coordinator.groups.test_gangs import KEY, place_of, tell_group
from tests.unit.services.coordinator.scene import Scene
from tests.unit.services.coordinator.test_queues import bound, cpus, scene_with


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
