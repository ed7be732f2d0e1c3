"""Who is told that a limit holds it back: once, and again when that is not so any more."""

from __future__ import annotations

from shared.model.units.queue import UnitOrder
from tests.unit.shared.scheduling.queues.queue_trees import World, queue

REPEAT_S = 60.0


def told(world: World, now: float, most: int = 100) -> list[tuple[str, str]]:
    """Whom a look at that time has something to say to, and what."""
    world.tree.front()
    world.tree.look_again(100, now, REPEAT_S)
    return [(unit.key, blocked.text().partition(";")[0]) for unit, blocked in world.tree.notices.newly(most, now)]


def held(**fields: object) -> tuple[World, list[str], list[str]]:
    world = World(queue("a", maximum={"cpu": 4}, **fields), cpu=100)
    runs = world.run("a", 4, cpu=1)
    keys = world.wait("a", 2, cpu=3)
    assert [key for key, _ in told(world, 0.0)] == keys
    return world, keys, runs


def test_who_was_told_is_not_told_again_while_nothing_changes():
    world, _, _ = held()
    assert told(world, 1.0) == told(world, 1e6) == []


def test_other_figures_are_told_after_a_while():
    world, keys, [one, *_] = held()
    world.tree.release(one)
    assert told(world, REPEAT_S - 1) == []
    text = "queue a: cpu 0.003 of maximum 0.004 is used"
    assert told(world, REPEAT_S) == [(key, text) for key in keys]
    assert told(world, REPEAT_S + 1) == []


def test_another_reason_is_told_at_once():
    world, keys, _ = held()
    world.tree.put_queue(queue("a", maximum={"cpu": 2}))
    assert [key for key, _ in told(world, 1.0)] == keys  # it never fits any more
    world.tree.drop_queue("a")
    assert [text.partition(":")[2] for _, text in told(world, 2.0)] == [" the Queue was deleted"] * 2


def test_behind_the_first_of_a_fifo_queue_the_new_reason_is_told_too():
    world, keys, _ = held(order=UnitOrder.FIFO)
    [small] = world.wait("a", cpu=1)
    assert [key for key, _ in told(world, 1.0)] == [small]
    world.tree.put_queue(queue("a", maximum={"cpu": 2}, order=UnitOrder.FIFO))
    assert [key for key, _ in told(world, 2.0)] == [*keys, small]


def test_so_many_are_told_at_a_time():
    world = World(queue("a", maximum={"cpu": 0}), cpu=100)
    keys = world.wait("a", 10, cpu=1)
    found = [[key for key, _ in told(world, 0.0, most=4)] for _ in range(4)]
    assert found == [keys[:4], keys[4:8], keys[8:], []]


def test_a_look_asks_about_so_many_shapes_and_goes_on_with_the_others():
    world = World(queue("a", maximum={"cpu": 1000}), cpu=10_000)
    [run] = world.run("a", cpu=1000)
    keys = [world.wait("a", cpu=100 + number)[0] for number in range(10)]
    assert len(told(world, 0.0)) == 10
    world.tree.release(run)
    world.run("a", cpu=950)
    world.tree.front()
    again: list[str] = []
    for look in range(5):
        world.tree.look_again(2, REPEAT_S + look, REPEAT_S)
        again += [unit.key for unit, _ in world.tree.notices.newly(100, REPEAT_S + look)]
        assert len(again) == 2 * (look + 1)
    assert sorted(again) == sorted(keys)


def test_what_is_not_held_any_more_goes_though_nobody_noted_it():
    world, keys, runs = held()
    line = world.tree.structure.nodes["a"].own
    for uid in runs:  # as if an event had been missed
        del world.tree.charges[uid], line.charges[uid]
    for node in (line, *world.tree.structure.nodes.values()):
        node.used.clear()
        if node is not line:
            node.inner.clear()
    assert told(world, 1.0) == []
    assert world.next() == keys[0]
