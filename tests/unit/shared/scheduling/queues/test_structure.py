"""What is wrong with a tree is told by queue, and all else goes on."""

from __future__ import annotations

import pytest

from shared.model.units.queue import UnitOrder
from tests.unit.shared.scheduling.queues.queue_trees import World, queue


def reasons(world: World, name: str) -> list[str]:
    return [reason for reason, _ in world.tree.structure.warnings.get(name, [])]


def goes(world: World, label: str) -> bool:
    [key] = world.wait(label, cpu=1)
    went = key in world.all()
    world.tree.remove(key)
    return went


def test_a_loop_is_told_on_each_queue_of_it_and_others_go_on():
    world = World(queue("a", "b"), queue("b", "a"), queue("below", "a"), queue("fine"), cpu=10)
    assert "a -> b -> a is a loop" in world.problem("a")
    assert "b -> a -> b is a loop" in world.problem("b")
    assert not goes(world, "a")
    assert not goes(world, "below")
    assert goes(world, "fine")


def test_a_queue_that_is_its_own_parent_is_a_loop():
    assert "a -> a is a loop" in World(queue("a", "a")).problem("a")


def test_a_loop_that_is_undone_is_forgotten():
    world = World(queue("a", "b"), queue("b", "a"), cpu=10)
    assert not goes(world, "a")
    world.tree.put_queue(queue("b"))
    assert goes(world, "a")


def test_a_parent_that_is_not_there_is_told_and_may_come_later():
    world = World(queue("a", "late"), cpu=10)
    assert world.problem("a") == "spec.parent: there is no Queue late; create it or correct the field"
    assert not goes(world, "a")
    world.tree.put_queue(queue("late"))
    assert goes(world, "a")


def test_a_tree_deeper_than_four_is_told_from_the_fifth_level_on():
    names = ["one", "two", "three", "four", "five", "six"]
    chain = [queue(name, parent) for name, parent in zip(names, ["", *names], strict=False)]
    world = World(*chain, cpu=10)
    assert world.problem("four") == ""
    assert "level 5, the deepest is 4" in world.problem("five")
    assert "level 6" in world.problem("six")
    assert goes(world, "four")
    assert not goes(world, "five")
    world.run("six", cpu=1)
    assert world.used("four")["cpu"] == 2


def test_children_that_are_promised_more_than_their_parent_has():
    world = World(
        queue("top", guaranteed={"cpu": 10_000}), queue("a", "top", guaranteed={"cpu": 6_000}),
        queue("b", "top", guaranteed={"cpu": 5_000}), cpu=100,
    )  # fmt: skip
    assert reasons(world, "top") == ["PromisesTooMuch"]
    assert world.tree.structure.warnings["top"][0][1] == (
        "spec.guaranteed[cpu]: a, b are guaranteed 11 together, the queue itself 10; "
        "guarantee the queue more, or them less"
    )
    assert goes(world, "a")


def test_one_child_that_is_promised_more_than_its_parent_has():
    world = World(queue("top"), queue("a", "top", guaranteed={"cpu": 2_000}), cpu=100)
    assert world.tree.structure.warnings["top"][0][1].startswith("spec.guaranteed[cpu]: a is guaranteed 2, the queue")


def test_a_namespace_bound_to_two_queues_belongs_to_the_first_by_name():
    world = World(queue("b", namespaces=("team",)), queue("a", namespaces=("team",)), cpu=10)
    assert reasons(world, "b") == ["NamespaceBoundTwice"]
    world.wait("", namespace="team", cpu=1)
    assert world.tree.front().line.name == "a"


def test_a_label_to_a_queue_that_is_not_there_holds_back_that_unit_only():
    world = World(queue("a"), cpu=10)
    [key] = world.wait("typo", cpu=1)
    assert goes(world, "a")
    assert world.tree.held(key).text() == (
        "queue typo: there is no Queue of this name; create it, or correct the label conclave.io/queue"
    )
    world.tree.put_queue(queue("typo"))
    assert world.next() == key


def test_a_label_wins_over_the_namespace():
    world = World(queue("a", namespaces=("team",)), queue("b"), cpu=10)
    world.wait("b", namespace="team", cpu=1)
    assert world.tree.front().line.name == "b"


def test_units_and_pods_of_a_namespace_move_with_its_binding():
    world = World(queue("a", namespaces=("team",)), queue("b"), cpu=10)
    world.run("", namespace="team", cpu=3)
    [key] = world.wait("", namespace="team", cpu=1)
    world.tree.put_queue(queue("a"))
    assert world.tree.units[key].line.name == ""
    assert world.used("a") == {}
    world.tree.put_queue(queue("b", namespaces=("team",)))
    assert world.tree.units[key].line.name == "b"
    assert world.used("b") == {"cpu": 3}
    assert list(world.tree.validate()) == []


def test_what_is_reserved_in_one_queue_is_not_in_the_one_that_its_namespace_goes_to():
    world = World(queue("a", namespaces=("ns",)), queue("b", maximum={"cpu": 1}), cpu=10)
    [key] = world.wait("", cpu=4)
    world.tree.reserve(world.tree.units[key])
    world.tree.due[key] = None
    world.tree.put_queue(queue("a"))
    world.tree.put_queue(queue("b", maximum={"cpu": 1}, namespaces=("ns",)))
    assert world.next() == ""
    assert world.used("b") == {}
    assert not world.tree.due


def test_a_deleted_queue_counts_until_its_pods_end_and_its_units_are_told():
    world = World(queue("top", maximum={"cpu": 4}), queue("a", "top"), queue("b", "top"), cpu=10)
    [pod] = world.run("a", cpu=4)
    [mine] = world.wait("a", cpu=1)
    [other] = world.wait("b", cpu=1)
    world.tree.drop_queue("a")
    assert world.next() == ""
    assert "the Queue was deleted; its pods count until they end" in world.tree.held(mine).text()
    assert world.used("top") == {"cpu": 4}
    world.tree.release(pod)
    assert world.next() == other
    world.tree.remove(mine)
    assert "a" not in world.tree.structure.nodes


def test_a_deleted_queue_that_comes_back_goes_on():
    world = World(queue("a", maximum={"cpu": 4}), cpu=10)
    world.run("a", cpu=3)
    [key] = world.wait("a", cpu=1)
    world.tree.drop_queue("a")
    assert world.next() == ""
    world.tree.put_queue(queue("a", maximum={"cpu": 4}))
    assert world.next() == key
    assert world.used("a") == {"cpu": 4}


def test_queues_that_cannot_be_read_hold_their_units_only():
    world = World(queue("a", problem="spec.weight: 0 must be above 0"), queue("b"), cpu=10)
    [key] = world.wait("a", cpu=1)
    assert goes(world, "b")
    assert world.tree.held(key).text() == "queue a: spec.weight: 0 must be above 0"


@pytest.mark.parametrize("order", UnitOrder)
def test_a_problem_that_is_mended_lets_go(order):
    world = World(queue("a", problem="bad", order=order), cpu=10)
    [key] = world.wait("a", cpu=1)
    assert world.next() == ""
    world.tree.put_queue(queue("a", order=order))
    assert world.next() == key
