"""Medians of round trips to what users name."""

from __future__ import annotations

import math
from random import Random
from statistics import fmean, pstdev

import pytest

from shared.agent import target_times
from shared.agent.target_times import FORGET_FAILURES, SAMPLES, TargetTimes
from shared.wire.readings import LATENCY_STALE_S, ProbeTarget, TargetLatency

SHOP = ProbeTarget("shop", "shop.example", 443, 1000)


def test_a_median_with_its_spread_and_no_slow_answer_alone() -> None:
    times = TargetTimes(Random(1))
    times.follow([SHOP], 0.0)
    for took_ms in (10, 12, 11, 900, 10):
        times.answered("shop", took_ms / 1000, 0.0)
    assert times.told(0.0) == [TargetLatency("shop", 11_000, 1_000, 5, 0)]


def test_three_answers_after_a_change_the_median_has_moved() -> None:
    times = TargetTimes(Random(1))
    times.follow([SHOP], 0.0)
    for took_ms in (10, 10, 10, 10, 10, 80, 80, 80):
        times.answered("shop", took_ms / 1000, 0.0)
    assert times.told(0.0)[0].median_us == 80_000


def noisy(rng: Random, level_us: float, count: int) -> list[float]:
    """Seconds of so many tries, each 10 % off."""
    return [max(0.1, rng.gauss(1.0, 0.1)) * level_us / 1e6 for _ in range(count)]


def tried(tries: list[float]) -> TargetTimes:
    times = TargetTimes(Random(1))
    times.follow([SHOP], 0.0)
    for took_s in tries:
        times.answered("shop", took_s, 0.0)
    return times


def test_while_nothing_changes_more_tries_tell_more() -> None:
    long, short = [], []
    for seed in range(200):
        tries = noisy(Random(seed), 20_000, 30)
        long.append(tried(tries).told(0.0)[0].median_us)
        short.append(tried(tries[-SAMPLES:]).told(0.0)[0].median_us)
    assert pstdev(long) < 0.7 * pstdev(short)


@pytest.mark.parametrize("after_us", [13_000, 30_000, 60_000])
def test_a_change_beyond_the_scatter_is_seen_as_soon_as_by_the_last_few_alone(after_us: int) -> None:
    def seen_after(tries: list[float], *, alone: bool) -> int:
        def beyond(count: int) -> bool:
            some = tries[: 30 + count]
            median_us = tried(some[-SAMPLES:] if alone else some).told(0.0)[0].median_us
            return abs(median_us - after_us) < abs(median_us - 20_000)

        return next(count for count in range(1, 21) if beyond(count))

    later = []
    for rng in map(Random, range(100)):
        tries = noisy(rng, 20_000, 30) + noisy(rng, after_us, 20)
        later.append(seen_after(tries, alone=False) - seen_after(tries, alone=True))
    assert fmean(later) < 0.1
    assert sum(more > 0 for more in later) <= 6


def test_without_its_check_against_shorter_windows_a_change_would_be_seen_late(monkeypatch) -> None:
    tries = [0.020] * 20 + [0.030] * 3
    assert tried(tries).told(0.0)[0].median_us == 30_000
    monkeypatch.setattr(target_times, "AGREE", math.inf)
    monkeypatch.setattr(target_times, "_left", lambda _: False)
    assert tried([0.020, 0.0201] * 10 + [0.030] * 3).told(0.0)[0].median_us < 21_000


def test_a_target_that_answers_nobody_any_more_loses_its_median() -> None:
    times = TargetTimes(Random(1))
    times.follow([SHOP], 0.0)
    times.answered("shop", 0.010, 0.0)
    for number in range(FORGET_FAILURES):
        assert times.told(0.0)[0].samples == 1, number
        times.failed("shop")
    assert times.told(0.0) == [TargetLatency("shop", 0, 0, 0, FORGET_FAILURES)]


def test_what_cannot_be_is_left_out_and_unknown_names_change_nothing() -> None:
    times = TargetTimes(Random(1))
    times.follow([SHOP], 0.0)
    for took_s in (0.0, -1.0, 1e9):
        times.answered("shop", took_s, 0.0)
    times.answered("other", 0.01, 0.0)
    times.failed("other")
    assert times.told(0.0)[0].samples == 0
    assert not math.isnan(times.told(0.0)[0].median_us)


def test_each_target_is_tried_as_often_as_it_says() -> None:
    times = TargetTimes(Random(1))
    times.follow([SHOP, ProbeTarget("slow", "slow.example", 80, 10_000)], 0.0)
    tried = [target.name for step in range(2000) for target in times.due(step / 100)]
    assert 17 <= tried.count("shop") <= 23
    assert tried.count("slow") in (2, 3)


def test_targets_that_are_always_due_again_keep_nobody_waiting_where_few_are_tried_at_once() -> None:
    """Four that stand first and are silent for longer than their interval; the fifth comes in its turn."""
    times, now, tried = TargetTimes(Random(1)), 0.0, list[str]()
    silent = [ProbeTarget(f"silent-{number}", "192.0.2.1", 80, 1000) for number in range(4)]
    times.follow([*silent, SHOP], now)
    for _ in range(20):
        now += 3.0
        tried += [target.name for target in times.due(now, most=4)]
    assert len(tried) == 80
    assert min(tried.count(name) for name in {*tried, "shop"}) >= 15, "one after the other"


def test_a_target_that_leads_elsewhere_begins_anew() -> None:
    times = TargetTimes(Random(1))
    times.follow([SHOP], 0.0)
    times.answered("shop", 0.010, 0.0)
    times.follow([ProbeTarget("shop", "elsewhere.example", 443, 1000)], 5.0)
    assert times.told(0.0)[0].samples == 0
    times.follow([], 6.0)
    assert (times.told(0.0), times.next_s()) == ([], None)


@pytest.mark.parametrize("every_s", [60, 600, 3600])
def test_a_latency_is_told_while_the_last_answer_is_within_its_window(every_s: int) -> None:
    times = TargetTimes(Random(1))
    times.follow([ProbeTarget("shop", "shop.example", 443, every_s * 1000)], 0.0)
    for number in range(5):
        times.answered("shop", 0.010, number * every_s)
    last_s = 4.0 * every_s
    times.failed("shop")  # no answer renews nothing
    assert times.told(last_s + LATENCY_STALE_S - 1)[0].median_us == 10_000
    assert times.told(last_s + LATENCY_STALE_S) == [TargetLatency("shop", 0, 0, 0, 1)]
    times.answered("shop", 0.010, last_s + every_s)
    assert times.told(last_s + every_s)[0].samples
