"""Which unit goes next."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from random import Random

import pytest

from shared.model.units.queue import QueueStrategy, UnitOrder
from shared.scheduling.queues import nodes
from shared.scheduling.queues.share import ShareClaim, dominant_share, fair_shares, with_half
from tests.unit.shared.scheduling.queues.queue_trees import World, queue


def test_progressive_filling_of_the_drf_papers_example():
    # 9 CPUs, 18 GB; A: <1 CPU, 4 GB>, B: <3 CPUs, 1 GB>: 3 tasks of A and 2 of B, in the order of table 1
    world = World(queue("a"), queue("b"), cpu=9, memory=18)
    world.wait("b", 9, cpu=3, memory=1)
    world.wait("a", 9, cpu=1, memory=4)
    assert world.fill() == ["b", "a", "a", "b", "a"]


def test_weights_divide_the_dominant_share():
    # A counts double: it may have twice the dominant share
    world = World(queue("a", weight=2), queue("b"), cpu=12)
    world.wait("a", 20, cpu=1)
    world.wait("b", 20, cpu=1)
    assert Counter(world.fill()) == {"a": 8, "b": 4}


def test_without_queues_the_order_is_priority_then_arrival():
    world = World(cpu=10)
    first, second = world.wait("", 2, cpu=1)
    urgent = world.wait("", cpu=1, priority=5)
    assert world.all() == [*urgent, first, second]


def test_units_without_a_queue_share_as_a_child_of_weight_one():
    world = World(queue("a"), cpu=10)
    world.wait("a", 10, cpu=1)
    world.wait("", 10, cpu=1)
    assert Counter(world.fill()) == {"a": 5, "": 5}


def test_units_of_a_queue_with_children_share_as_a_child_of_weight_one():
    world = World(queue("top"), queue("a", "top"), cpu=10)
    world.wait("top", 10, cpu=1)
    world.wait("a", 10, cpu=1)
    assert Counter(world.fill()) == {"a": 5, "top": 5}


def test_shares_hold_at_each_level_of_the_tree():
    world = World(queue("x", weight=3), queue("y"), queue("x1", "x"), queue("x2", "x", weight=2), cpu=40)
    for name in ("x1", "x2", "y"):
        world.wait(name, 40, cpu=1)
    assert Counter(world.fill()) == {"x1": 10, "x2": 20, "y": 10}


@pytest.mark.parametrize("strategy", QueueStrategy)
def test_what_is_guaranteed_comes_first(strategy):
    world = World(queue("a", guaranteed={"cpu": 6}), queue("b"), queue("c"), cpu=10)
    world.tree.strategy = strategy
    world.wait("b", 10, cpu=1)
    world.wait("c", 10, cpu=1)
    world.wait("a", 10, cpu=1)
    assert world.fill()[:6] == ["a"] * 6


def test_the_rest_beyond_the_guarantee_goes_by_weight():
    queues = [
        queue("top", strategy=QueueStrategy.FAIR),
        queue("a", "top", weight=1, guaranteed={"cpu": 2}),
        queue("b", "top", weight=3),
    ]
    world = World(*queues, cpu=10)
    world.wait("a", 10, cpu=1)
    world.wait("b", 10, cpu=1)
    assert Counter(world.fill()) == {"a": 4, "b": 6}


def test_ties_go_by_arrival():
    world = World(queue("b"), queue("a"), cpu=4)
    keys = [*world.wait("b", cpu=1), *world.wait("a", cpu=1)]
    assert world.all() == keys


def test_fifo_does_not_let_a_priority_pass():
    world = World(queue("a", order=UnitOrder.FIFO), cpu=4)
    keys = [*world.wait("a", cpu=1), *world.wait("a", cpu=1, priority=9)]
    assert world.all() == keys


def test_an_order_that_is_changed_holds_for_those_that_wait():
    world = World(queue("a", order=UnitOrder.FIFO), cpu=4)
    keys = [*world.wait("a", cpu=1), *world.wait("a", cpu=1, priority=9)]
    assert world.tree.front().key == keys[0]
    world.tree.put_queue(queue("a", order=UnitOrder.PRIORITY))
    assert world.all() == keys[::-1]


def test_a_weight_that_is_changed_holds_at_once():
    world = World(queue("a"), queue("b"), cpu=20)
    world.wait("a", 20, cpu=1)
    world.wait("b", 20, cpu=1)
    assert Counter(world.fill(10)) == {"a": 5, "b": 5}
    world.tree.put_queue(queue("b", weight=3))
    assert Counter(world.fill()) == {"b": 10}  # 15 of 20 are its share now


def test_what_ends_lowers_the_share():
    world = World(queue("a"), queue("b"), cpu=100)
    world.wait("b", 1, cpu=1)
    [running] = world.run("a", cpu=4)
    world.wait("a", 1, cpu=1)
    assert world.tree.front().label == "b"
    world.next()
    world.tree.release(running)
    assert world.tree.front().label == "a"


@pytest.mark.parametrize("seed", range(5))
def test_shares_are_within_two_percent_of_the_exact_allocation_after_1000_units(seed):
    rng = Random(seed)
    names = [f"q{number}" for number in range(8)]
    weights = {name: Fraction(rng.randint(1, 9), rng.randint(1, 3)) for name in names}
    world = World(*(queue(name, weight=str(float(weights[name]))) for name in names), cpu=1000, memory=10**6)
    weights = {name: world.tree.queues[name].weight for name in names}
    asked = {name: rng.randint(1, 1000) for name in names}
    for name in names:
        world.wait(name, asked[name], cpu=1)
    given = Counter(world.fill(1000))
    exact = fair_shares(min(1000, sum(asked.values())), {n: ShareClaim(0, weights[n], asked[n]) for n in names})
    for name in names:
        assert abs(given[name] - exact[name]) <= 20


@pytest.mark.parametrize("seed", range(5))
def test_with_several_resources_the_order_is_that_of_the_paper_counting_half_of_the_next_task(seed):
    # the paper's algorithm: the lowest dominant share goes, as long as its next task fits
    rng = Random(seed)
    names = ["a", "b", "c", "d"]
    demand = {name: {"cpu": rng.randint(1, 9), "memory": rng.randint(1, 9)} for name in names}
    weight = {name: Fraction(rng.randint(1, 4)) for name in names}
    world = World(*(queue(name, weight=weight[name]) for name in names), cpu=3000, memory=3000)
    for name in names:
        world.wait(name, 100, **demand[name])
    used = {name: {"cpu": 0, "memory": 0} for name in names}
    expected = []
    for _ in range(60):
        counts = {n: {r: with_half(used[n][r], demand[n][r]) for r in used[n]} for n in names}
        name = min(names, key=lambda n: (dominant_share(counts[n], world.tree.capacity, weight[n]), names.index(n)))
        expected.append(name)
        for resource, amount in demand[name].items():
            used[name][resource] += amount
    assert world.fill(60)[:60] == expected


def held_over_time(weight: int, places: int = 256) -> float:
    """The part of the places that the first of two queues has on average: of gangs of 8 to 64 that run and end at
    random, the next in turn goes as soon as there is room for it."""
    rng, running = Random(0), dict[str, tuple[str, int]]()
    world = World(queue("a", weight=weight), queue("b"), cpu=places)
    for name in ("a", "b"):
        for _ in range(2000):
            world.wait(name, 1, cpu=rng.randint(8, 64))
    integral = {"a": 0, "b": 0}
    for _ in range(2000):
        while (front := world.tree.front()) is not None:
            size = dict(front.amounts)["cpu"]
            if size > places - sum(used for _, used in running.values()):
                break
            world.tree.take(front)
            running[front.key] = front.label, size
        for name, size in running.values():
            integral[name] += size
        ended = rng.choice(list(running))
        del running[ended]
        world.tree.release(ended)
    return integral["a"] / sum(integral.values())


@pytest.mark.parametrize("weight", [1, 2, 4])
def test_large_units_favour_no_weight(weight):
    assert abs(held_over_time(weight) - weight / (weight + 1)) <= 0.02


def test_ablation_by_what_is_used_before_a_unit_large_ones_favour_the_smaller_weight(monkeypatch):
    monkeypatch.setattr(nodes, "with_half", lambda used, _: 2 * used)
    assert held_over_time(2) < 2 / 3 - 0.02


@pytest.mark.parametrize("strategy", QueueStrategy)
def test_every_unit_that_fits_gets_to_the_front(strategy):
    # the others are served all the time: each that goes is followed by a new one
    world = World(queue("a", weight=10), queue("b", weight=5), queue("poor", weight="0.1"), cpu=10**6)
    world.tree.strategy = strategy
    world.wait("a", 3, cpu=1)
    world.wait("b", 3, cpu=1)
    [mine] = world.wait("poor", cpu=1)
    world.run("poor", cpu=3)
    for _ in range(100_000):
        key = world.tree.front().key
        if key == mine:
            break
        world.tree.take(world.tree.units[key])
        world.wait(key[0], cpu=1)
    else:
        pytest.fail("it never got there")


def test_past_use_counts_where_a_half_life_is_given():
    world = World(queue("a", half_life_s=100.0), queue("b", half_life_s=100.0), cpu=100)
    [pod] = world.run("a", cpu=50)
    world.tree.advance(0.0)
    world.tree.advance(1000.0)
    world.tree.release(pod)
    world.wait("a", 10, cpu=1)
    world.wait("b", 10, cpu=1)
    assert {key[0] for key in world.all()[:10]} == {"b"}


def test_past_use_does_not_count_without():
    world = World(queue("a"), queue("b"), cpu=100)
    [pod] = world.run("a", cpu=50)
    world.tree.advance(0.0)
    world.tree.advance(1000.0)
    world.tree.release(pod)
    world.wait("a", 1, cpu=1)
    world.wait("b", 1, cpu=1)
    assert world.next().startswith("a")
