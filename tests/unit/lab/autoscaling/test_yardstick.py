"""The yard-stick: rules are calibrated on training days alone, alike each time; no run that was played exceeds
the world without trouble."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lab.autoscaling.episode import CALM, Setup, play
from lab.autoscaling.policies import make
from lab.autoscaling.yardstick.bound import Clairvoyant, needed, untroubled
from lab.autoscaling.yardstick.search import (
    RuleTrial,
    at_hours,
    at_violations,
    front,
    made,
    reported_half,
    searched,
    training_half,
)
from lab.autoscaling.yardstick.suite import BOUND, CalibratedLoad, run_suite, workloads
from lab.suites.suites import SuiteInput
from lab.worlds.services.loads import PATTERNS, parse_trace, patterned
from lab.worlds.services.topology import default_topology
from shared.errors import ConfigError

SHORT = Setup(default_topology(), "mixed", 0.8, seconds=300)
FOUND = [RuleTrial({"n": n}, *pair) for n, pair in enumerate([(5.0, 6.0), (9.0, 3.0), (9.5, 4.0), (1.0, 8.0)])]


def test_of_what_was_tried_only_what_nothing_else_betters_is_kept():
    assert [one.settings["n"] for one in front(FOUND)] == [1, 0, 3]


def test_equal_hours_and_equal_violations_choose_two_settings_of_one_front():
    kept = front(FOUND)
    assert at_hours(kept, 7.0).trial.violations == 5.0
    assert at_violations(kept, 7.0).trial.replica_hours == 6.0
    assert not at_hours(kept, 2.0).met
    assert not at_violations(kept, 0.5).met
    assert at_violations(kept, 0.5).trial.violations == 1.0  # the nearest that there is


def test_the_same_days_and_budget_choose_the_same_settings():
    first, again = (searched("hpa", SHORT, days=(1000,), trials=3) for _ in range(2))
    assert first == again
    for one in first:
        made("hpa", one.settings)


@pytest.mark.parametrize("rule", ["hpa", "keda", "predictive", "demand", "clairvoyant"])
def test_every_rule_takes_what_is_proposed_for_it(rule):
    assert searched(rule, replace(SHORT, seconds=60), days=(1000,), trials=3)


@pytest.mark.parametrize("load", PATTERNS)
def test_nobody_exceeds_the_bound_the_clairvoyant_neither(load):
    setup = replace(SHORT, load=load)
    bound = untroubled(setup, 42)
    for policy in (make("demand"), make("karma"), Clairvoyant()):
        found = play(setup, policy, 42).figures
        for figure in ("success", "latency_compliance", "availability"):
            assert found[figure] <= bound[figure] + 1e-6, (policy.name, figure)


def test_the_bounds_hours_are_what_the_load_takes_exactly():
    setup = Setup(default_topology(), CALM, seconds=60)
    world = setup.world(1)
    exact = needed(world)
    rates = np.asarray(world.rates)
    assert exact[:, 0] == pytest.approx(rates / 100.0)  # the entry answers 100 a second by itself
    assert exact[:, 3] == pytest.approx(2.0 * rates / 300.0)  # d is called by b and by c


def test_who_is_no_clairvoyant_is_shown_nothing_of_the_world():
    assert not hasattr(make("demand"), "see")
    seer = Clairvoyant()
    seer.reset(0)
    assert seer.decide(SHORT.world(1).observe()) == {}


@pytest.mark.parametrize("load", PATTERNS)
def test_a_pattern_is_a_function_of_its_seed_and_lies_within_its_shares(load):
    rates = patterned(load, 100.0, 1800, 7)
    assert (rates == patterned(load, 100.0, 1800, 7)).all()
    assert rates.shape == (1800,)
    assert (rates >= 0).all()
    assert np.percentile(rates, 95) <= 80.0 + 1e-6


def test_training_days_and_reported_days_share_no_part_of_a_trace():
    trace = parse_trace("\n".join(str(n) for n in range(1000)))
    setup = replace(SHORT, trace=trace)
    assert training_half(setup).trace.rates.max() < reported_half(setup).trace.rates.min()
    assert training_half(SHORT) == SHORT


def test_the_suite_compares_each_rule_with_the_reference_on_the_same_seeds():
    plan = [CalibratedLoad("drawn/mixed", SHORT)]
    result = run_suite(SuiteInput((42, 43), "c"), planned=plan, trials=2, days=(1000,), rules=("hpa",))
    assert set(result.policies) == {"demand", "karma", "hpa@hours", "hpa@violations", BOUND}
    assert {(one.a, one.b) for one in result.paired} == {
        (n, "karma") for n in ("demand", "hpa@hours", "hpa@violations")
    }
    assert any("hpa@hours" in note for note in result.notes)


def test_a_seed_that_is_a_training_day_and_an_unknown_load_are_refused():
    with pytest.raises(ConfigError, match="--seeds: 1000 is a training day"):
        run_suite(SuiteInput((1000,), "c"), planned=[])
    with pytest.raises(ConfigError, match="--scenario: 'storm' is not known"):
        workloads({}, scenario="storm")
    with pytest.raises(ConfigError, match="load: 'square' is not known"):
        patterned("square", 1.0, 10, 1)
