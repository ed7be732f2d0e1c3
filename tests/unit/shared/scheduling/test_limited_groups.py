"""Groups with strict limits: a latency that fell names those that it comes within, and no others."""

from __future__ import annotations

from random import Random

from shared.model.constraints import PodClass
from shared.scheduling.limited_groups import LimitedGroups, farther


def limited(limit_us: int, target: str = "shop") -> PodClass:
    return PodClass(latency_hard_us=limit_us, latency_target=target, latency_strict=True)


def test_those_between_what_it_was_and_what_it_is_are_named_and_the_same_as_by_looking_at_each():
    rng, groups, there = Random(1), LimitedGroups(), dict[int, tuple[str, int]]()
    for number in range(400):
        if number % 3 == 2 and there:
            gone = rng.choice(sorted(there))
            target, limit_us = there.pop(gone)
            groups.discard(limited(limit_us, target), gone)
        target, limit_us = rng.choice(["shop", "south", ""]), rng.randrange(1, 60)
        groups.add(limited(limit_us, target), number)
        there[number] = (target, limit_us)
        before, now = rng.randrange(-1, 60), rng.randrange(-1, 60)
        expected = {
            one for one, (to, limit) in there.items() if to == target and 0 <= now <= limit and not 0 <= before <= limit
        }
        found = groups.within(target, before, now)
        assert set(found) == expected
        assert len(found) == len(expected)


def test_a_group_that_waits_no_longer_is_not_named_and_nothing_is_left_of_it():
    groups = LimitedGroups()
    for number in (1, 2):
        groups.add(limited(30), number)
    groups.discard(limited(30), 1)
    assert groups.within("shop", -1, 10) == [2]
    groups.discard(limited(30), 2)
    assert not groups


def test_a_wish_is_no_limit():
    groups = LimitedGroups()
    groups.add(PodClass(latency_hard_us=30, latency_target="shop"), 1)
    groups.discard(PodClass(latency_hard_us=30, latency_target="shop"), 1)
    assert not groups


def test_of_two_latencies_the_farther_lets_fewer_in_and_one_that_is_unknown_nobody():
    assert [farther(10, 20), farther(20, 10), farther(-1, 20), farther(20, -1)] == [20, 20, -1, -1]
