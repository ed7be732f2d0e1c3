"""Medians of round trips to what users name."""

from __future__ import annotations

import math
from random import Random

from shared.agent.target_times import FORGET_FAILURES, TargetTimes
from shared.wire.readings import ProbeTarget, TargetLatency

SHOP = ProbeTarget("shop", "shop.example", 443, 1000)


def test_a_median_with_its_spread_and_no_slow_answer_alone() -> None:
    times = TargetTimes(Random(1))
    times.follow([SHOP], 0.0)
    for took_ms in (10, 12, 11, 900, 10):
        times.answered("shop", took_ms / 1000)
    assert times.told() == [TargetLatency("shop", 11_000, 1_000, 5, 0)]


def test_three_answers_after_a_change_the_median_has_moved() -> None:
    times = TargetTimes(Random(1))
    times.follow([SHOP], 0.0)
    for took_ms in (10, 10, 10, 10, 10, 80, 80, 80):
        times.answered("shop", took_ms / 1000)
    assert times.told()[0].median_us == 80_000


def test_a_target_that_answers_nobody_any_more_loses_its_median() -> None:
    times = TargetTimes(Random(1))
    times.follow([SHOP], 0.0)
    times.answered("shop", 0.010)
    for number in range(FORGET_FAILURES):
        assert times.told()[0].samples == 1, number
        times.failed("shop")
    assert times.told() == [TargetLatency("shop", 0, 0, 0, FORGET_FAILURES)]


def test_what_cannot_be_is_left_out_and_unknown_names_change_nothing() -> None:
    times = TargetTimes(Random(1))
    times.follow([SHOP], 0.0)
    for took_s in (0.0, -1.0, 1e9):
        times.answered("shop", took_s)
    times.answered("other", 0.01)
    times.failed("other")
    assert times.told()[0].samples == 0
    assert not math.isnan(times.told()[0].median_us)


def test_each_target_is_tried_as_often_as_it_says() -> None:
    times = TargetTimes(Random(1))
    times.follow([SHOP, ProbeTarget("slow", "slow.example", 80, 10_000)], 0.0)
    tried = [target.name for step in range(2000) for target in times.due(step / 100)]
    assert 17 <= tried.count("shop") <= 23
    assert tried.count("slow") in (2, 3)


def test_a_target_that_leads_elsewhere_begins_anew() -> None:
    times = TargetTimes(Random(1))
    times.follow([SHOP], 0.0)
    times.answered("shop", 0.010)
    times.follow([ProbeTarget("shop", "elsewhere.example", 443, 1000)], 5.0)
    assert times.told()[0].samples == 0
    times.follow([], 6.0)
    assert (times.told(), times.next_s()) == ([], None)
