"""A candidate goes back before it has cost more than 5 % of a window; a good window lets it go on."""

from __future__ import annotations

from math import inf
from random import Random

import pytest

from shared.decide.judging import MOST_WORSE, WINDOW_S, Gap, Judge, SlidingWindow
from shared.decide.rollout import Rollout
from shared.decide.stages import Stage
from shared.jobs.domain import JOBS

SHADOW = Rollout(stage=Stage.SHADOW, candidate="marginal")


def run(judge: Judge, more: float, *, seconds: float, sd: float = 0.0, every_s: float = 30.0) -> tuple[Rollout, float]:
    """(the rollout at the end or when it went back, how long it took)."""
    rollout, now = SHADOW, 0.0
    while now <= seconds and rollout.on:
        found = judge.look(rollout, now, Gap(10.0, more, sd), "")
        rollout = found if found is not None else rollout
        now += every_s
    return rollout, now


def test_one_that_is_as_good_stays_and_its_windows_are_good():
    rollout, _ = run(Judge(JOBS), 0.0, seconds=3 * WINDOW_S)
    assert (rollout.stage, rollout.good, rollout.ratio) == (Stage.SHADOW, 3, 1.0)


@pytest.mark.parametrize("more", [-0.6, -2.0, -10.0])
def test_one_that_is_worse_goes_back_by_itself(more: float):
    rollout, _ = run(Judge(JOBS), more, seconds=3 * WINDOW_S)
    assert rollout.stage is Stage.NONE
    assert "worse than its teacher" in rollout.reason
    assert rollout.candidate == "marginal"


def test_the_worse_it_is_the_sooner_it_goes():
    took = [run(Judge(JOBS), more, seconds=9e9)[1] for more in (-0.6, -2.0, -10.0)]
    assert took == sorted(took, reverse=True)
    assert took[-1] <= MOST_WORSE * WINDOW_S + 3 * 30.0


def cost(judge: Judge, seed: int, every_s: float = 30.0) -> float:
    """The most that a candidate of changing quality has cost over any window, as a share of its teacher's worth."""
    rng, rollout, short = Random(seed), SHADOW, []
    for step in range(400):
        more = rng.choice([0.5, 0.2, -0.2, -1.0, -8.0])
        found = judge.look(rollout, step * every_s, Gap(10.0, more, 0.0), "")
        rollout = found if found is not None else rollout
        if not rollout.on:
            break
        short.append(-more)
    width = int(WINDOW_S / every_s)
    return max(sum(short[at : at + width]) for at in range(max(1, len(short) - width + 1))) / (10.0 * width)


def test_over_no_window_has_it_cost_more_than_five_percent_and_one_decision():
    one_decision = 8.0 * 30.0 / (10.0 * WINDOW_S)
    assert max(cost(Judge(JOBS), seed) for seed in range(40)) <= MOST_WORSE + one_decision + 1e-9


def test_with_the_safeguard_switched_off_it_costs_more():
    assert max(cost(Judge(JOBS, most_worse=inf), seed) for seed in range(40)) > 2 * MOST_WORSE


def test_a_window_whose_speeds_are_not_known_well_is_not_good():
    rollout, _ = run(Judge(JOBS), 0.1, seconds=WINDOW_S, sd=1.0)
    assert (rollout.stage, rollout.good) == (Stage.SHADOW, 0)


def test_what_the_speeds_are_wrong_by_adds_up_over_a_window():
    window = SlidingWindow()
    for step in range(61):
        window.add(step * 30.0, Gap(10.0, 0.0, 1.0))
    assert window.ratio == (1.0, pytest.approx(0.1))


def test_one_that_rests_for_its_failures_goes_back():
    found = Judge(JOBS).look(SHADOW, 0.0, None, "marginal: ZeroDivisionError: no jobs")
    assert found is not None
    assert (found.stage, found.reason) == (Stage.NONE, "it failed: marginal: ZeroDivisionError: no jobs")


def test_who_did_not_decide_for_hours_was_not_worse_for_hours():
    judge = Judge(JOBS)
    assert judge.look(SHADOW, 0.0, Gap(10.0, -5.0, 0.0), "") is None
    window = judge.window
    window.add(7200.0, Gap(10.0, 0.0, 0.0))
    assert window.short <= 0.05


def test_where_decisions_are_far_apart_each_comparison_counts_until_the_next():
    near, far = Judge(JOBS), Judge(JOBS, most_gap_s=1200.0)
    for judge in (near, far):
        judge.look(SHADOW, 0.0, Gap(10.0, -2.0, 0.0), "")
        judge.window.add(600.0, Gap(10.0, -2.0, 0.0))
    assert far.window.short == 5 * near.window.short
