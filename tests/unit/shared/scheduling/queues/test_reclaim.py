"""Who gives back what was borrowed: Kueue's rules, KAI's order preserved, and what users complained about."""

from __future__ import annotations

from collections import Counter

import pytest

from shared.model.units.queue import QueueStrategy, ReclaimUpTo
from shared.scheduling.queues.reclaim.search import Reclaim
from tests.unit.shared.scheduling.queues.queue_trees import World, ask, over_limit, queue

FAIR = {"reclaim": True, "reclaim_up_to": ReclaimUpTo.FAIR_SHARE}


def names(found: Reclaim) -> Counter[str]:
    return Counter(pod.label for pod in found.victims)


# --- S1: until the lender has what it is guaranteed -------------------------------------------------------------------


def test_what_was_borrowed_is_given_back():
    world = World(queue("a", guaranteed={"cpu": 6}, reclaim=True), queue("b", guaranteed={"cpu": 4}), cpu=10)
    world.run("b", 10, cpu=1)
    [key] = world.wait("a", cpu=3)
    assert names(ask(world, key)) == {"b": 3}


def test_no_more_is_given_back_than_was_borrowed():
    world = World(queue("a", guaranteed={"cpu": 6}, reclaim=True), queue("b", guaranteed={"cpu": 8}), cpu=10)
    world.run("b", 10, cpu=1)
    [key] = world.wait("a", cpu=3)
    assert ask(world, key).uids == []  # b has borrowed 2


def test_a_queue_takes_back_no_more_than_it_is_guaranteed():
    world = World(queue("a", guaranteed={"cpu": 4}, reclaim=True), queue("b"), cpu=10)
    world.run("a", 3, cpu=1)
    world.run("b", 7, cpu=1)
    [key] = world.wait("a", cpu=2)
    assert ask(world, key).uids == []


def test_reclaim_is_opt_in_and_waits_for_its_delay():
    world = World(queue("a", guaranteed={"cpu": 6}), queue("b"), cpu=10)
    world.run("b", 10, cpu=1)
    [key] = world.wait("a", cpu=3)
    assert ask(world, key) == Reclaim(reason="queue a: spec.reclaim is off")
    world.tree.put_queue(queue("a", guaranteed={"cpu": 6}, reclaim=True, reclaim_after_s=30.0))
    assert ask(world, key, waited_s=29.0) == Reclaim(reason="queue a: reclaims after 30 s")
    assert names(ask(world, key, waited_s=30.0)) == {"b": 3}


def test_pods_are_protected_until_their_queues_minimum_run_time():
    world = World(queue("a", guaranteed={"cpu": 6}, reclaim=True), queue("b", min_run_s=100.0), cpu=10)
    old = world.run("b", 2, cpu=1, since=0.0)
    world.run("b", 8, cpu=1, since=50.0)
    [key] = world.wait("a", cpu=2)
    assert sorted(ask(world, key, now=120.0).uids) == old


def test_queues_give_back_in_proportion_to_what_they_borrowed():
    world = World(queue("a", guaranteed={"cpu": 30}, reclaim=True), queue("b"), queue("c"), cpu=30)
    world.run("b", 20, cpu=1)
    world.run("c", 10, cpu=1)
    [key] = world.wait("a", cpu=15)
    assert names(ask(world, key)) == {"b": 10, "c": 5}


def test_the_lowest_priority_goes_first_then_the_newest():
    world = World(queue("a", guaranteed={"cpu": 6}, reclaim=True), queue("b"), cpu=4)
    world.run("b", cpu=1, priority=5, since=9.0)
    [old] = world.run("b", cpu=1, priority=1, since=1.0)
    [new] = world.run("b", cpu=1, priority=1, since=8.0)
    [low] = world.run("b", cpu=1, priority=0, since=2.0)
    [key] = world.wait("a", cpu=3)
    assert ask(world, key).uids == [low, new, old]


def test_members_that_a_gang_can_spare_go_first_and_one_gang_is_broken_before_a_second():
    world = World(queue("a", guaranteed={"cpu": 8}, reclaim=True), queue("b"), cpu=8)
    world.run("b", 4, cpu=1, unit="g1", least=3, since=1.0)
    world.run("b", 4, cpu=1, unit="g2", least=3, since=2.0)

    def gangs(asked: int) -> Counter[str]:
        [key] = world.wait("a", cpu=asked)
        found = Counter(pod.unit for pod in ask(world, key).victims)
        world.tree.remove(key)
        return found

    assert gangs(2) == {"g1": 1, "g2": 1}
    assert gangs(3) == {"g2": 4}  # one goes whole, then the other's surplus is not needed
    assert sorted(gangs(5).values()) == [1, 4]
    assert gangs(8) == {"g1": 4, "g2": 4}


def test_needless_victims_are_put_back():
    world = World(queue("a", guaranteed={"cpu": 6}, reclaim=True), queue("b"), cpu=6)
    world.run("b", cpu=1, priority=0)
    [large] = world.run("b", cpu=5, priority=1)
    [key] = world.wait("a", cpu=5)
    assert ask(world, key).uids == [large]


def test_a_pod_that_frees_nothing_of_what_is_short_keeps_nobody_behind_it():
    world = World(queue("a", guaranteed={"gpu": 4}, reclaim=True), queue("b"), cpu=10, gpu=4)
    world.run("b", cpu=1)
    world.run("b", 4, cpu=1, gpu=1, priority=1)
    [key] = world.wait("a", gpu=2)
    assert names(ask(world, key)) == {"b": 2}


def test_the_same_where_a_limit_is_what_is_short():
    world = World(
        queue("top", maximum={"gpu": 4}), queue("a", "top", guaranteed={"gpu": 4}, reclaim=True), queue("b", "top"),
        cpu=10, gpu=8,
    )  # fmt: skip
    world.run("b", cpu=1)
    gpus = world.run("b", 4, cpu=1, gpu=1, priority=1)
    [key] = world.wait("a", gpu=2)
    assert set(ask(world, key).uids) < set(gpus)


def test_of_a_gang_that_is_broken_nobody_is_left_who_was_passed_over():
    world = World(queue("a", guaranteed={"gpu": 4}, reclaim=True), queue("b"), cpu=10, gpu=4)
    gpus = world.run("b", 4, cpu=1, gpu=1, unit="g", least=4)
    [launcher] = world.run("b", cpu=1, unit="g", least=4, since=9.0)
    [key] = world.wait("a", gpu=2)
    assert set(ask(world, key).uids) == {launcher, *gpus}
    world.tree.put_queue(queue("b", maximum={"gpu": 2}, reclaim=True))
    assert set(over_limit(world, "b").uids) == {launcher, *gpus}


def test_s2a_passes_over_a_pod_that_is_too_large_and_takes_a_smaller_one():
    world = World(queue("a", **FAIR), queue("b"), cpu=12)
    world.run("a", cpu=3)
    world.run("b", cpu=6)
    [small] = world.run("b", cpu=3, priority=1)
    [key] = world.wait("a", cpu=3)
    assert ask(world, key).uids == [small]  # 9 - 6 < 3 + 3, 9 - 3 >= 3 + 3


def test_who_was_passed_over_may_go_once_those_nearer_have_given_back():
    # b owes top no GPUs while c, below it, uses so many that top would be beyond its guarantee
    world = World(
        queue("top", guaranteed={"cpu": 8, "gpu": 6}), queue("c", "top"), queue("b"),
        queue("a", "top", guaranteed={"cpu": 6, "gpu": 4}, reclaim=True), cpu=8, gpu=8,
    )  # fmt: skip
    world.run("c", 4, gpu=1)
    world.run("b", 4, gpu=1)
    world.run("b", 8, cpu=1, priority=1)
    [key] = world.wait("a", cpu=6, gpu=4)
    found = ask(world, key).victims
    assert Counter((pod.label, pod.priority) for pod in found) == {("b", 1): 6, ("b", 0): 2, ("c", 0): 2}


def test_what_opted_out_or_is_not_running_yet_is_no_victim():
    world = World(queue("a", guaranteed={"cpu": 6}, reclaim=True), queue("b"), cpu=4)
    world.run("b", cpu=1, evictable=False)
    world.run("b", cpu=1, since=None)
    free = world.run("b", 2, cpu=1)
    [key] = world.wait("a", cpu=2)
    assert sorted(ask(world, key).uids) == free


def test_the_guarantees_of_all_queues_on_the_way_count():
    # b is within its own guarantee, its parent is not: what the parent borrowed is its other child's
    queues = [
        queue("a", guaranteed={"cpu": 5}, reclaim=True), queue("top", guaranteed={"cpu": 5}),
        queue("b", "top", guaranteed={"cpu": 5}), queue("c", "top"),
    ]  # fmt: skip
    world = World(*queues, cpu=10)
    world.run("b", 5, cpu=1)
    world.run("c", 5, cpu=1)
    [key] = world.wait("a", cpu=4)
    assert names(ask(world, key)) == {"c": 4}


def test_nothing_is_evicted_where_there_is_room():
    world = World(queue("a", guaranteed={"cpu": 6}, reclaim=True), queue("b"), cpu=10)
    world.run("b", 5, cpu=1)
    [key] = world.wait("a", cpu=3)
    assert ask(world, key).uids == []


# --- S2: the shares of what was borrowed (Kueue KEP-1714) -------------------------------------------------------------


def fair_world(x: int, y: list[int], w: int, **more: object) -> tuple[World, str]:
    """a uses ``x`` and asks for ``w``, b has one pod of each size of ``y``; 12 can be lent."""
    world = World(
        queue("top", strategy=QueueStrategy.FAIR), queue("a", "top", **FAIR, **more), queue("b", "top"), cpu=12
    )
    if x:
        world.run("a", cpu=x)
    for number, size in enumerate(y):
        world.run("b", cpu=size, since=float(number))
    [key] = world.wait("a", cpu=w)
    return world, key


@pytest.mark.parametrize(
    ("x", "y", "w", "victims"),
    [
        (0, [3, 3, 3, 3], 3, 1),  # S2-a: 12 - 3 >= 0 + 3
        (3, [3, 3, 3], 3, 1),  # S2-a: 9 - 3 >= 3 + 3: equal is enough
        (6, [3, 3], 3, 0),  # neither: 6 - 3 < 9, and 6 is not above 9
        (4, [4, 4], 3, 1),  # S2-b: 8 - 4 < 4 + 3, but 8 > 7
        (6, [2, 4], 2, 0),  # S2-b: 6 is not above 8
    ],
)
def test_s2_compares_the_shares_before_and_after(x, y, w, victims):
    world, key = fair_world(x, y, w)
    assert len(ask(world, key).uids) == victims


def test_without_fair_share_only_the_guarantee_is_taken_back():
    world, key = fair_world(0, [3, 3, 3, 3], 3)
    world.tree.put_queue(queue("a", "top", reclaim=True))
    assert ask(world, key).uids == []


def test_a_weight_makes_the_same_use_a_smaller_share():
    world, key = fair_world(6, [3, 3], 3, weight=4)
    assert len(ask(world, key).uids) == 1


def test_the_worst_offender_gives_first():
    world = World(queue("top", strategy=QueueStrategy.FAIR), queue("a", "top", **FAIR), queue("b", "top"), queue("c",
                  "top"),
                  cpu=12)  # fmt: skip
    world.run("b", 4, cpu=1)
    world.run("c", 8, cpu=1)
    [key] = world.wait("a", cpu=2)
    assert names(ask(world, key)) == {"c": 2}


# --- it ends ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("facts", [{"guaranteed": {"cpu": 6}, "reclaim": True}, FAIR], ids=["S1", "S2"])
def test_no_infinite_preemption_cycle(facts):
    # Kueue: "not cause an infinite preemption cycle": each side asks again for what it lost
    world = World(queue("a", **facts), queue("b", **facts), cpu=12)
    for _ in range(4):
        world.run("b", cpu=3)
    world.wait("a", 4, cpu=3)
    moved = 0
    for _ in range(50):
        moves = 0
        for key in list(world.tree.units):
            unit = world.tree.units[key]
            found = ask(world, key)
            if not found.victims:
                continue
            for pod in found.victims:
                world.tree.release(pod.uid)
                world.wait(pod.label, **dict(pod.amounts))
            world.tree.take(unit)
            world.tree.charges[key].since = 0.0
            moves += 1
        moved += moves
        if not moves:
            break
    assert moves == 0
    assert moved == 2
    assert world.used("a") == world.used("b") == {"cpu": 6}


def test_order_is_preserved_after_reclaim():
    # KAI: whoever gave back does not stand before the one it gave back to
    world = World(queue("a", guaranteed={"cpu": 6}, reclaim=True), queue("b", guaranteed={"cpu": 6}), cpu=12)
    world.run("b", 12, cpu=1)
    [key] = world.wait("a", cpu=2)
    for pod in ask(world, key).victims:
        world.tree.release(pod.uid)
        world.wait("b", cpu=1)
    assert world.next() == key


# --- what users complained about --------------------------------------------------------------------------------------


def test_complaint_1_reclaim_starts_though_a_limit_refuses_the_unit_first():
    # volcano#4679: the parent is full of what the sibling borrowed; the limit is the parent's
    world = World(
        queue("top", maximum={"cpu": 10}, guaranteed={"cpu": 10}),
        queue("a", "top", guaranteed={"cpu": 5}, reclaim=True),
        queue("b", "top", guaranteed={"cpu": 5}), cpu=100,
    )  # fmt: skip
    world.run("b", 10, cpu=1)
    [key] = world.wait("a", cpu=5)
    assert world.next() == ""
    assert names(ask(world, key)) == {"b": 5}


def test_complaint_2_a_quota_with_a_dimension_missing_is_reclaimed_in_the_others():
    # volcano#4658: a names no cpu; its own use of cpu does not keep it from taking back its gpus
    world = World(queue("a", guaranteed={"gpu": 4}, reclaim=True), queue("b", guaranteed={"cpu": 50}), cpu=100, gpu=4)
    world.run("a", cpu=60)
    world.run("b", 4, cpu=1, gpu=1)
    [key] = world.wait("a", cpu=2, gpu=2)
    assert names(ask(world, key)) == {"b": 2}


def test_complaint_2_what_is_not_guaranteed_is_not_taken_back():
    world = World(queue("a", guaranteed={"gpu": 4}, reclaim=True), queue("b"), cpu=10, gpu=4)
    world.run("b", 10, cpu=1)
    [key] = world.wait("a", cpu=2)
    assert ask(world, key).uids == []


def test_complaint_3_a_protected_queue_does_not_end_the_search():
    # KAI#1750: c's pods are protected, b's are not
    world = World(queue("a", guaranteed={"cpu": 6}, reclaim=True), queue("b"), queue("c", min_run_s=1e9), cpu=10)
    world.run("b", 4, cpu=1)
    world.run("c", 6, cpu=1)
    [key] = world.wait("a", cpu=3)
    assert names(ask(world, key)) == {"b": 3}


def test_complaint_4_preemption_is_issued_exactly_once():
    # kueue#3779: the victims are on their way out, asking again evicts nobody else
    world = World(queue("a", guaranteed={"cpu": 6}, reclaim=True), queue("b"), cpu=10)
    world.run("b", 10, cpu=1)
    [key] = world.wait("a", cpu=3)
    for pod in ask(world, key).victims:
        world.tree.leave(pod.uid)
    assert ask(world, key) == Reclaim(reason="there is room for it without", fits=True)


def test_complaint_4_nobody_steals_quota_while_several_evictions_are_awaited():
    # kueue#13797: the unit counts from when it takes back, so what leaves early is not there for others
    world = World(
        queue("top", maximum={"cpu": 10}, guaranteed={"cpu": 10}),
        queue("a", "top", guaranteed={"cpu": 6}, reclaim=True),
        queue("b", "top"), queue("thief", "top", weight=100), cpu=100,
    )  # fmt: skip
    world.run("b", 10, cpu=1)
    [key] = world.wait("a", cpu=3)
    victims = ask(world, key).victims
    world.tree.take(world.tree.units[key])
    world.wait("thief", 3, cpu=1)
    for pod in victims:
        assert world.next() == ""
        world.tree.release(pod.uid)
    assert world.next() == ""
    assert world.used("top") == {"cpu": 10}


def test_complaint_13_contention_within_a_quota_goes_by_priority():
    # KAI#1833: the queue is at its maximum with its own pods
    world = World(queue("a", maximum={"cpu": 4}, preempts_within=True), cpu=100)
    [low] = world.run("a", cpu=2, priority=0)
    world.run("a", cpu=2, priority=5)
    [key] = world.wait("a", cpu=2, priority=5)
    assert ask(world, key).uids == [low]
    world.tree.put_queue(queue("a", maximum={"cpu": 4}))
    assert ask(world, key).uids == []


def test_complaint_13_pods_of_the_same_priority_stay():
    world = World(queue("a", maximum={"cpu": 4}, preempts_within=True), cpu=100)
    world.run("a", 2, cpu=2, priority=5)
    [key] = world.wait("a", cpu=2, priority=5)
    assert ask(world, key).uids == []
