"""One figure of how many units of a queue wait: in its status, in its page above the list, and over all queues."""

from __future__ import annotations

from random import Random

import pytest
from msgspec import structs

from services.coordinator.core.instructions import TellQueue
from services.coordinator.inspect.queue_facts import queue_facts, queue_totals
from services.coordinator.queues.status import pending_in
from shared.model.units.queue import QUEUE_LABEL, Queue
from shared.scheduling.places import OwnEvent, Place
from shared.scheduling.queue_moves import Moves
from tests.unit.services.coordinator.queues.queue_scenes import add, change_group, cpus, gang, place, put, scene_with
from tests.unit.services.coordinator.scene import Scene


def counted(scene: Scene, name: str) -> int:
    """How many units wait in the queue; the status, the page and its list agree."""
    core = scene.core
    facts = queue_facts(core, name, scene.now, units=True)
    assert facts is not None
    assert facts.pending_units == len(facts.pending) == pending_in(core.state, core.state.queues.structure.nodes[name])
    assert list(core.state.queue.validate()) == []
    return facts.pending_units


def test_units_on_their_way_wait_until_they_are_bound() -> None:
    scene = scene_with(Queue("a"))
    scene.hold_plans = True
    add(scene, "a", "p0", "p1")
    gang(scene, "train", 2, label="a")
    scene.run(batch=100)
    assert place(scene, "p0") is Place.IN_FLIGHT
    assert (counted(scene, "a"), queue_totals(scene.core).waiting_units) == (3, 3)


def test_groups_that_are_not_tried_yet_wait_in_the_queue_that_they_name_by_now() -> None:
    scene = scene_with(Queue("a"), Queue("b"))
    gang(scene, "train", 2, label="a", minimum=5)
    scene.run(batch=100)
    assert (counted(scene, "a"), counted(scene, "b")) == (1, 0)
    gang(scene, "train", 3, label="b", minimum=5)
    scene.run(batch=100)
    assert (counted(scene, "a"), counted(scene, "b")) == (0, 1)


def test_a_group_that_is_not_tried_yet_and_names_another_queue_waits_there() -> None:
    scene = scene_with(Queue("a"), Queue("b"))
    key = gang(scene, "train", 2, label="a", minimum=5)
    scene.run(batch=100)
    assert (counted(scene, "a"), counted(scene, "b")) == (1, 0)
    group = scene.core.state.groups.group(key)
    assert group is not None
    change_group(scene, structs.replace(group, labels={QUEUE_LABEL: "b"}))
    scene.run(batch=100)
    assert (counted(scene, "a"), counted(scene, "b")) == (0, 1)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_the_figures_agree_and_nobody_is_forgotten(seed: int) -> None:
    rng = Random(seed)
    scene = scene_with(Queue("a", maximum=cpus(6)), Queue("b"), nodes=3)
    for number in range(40):
        label = rng.choice("ab")
        match rng.randrange(6):
            case 0:
                add(scene, label, f"p{number}", cpu=rng.choice(["1", "9"]))
            case 1:
                gang(scene, f"g{number}", rng.randrange(1, 5), label=label, minimum=rng.randrange(1, 6))
            case 2 if scene.pods:
                scene.delete_pod(rng.choice(list(scene.pods)))
            case 3:
                gang(scene, f"g{rng.randrange(number + 1)}", 0, label=label, gang=rng.random() < 0.7)
            case 4:
                put(scene, Queue(label, maximum=cpus(rng.randrange(1, 9)), namespaces=rng.choice([(), ("default",)])))
            case _:
                scene.hold_plans = not scene.hold_plans
        scene.run(batch=rng.choice([1, 100]), until_s=rng.choice([0.0, 2.0]))
        queue = scene.core.state.queue
        there = {
            entry.group.key if entry.group is not None else queue.turns.aside_of.get(uid, uid)
            for uid, entry in queue.entries.items() if queue.turns is not None
        }  # fmt: skip
        assert queue_totals(scene.core).waiting_units == len(there)
        for name in ("a", "b"):
            counted(scene, name)


def test_a_unit_is_counted_once_wherever_it_waits() -> None:
    scene = scene_with(Queue("up"), Queue("a", "up", maximum=cpus(2)), Queue("b", "up"))
    add(scene, "a", "held", cpu="3")
    add(scene, "b", "large", cpu="9")
    gang(scene, "train", 4, label="b", minimum=9)
    scene.run(batch=100)
    assert [counted(scene, name) for name in ("a", "b")] == [1, 2]
    queue = scene.core.state.queue
    assert queue.wake("uid-large", scene.now)
    assert counted(scene, "b") == 2
    up = scene.core.state.queues.structure.nodes["up"]
    assert (pending_in(scene.core.state, up), queue_totals(scene.core).waiting_units) == (3, 3)
    assert queue.pop_unit(scene.now + 60)[0].name == "large"
    assert (place(scene, "large"), counted(scene, "b")) == (Place.IN_FLIGHT, 2)
    queue.retry("uid-large", scene.now)
    assert (place(scene, "large"), counted(scene, "b")) == (Place.BACKOFF, 2)
    queue.remove("uid-large")
    assert counted(scene, "b") == 1


def test_a_unit_that_no_node_takes_and_is_tried_again_costs_its_queue_no_write() -> None:
    scene = scene_with(Queue("a"))
    add(scene, "a", "large", cpu="9")
    scene.run(batch=100, until_s=10)
    before = [one.status.pending for one in scene.of(TellQueue)]
    assert before[-1] == 1
    for _ in range(5):
        assert scene.core.state.queue.wake("uid-large", scene.now, OwnEvent.TIMEOUT)
        scene.run(until_s=scene.now + 4)
    assert {one.status.pending for one in scene.of(TellQueue)[len(before) :]} <= {1}


def test_queues_that_come_later_count_who_waits_already() -> None:
    scene = scene_with()
    scene.hold_plans = True
    add(scene, "", "p0")
    gang(scene, "train", 2, label="a", minimum=5)
    scene.run(batch=100)
    put(scene, Queue("a", namespaces=("default",)))
    scene.run(batch=100, until_s=3.0)
    assert counted(scene, "a") == 2


def test_a_pod_that_is_forgotten_among_those_set_aside_is_noticed() -> None:
    scene = scene_with(Queue("a"))
    gang(scene, "train", 2, label="a", minimum=5)
    scene.run(batch=100)
    queue: Moves = scene.core.state.queue
    assert queue.turns is not None
    queue.turns.take_up("uid-train-0")
    assert list(queue.validate()) == ["queue-aside: uid-train-0 is set aside and not counted"]
