"""What units that a limit holds back are told stays true, and costs few writes."""

from __future__ import annotations

from services.coordinator.core.instructions import PatchCondition, TellQueue
from services.coordinator.queues.status import QueueReporter
from shared.model.cluster_events import ObjectChanged
from shared.model.units.queue import Queue
from tests.builders import make_node
from tests.unit.services.coordinator.queues.queue_scenes import add, cpus, gang, put, scene_with
from tests.unit.services.coordinator.scene import Scene

REPEAT_S = 60.0


def writes(scene: Scene, name: str) -> list[str]:
    return [patch.message for patch in scene.of(PatchCondition) if patch.uid == f"uid-{name}"]


def held() -> Scene:
    scene = scene_with(Queue("a", maximum=cpus(4)), nodes=4)
    add(scene, "a", "p0", "p1", "p2", "p3")
    add(scene, "a", "big", cpu="3")
    scene.run(batch=100, until_s=5)
    text = "queue a: cpu 4 of maximum 4 is used; it asks for 3 and waits until pods there end or the maximum is raised"
    assert writes(scene, "big") == [text]
    return scene


def test_figures_that_changed_are_told_after_the_minimum_time() -> None:
    scene = held()
    scene.delete_pod("uid-p0")
    scene.run(until_s=REPEAT_S - 10)
    assert len(writes(scene, "big")) == 1
    scene.run(until_s=2 * REPEAT_S)
    assert writes(scene, "big")[1].startswith("queue a: cpu 3 of maximum 4 is used")
    scene.run(until_s=10 * REPEAT_S)
    assert len(writes(scene, "big")) == 2


def test_another_reason_is_told_soon() -> None:
    scene = held()
    put(scene, Queue("a", maximum=cpus(2)))
    scene.run(until_s=5)
    assert "which never fits" in writes(scene, "big")[1]
    put(scene, Queue("a", "gone", maximum=cpus(2)))
    scene.run(until_s=5)
    assert writes(scene, "big")[2].startswith("queue a: spec.parent: there is no Queue gone")
    assert len(writes(scene, "big")) == 3


def test_nothing_is_due_for_the_status_of_a_queue_that_is_gone() -> None:
    scene = scene_with(Queue("a"), Queue("b"))
    state, reporter = scene.core.state, QueueReporter(scene.core.state)
    reporter.step()
    assert reporter.wake_at() is not None  # nobody has written what it asked for
    for name in ("a", "b"):
        scene.inbox.append(ObjectChanged("queues", name, None))
    scene.run(until_s=10)
    state.now = scene.now
    reporter.step()
    assert reporter.wake_at() is None


def test_members_of_a_gang_are_told_too() -> None:
    scene = scene_with(Queue("a", maximum=cpus(4)))
    add(scene, "a", "p0", "p1", "p2", "p3")
    gang(scene, "g", 3, label="a")
    scene.run(batch=100, until_s=10)
    assert "cpu 4 of maximum 4 is used; it asks for 3" in writes(scene, "g-1")[-1]
    put(scene, Queue("a", maximum=cpus(2)))
    scene.run(until_s=5)
    assert "which never fits" in writes(scene, "g-1")[-1]


def test_a_unit_that_is_not_held_any_more_is_told_no_more() -> None:
    scene = held()
    put(scene, Queue("a", maximum=cpus(7)))
    scene.run(batch=100, until_s=REPEAT_S * 3)
    assert len(writes(scene, "big")) == 1
    assert ("uid-big") in dict(scene.bindings)


def consistent(scene: Scene, name: str) -> tuple[str, str, str]:
    told = [tell.status for tell in scene.of(TellQueue) if tell.queue.name == name][-1]
    (one,) = (condition for condition in told.conditions if condition.type == "Consistent")
    return one.status, one.reason, one.message


def test_a_limit_of_a_resource_that_no_node_has_is_told_until_it_is_corrected() -> None:
    scene = scene_with(Queue("a", maximum={"cpus": 4}, borrowing={"vendor.example/x": 1}), nodes=1)
    scene.run(until_s=5)
    unknown = "no node has this resource, so it limits nothing;"
    text = f"spec.maximum[cpus]: {unknown} did you mean cpu?; spec.borrowingLimit[vendor.example/x]: {unknown} "
    text += "correct the name, or add nodes that have it"
    assert consistent(scene, "a") == ("False", "UnknownResource", text)
    put(scene, Queue("a", maximum=cpus(4)))
    scene.run(until_s=10)
    assert consistent(scene, "a") == ("True", "NothingToCorrect", "")


def test_a_limit_of_what_is_lent_is_no_mistake_while_nothing_is() -> None:
    scene = scene_with(Queue("a", maximum={"kubernetes.io/batch-cpu": 4000}))
    scene.run(until_s=10)
    assert consistent(scene, "a")[0] == "True"


def test_a_limit_of_what_is_lent_under_another_domain_is_told() -> None:
    limits = {"kuberntes.io/batch-cpu": 3000, "kubernetes.io/batch-memory": 5}
    scene = scene_with(Queue("a", maximum=limits))
    scene.add_node(make_node("lends").allocatable(**{"kubernetes.io/batch-cpu": "8000"}).node())
    scene.run(until_s=10)
    status, reason, text = consistent(scene, "a")
    assert (status, reason) == ("False", "UnknownResource")
    assert "spec.maximum[kuberntes.io/batch-cpu]" in text
    assert "did you mean kubernetes.io/batch-cpu?" in text
    assert "batch-memory" not in text


def test_while_there_is_no_node_no_resource_is_called_unknown() -> None:
    scene = scene_with(Queue("a", maximum=cpus(4)), nodes=0)
    scene.run(until_s=5)
    assert consistent(scene, "a")[0] == "True"
