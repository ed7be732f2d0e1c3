"""What limits hold back, and what lets it go again."""

from __future__ import annotations

from random import Random

import pytest

from shared.model.units.queue import UnitOrder
from tests.unit.shared.scheduling.queues.queue_trees import World, queue


def why(world: World, key: str) -> str:
    blocked = world.tree.held(key)
    return blocked.text() if blocked is not None else ""


def test_a_maximum_holds_back_what_exceeds_it_and_says_so():
    world = World(queue("a", maximum={"cpu": 40_000}), cpu=100_000)
    world.run("a", 4, cpu=10_000)
    [key] = world.wait("a", cpu=2_000)
    assert world.next() == ""
    assert why(world, key) == (
        "queue a: cpu 40 of maximum 40 is used; it asks for 2 and waits until pods there end or the maximum is raised"
    )


def test_what_is_held_back_goes_when_a_pod_of_the_queue_ends():
    world = World(queue("a", maximum={"cpu": 4}), cpu=100)
    first, _ = world.run("a", 2, cpu=2)
    [key] = world.wait("a", cpu=1)
    assert world.next() == ""
    world.tree.release(first)
    assert world.next() == key


def test_what_is_held_back_goes_when_the_limit_is_raised():
    world = World(queue("a", maximum={"cpu": 4}), cpu=100)
    world.run("a", 2, cpu=2)
    [key] = world.wait("a", cpu=1)
    assert world.next() == ""
    world.tree.put_queue(queue("a", maximum={"cpu": 5}))
    assert world.next() == key


def test_a_unit_that_never_fits_is_told_so():
    world = World(queue("a", maximum={"cpu": 4}), cpu=100)
    [key] = world.wait("a", cpu=5)
    assert world.next() == ""
    assert "which never fits" in why(world, key)


def test_a_parents_maximum_holds_for_all_below_and_wakes_all_below():
    world = World(queue("top", maximum={"cpu": 4}), queue("a", "top"), queue("b", "top"), cpu=100)
    [first] = world.run("a", cpu=4)
    keys = [*world.wait("a", cpu=1), *world.wait("b", cpu=1)]
    assert world.next() == ""
    assert world.tree.held(keys[1]).queue == "top"
    world.tree.release(first)
    assert sorted(world.all()) == sorted(keys)


def test_a_borrowing_limit_ends_what_is_borrowed():
    world = World(queue("a", guaranteed={"cpu": 3}, borrowing={"cpu": 2}), cpu=100)
    world.wait("a", 9, cpu=1)
    assert len(world.all()) == 5


def test_what_a_queue_does_not_lend_nobody_takes():
    world = World(queue("a", guaranteed={"cpu": 6}, lending={"cpu": 2}), queue("b"), cpu=10)
    world.wait("b", 10, cpu=1)
    [last] = world.wait("b", cpu=2)
    assert len(world.all()) == 6
    assert why(world, last) == (
        "cluster: cpu 0.006 of 0.01 is used and 0.004 is kept for queues that do not lend it; "
        "it asks for 0.002 and waits until pods there end or nodes are added"
    )
    keys = world.wait("a", 4, cpu=1)
    assert world.all()[:4] == keys  # from then on nothing is kept: the nodes decide


def test_a_limit_on_what_is_kept_by_others_goes_with_what_they_keep():
    # a uses what it keeps: whether b fits is the nodes' to say then (it may evict by priority)
    world = World(queue("a", guaranteed={"cpu": 6}, lending={"cpu": 0}), queue("b"), cpu=10)
    [key] = world.wait("b", cpu=5)
    assert world.next() == ""
    world.run("a", cpu=6)
    assert world.next() == key


def test_a_queue_that_frees_what_it_keeps_wakes_its_own_unit():
    world = World(
        queue("top", maximum={"cpu": 10}), queue("a", "top", guaranteed={"cpu": 6}, lending={"cpu": 0}),
        queue("b", "top"), cpu=100,
    )  # fmt: skip
    world.run("b", cpu=4)
    [pod] = world.run("a", cpu=6)
    [key] = world.wait("a", cpu=1)
    assert world.next() == ""
    world.tree.release(pod)
    assert world.next() == key


def test_a_resource_that_no_limit_names_is_not_limited():
    # complaint 2 (volcano#4658): a quota with a dimension missing
    world = World(queue("a", maximum={"gpu": 2}), cpu=100, gpu=8)
    world.wait("a", 3, cpu=10, gpu=1)
    assert len(world.all()) == 2
    world.wait("a", 5, cpu=10)
    assert len(world.all()) == 5


def test_a_guarantee_with_a_dimension_missing_is_a_guarantee_of_the_others():
    world = World(queue("a", guaranteed={"gpu": 4}), queue("b"), cpu=100, gpu=8)
    world.run("a", cpu=90)  # of what is not named it may use any amount
    world.wait("b", 4, cpu=1, gpu=1)
    world.wait("a", 4, cpu=1, gpu=1)
    assert [key[0] for key in world.all()[:4]] == ["a"] * 4


def test_what_fits_behind_the_first_goes():
    world = World(queue("a", maximum={"cpu": 4}), cpu=100)
    world.wait("a", cpu=5, priority=9)
    [small] = world.wait("a", cpu=1)
    assert world.all() == [small]


def test_strict_fifo_waits_behind_the_first_and_blocks_no_other_queue():
    # as Kueue says: "StrictFIFO doesn't block other CQ"
    world = World(queue("a", maximum={"cpu": 4}, order=UnitOrder.FIFO), queue("b"), cpu=100)
    [big] = world.wait("a", cpu=5)
    [small] = world.wait("a", cpu=1)
    [other] = world.wait("b", cpu=1)
    assert world.all() == [other]
    assert why(world, small) != ""
    assert why(world, big) != ""
    world.tree.put_queue(queue("a", maximum={"cpu": 6}, order=UnitOrder.FIFO))
    assert world.all() == [big, small]


def test_who_waits_behind_the_first_of_a_fifo_queue_is_not_told_that_it_asks_for_what_the_first_does():
    world = World(queue("a", maximum={"cpu": 4000}, order=UnitOrder.FIFO), cpu=100_000)
    world.run("a", cpu=2500)
    [big] = world.wait("a", cpu=3250)
    [small] = world.wait("a", cpu=250)
    assert world.all() == []
    assert "used; it asks for 3.25 and waits" in why(world, big)
    assert "used; it goes after the first of its queue (order FIFO), which asks for 3.25 and waits" in why(world, small)


def test_a_pod_that_stays_terminating_blocks_only_what_needs_its_room():
    # complaint 5 (kueue#6143): it counts until it has ended; what fits goes past it, and so do other queues
    world = World(queue("a", maximum={"cpu": 4}), queue("b"), cpu=100)
    [pod] = world.run("a", cpu=3, leaving=True)
    [big] = world.wait("a", cpu=2)
    [small] = world.wait("a", cpu=1)
    [other] = world.wait("b", cpu=1)
    assert sorted(world.all()) == sorted([small, other])
    world.tree.release(pod)
    assert world.all() == [big]


def test_capability_counts_whatever_else_limits_the_namespace():
    # complaint 16 (volcano#4492): a limit holds for pods however they came to count
    world = World(queue("a", namespaces=("team",), maximum={"cpu": 4}), cpu=100)
    world.run("", cpu=4, namespace="team")
    [key] = world.wait("", cpu=1, namespace="team")
    assert world.all() == []
    assert world.tree.held(key).queue == "a"


def test_a_gang_counts_as_a_whole_or_not():
    world = World(queue("a", maximum={"cpu": 10}), cpu=100)
    world.run("a", cpu=4)
    world.wait("a", cpu=8)
    assert world.all() == []
    assert world.used("a") == {"cpu": 4}


def test_a_pod_counts_once_however_often_it_is_told():
    world = World(queue("a"), cpu=100)
    world.run("a", cpu=4)
    pod = next(iter(world.tree.charges.values()))
    world.tree.charge(pod)
    assert world.used("a") == {"cpu": 4}
    world.tree.release(pod.uid)
    world.tree.release(pod.uid)
    assert world.used("a") == {}


def test_one_check_holds_back_all_alike():
    world = World(queue("a", maximum={"cpu": 1}), cpu=100)
    world.run("a", cpu=1)
    world.wait("a", 1000, cpu=1)
    assert world.tree.front() is None
    assert len(world.tree.lines["a"].held) == 1


def test_more_is_said_where_a_question_ended_early():
    world = World(queue("a", maximum={"cpu": 0}), cpu=100)
    for amount in range(1, 600):
        world.wait("a", cpu=amount)
    [key] = world.wait("a", memory=1)
    assert world.tree.front() is None
    assert world.tree.more
    assert world.next() == key


def test_nobody_is_told_to_ask_again_while_a_due_unit_goes_first_and_then_of_what_was_left():
    """Who asks again each turn would spin for as long as nobody takes the due unit."""
    world = World(queue("a", maximum={"cpu": 0}), queue("b"), cpu=100)
    for amount in range(1, 600):
        world.wait("a", cpu=amount)
    [key] = world.wait("a", memory=1)
    [due] = world.wait("b", cpu=1)
    tree = world.tree
    tree.reserve(tree.units[due])
    assert tree.front() is None
    assert tree.more
    tree.due[due] = None
    unit = tree.front()
    assert (unit, tree.more) == (tree.reserved[due], False)
    tree.take(unit)
    assert tree.more
    assert world.next() == key


@pytest.mark.parametrize("limit", [1, 100])
def test_units_that_come_and_go_behind_one_that_waits_leave_nothing(limit):
    world = World(queue("a", maximum={"cpu": limit}), cpu=100)
    if limit == 1:
        world.run("a", cpu=1)
    [first] = world.wait("a", cpu=1)
    for _ in range(2000):
        world.tree.front()
        [other] = world.wait("a", cpu=1)
        world.tree.remove(other)
    line = world.tree.lines["a"]
    [shape] = line.shapes.values()
    assert len(line._ready) < 100
    assert len(shape._heap) < 100
    world.tree.release(*world.tree.charges)
    assert world.next() == first


@pytest.mark.parametrize("seed", range(20))
def test_no_order_of_events_exceeds_a_limit_or_forgets_a_unit(seed):
    # a naive judge: after everything has settled, nothing that waits would fit
    rng = Random(seed)
    queues = [
        queue("top", guaranteed={"cpu": 30}, maximum={"cpu": 40}, borrowing={"gpu": 6}),
        queue("a", "top", guaranteed={"cpu": 10, "gpu": 2}, lending={"cpu": 3}, maximum={"gpu": 5}),
        queue("b", "top", guaranteed={"cpu": 10}, borrowing={"cpu": 7}, order=UnitOrder.FIFO),
        queue("c", guaranteed={"cpu": 20}, lending={"cpu": 5}),
        queue("d", maximum={"cpu": 25, "gpu": 3}),
    ]
    world = World(*queues, cpu=80, gpu=10)
    names = ["a", "b", "c", "d", "top", ""]
    for _ in range(150):
        match rng.randrange(5):
            case 0 | 1:
                world.wait(rng.choice(names), priority=rng.randrange(3), cpu=rng.randint(1, 9))
            case 2:
                world.wait(rng.choice(names), cpu=rng.randint(1, 3), gpu=rng.randint(1, 3))
            case 3 if world.tree.charges:
                world.tree.release(rng.choice(sorted(world.tree.charges)))
            case _ if world.tree.units:
                world.tree.remove(rng.choice(sorted(world.tree.units)))
        world.all()
        nodes = world.tree.structure.nodes
        for node in nodes.values():
            for name, limit in node.limits.items():
                if node.parent is not None:
                    assert node.used.get(name, 0) <= limit.amount
        for unit in world.tree.units.values():
            line = unit.line
            head = line.fifo_head()
            if line.order is UnitOrder.FIFO:
                assert head is not None
                assert world.tree.blocked(line, head.amounts) is not None
            else:
                assert world.tree.blocked(line, unit.amounts) is not None
        assert list(world.tree.validate()) == []


def test_a_release_that_nobody_hears_of_would_be_seen():
    # the safeguard of the test above: without the wake-up a unit that fits stays behind
    world = World(queue("top", maximum={"cpu": 4}), queue("a", "top"), queue("b", "top"), cpu=100)
    [pod] = world.run("a", cpu=4)
    [key] = world.wait("b", cpu=1)
    assert world.next() == ""
    world.tree.structure.nodes["top"].lines.clear()
    world.tree.release(pod)
    assert world.next() == ""
    assert world.tree.blocked(world.tree.units[key].line, (("cpu", 1),)) is None
