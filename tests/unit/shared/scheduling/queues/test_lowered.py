"""A limit that falls below the use: who gives back, and in which proportion."""

from __future__ import annotations

from collections import Counter

from shared.scheduling.queues.reclaim.search import Reclaim
from tests.unit.shared.scheduling.queues.queue_trees import World, over_limit, queue


def test_a_lowered_limit_takes_in_proportion_to_what_is_beyond_the_guarantee():
    queues = [
        queue("top", maximum={"cpu": 30}, reclaim=True),
        queue("a", "top"),
        queue("b", "top", guaranteed={"cpu": 4}),
    ]
    world = World(*queues, cpu=100)
    world.run("a", 20, cpu=1)
    world.run("b", 14, cpu=1)
    assert over_limit(world, "top").uids == over_limit(world, "top").uids
    assert Counter(p.label for p in over_limit(world, "top").victims) == {"a": 3, "b": 1}
    world.tree.put_queue(queue("top", maximum={"cpu": 19}, reclaim=True))
    assert Counter(p.label for p in over_limit(world, "top").victims) == {"a": 10, "b": 5}


def test_a_lowered_limit_takes_from_those_who_use_of_it():
    world = World(queue("a", maximum={"gpu": 2}, reclaim=True), cpu=10, gpu=8)
    world.run("a", cpu=1)
    gpus = world.run("a", 4, cpu=1, gpu=1, priority=1)
    found = over_limit(world, "a").uids
    assert len(found) == 2
    assert set(found) < set(gpus)


def test_a_lowered_limit_takes_nothing_where_reclaim_is_off_or_twice():
    world = World(queue("a", maximum={"cpu": 2}), cpu=100)
    world.run("a", 4, cpu=1)
    assert over_limit(world, "a") == Reclaim(reason="queue a: spec.reclaim is off")
    world.tree.put_queue(queue("a", maximum={"cpu": 2}, reclaim=True))
    found = over_limit(world, "a")
    assert len(found.uids) == 2
    for pod in found.victims:
        world.tree.leave(pod.uid)
    assert over_limit(world, "a").uids == []
