"""What was chosen as victims is asked once more of the moment, and looking for them is work in parts."""

from __future__ import annotations

from typing import Any

from shared.scheduling.parts import in_one_go
from shared.scheduling.queues.nodes import Charge, WaitingUnit
from shared.scheduling.queues.reclaim import lowered
from shared.scheduling.queues.reclaim.search import search, still_owed
from shared.scheduling.queues.reclaim.victims import PART, WEIGHED, Stock
from tests.unit.shared.scheduling.queues.queue_trees import Pool, World, ask, queue


def chosen(**more: Any) -> tuple[World, WaitingUnit, tuple[Charge, ...]]:
    world = World(queue("a", guaranteed={"cpu": 4}, reclaim=True), queue("b"), cpu=8)
    world.run("b", 8, cpu=1, **more)
    [key] = world.wait("a", cpu=1)
    found = ask(world, key)
    assert len(found.victims) == 1
    assert still_owed(world.tree, world.tree.units[key], found.victims)
    return world, world.tree.units[key], found.victims


def test_a_gang_that_lost_others_meanwhile_spares_nobody():
    world, unit, victims = chosen(unit="g", least=7)
    [other, *_] = [uid for uid in world.tree.charges if uid != victims[0].uid]
    world.tree.release(other)
    assert not still_owed(world.tree, unit, victims)


def test_who_has_gone_or_leaves_or_opted_out_meanwhile_is_chosen_no_more():
    for change in ("gone", "leaves", "opted out"):
        world, unit, [victim] = chosen()
        match change:
            case "gone":
                world.tree.release(victim.uid)
            case "leaves":
                world.tree.leave(victim.uid)
            case _:
                victim.evictable = False
        assert not still_owed(world.tree, unit, [victim]), change


def test_what_is_not_owed_any_more_is_left():
    world, unit, victims = chosen()
    for uid in [uid for uid in world.tree.charges if uid != victims[0].uid]:
        world.tree.leave(uid)
    world.tree.put_queue(queue("b", guaranteed={"cpu": 4}))
    assert not still_owed(world.tree, unit, victims)


def test_passing_over_is_work_in_parts_too():
    world = World(queue("a", guaranteed={"gpu": 4}, maximum={"gpu": 4}, reclaim=True), queue("b"), cpu=10_000, gpu=4)
    world.run("b", 2 * PART, cpu=1)
    world.run("b", 4, cpu=1, gpu=1, priority=1)
    [key] = world.wait("a", gpu=2)
    room = Pool(world.tree, world.tree.units[key].amounts)
    steps = search(world.tree, world.tree.units[key], 1e6, waited_s=1e9, room=room)
    work = list(steps)
    assert max(work) <= WEIGHED * PART
    assert sum(work) >= WEIGHED * (4 * PART + 4)
    fallen = list(lowered.over_limit(world.tree, "b", Stock(world.tree, 1e6)))
    assert fallen == []
    world.tree.put_queue(queue("b", maximum={"gpu": 2}, reclaim=True))
    fallen = list(lowered.over_limit(world.tree, "b", Stock(world.tree, 1e6)))
    assert max(fallen) <= WEIGHED * PART
    assert sum(fallen) >= WEIGHED * (4 * PART + 4)


def test_who_was_passed_over_and_has_gone_since_does_not_go_along_with_its_gang():
    world = World(queue("b", maximum={"gpu": 2}, reclaim=True), cpu=10, gpu=4)
    gpus = world.run("b", 4, cpu=1, gpu=1, unit="g", least=4)
    [launcher] = world.run("b", cpu=1, unit="g", least=4, since=9.0)
    steps = lowered.over_limit(world.tree, "b", Stock(world.tree, 1e6))
    passing = 0
    while passing < 2:  # all that were put in order in parts, and the launcher
        passing += next(steps) == WEIGHED
        if passing:
            world.tree.release(launcher)
            break
    assert set(in_one_go(steps).uids) == set(gpus)
