"""Series are recorded from the ground truth on training seeds, and the suite measures a twin against that truth."""

from __future__ import annotations

from itertools import pairwise

import pytest

from lab.autoscaling.learned_twin import TWIN, accuracy, run_suite
from lab.autoscaling.recording import RECORDERS, Eager, Holder, Wanderer, ground_truth, record
from lab.autoscaling.suite import experiments_in
from lab.autoscaling.suite import run_suite as run_autoscaling
from lab.suites.suites import SuiteInput
from lab.worlds.services.hidden import Hidden
from lab.worlds.services.topology import default_topology
from shared.autoscaling.observation import Policy
from shared.errors import ConfigError
from tests.learned_twins import lesson, recorded, twin_that_says

TOPOLOGY = default_topology()
GOOD, BAD = (12, 12, 23, 0, 0, 12), (12, 12, 0, 23, 23, 12)


def given(*policies: str, seeds: tuple[int, ...] = (42, 43)) -> SuiteInput:
    return SuiteInput(seeds, "test", policies)


@pytest.fixture(scope="module")
def found():
    return lesson()


def test_an_episode_is_recorded_at_every_decision_and_at_its_end():
    series = recorded(("calm",), 300)
    assert [len(one.counts) for one in series.episodes] == [31, 31]
    assert {one.name for one in series.episodes} == {"demand-1000", "wanderer-1000"}


def test_seeds_that_are_reported_on_are_never_recorded():
    with pytest.raises(ConfigError, match="--seeds: 42 is kept for choosing and reporting"):
        list(record(TOPOLOGY, [42]))
    with pytest.raises(ConfigError, match="scenario: 'storm' is not known"):
        list(record(TOPOLOGY, [1000], scenarios=["storm"]))


def test_who_wanders_strays_from_the_rule_within_bounds():
    one = Wanderer()
    one.reset(1)
    world = ground_truth(TOPOLOGY, "calm", seconds=300).world(1)
    tried = set()
    while not world.over:
        seen = world.observe()
        wanted = one.decide(seen)
        assert all(seen.services[name].bounds.clamp(count) == count for name, count in wanted.items())
        tried.add(tuple(wanted.values()))
        world.apply(wanted)
        world.run(10)
    assert len(tried) > 5


def decided(policy: Policy, seed: int) -> list[dict[str, int]]:
    policy.reset(seed)
    world = ground_truth(TOPOLOGY, "failures", seconds=300).world(1)
    found = []
    while not world.over:
        found.append(dict(policy.decide(world.observe())))
        world.apply(found[-1])
        world.run(10)
    return found


def test_who_holds_keeps_at_least_half_of_the_most_and_changes_seldom():
    found = decided(Holder(), 1)
    for one in found:
        for name, count in one.items():
            most = TOPOLOGY.bounds(name).maximum
            assert most / 2 <= count <= most
    assert sum(before != after for before, after in pairwise(found)) < len(found) / 2


@pytest.mark.parametrize("kind", [Eager, Holder])
def test_who_records_is_another_for_each_seed_and_the_same_for_one(kind):
    assert decided(kind(), 1) == decided(kind(), 1)
    assert len({str(decided(kind(), seed)) for seed in (1, 2, 3, 4)}) > 1


def test_those_a_twin_is_tested_with_as_strangers_never_record():
    assert not {"hpa", "karma"} & set(RECORDERS)


def test_accuracy_is_the_smaller_over_the_larger():
    assert accuracy([80.0], [100.0]) == accuracy([100.0], [80.0]) == pytest.approx(80.0)
    assert accuracy([80.0, 100.0], [100.0, 80.0]) == pytest.approx(100.0)


def test_a_twin_that_promises_too_much_or_too_little_is_less_accurate_than_its_truth(found):
    optimist = twin_that_says(found, change=6, levels=GOOD)
    pessimist = twin_that_says(found, change=-6, levels=BAD)
    results = [run_suite(given("demand"), twin=one, scenario="mixed", seconds=400) for one in (optimist, pessimist)]
    high, low = (one.policies["demand"]["mixed/reward_twin"].mean for one in results)
    truths = [one.policies["demand"]["mixed/reward_truth"].values for one in results]
    assert truths[0] == truths[1]
    assert low < sum(truths[0]) / 2 < high
    assert [goal.met for goal in results[1].goals if goal.goal.startswith("mixed/gap")] == [False]
    assert {"one_step/arrivals", "twenty_steps/arrivals", "twenty_steps/looked_up %"} <= set(results[0].policies[TWIN])


def test_the_ground_truth_is_not_the_service_twin():
    assert ground_truth(TOPOLOGY, "mixed").hidden == Hidden()


def test_a_suite_without_a_twin_and_a_scenario_that_was_not_recorded_are_refused(found):
    with pytest.raises(ConfigError, match="--twin: the suite measures a learned twin"):
        run_suite(given("demand"))
    twin = twin_that_says(found, change=0, levels=GOOD)
    with pytest.raises(ConfigError, match="no series of 'ddos' were recorded"):
        run_suite(given("demand"), twin=twin, scenario="ddos")
    with pytest.raises(ConfigError, match="'nobody' is not compared here"):
        run_suite(given("nobody"), twin=twin)
    with pytest.raises(ConfigError, match="--intensity: a learned twin plays what was recorded"):
        experiments_in(twin, scenario="mixed", intensity=2.0)


def test_the_autoscaling_suite_plays_in_a_learned_twin(found):
    twin = twin_that_says(found, change=0, levels=GOOD)
    planned = experiments_in(twin, scenario="calm", intensity=None)
    result = run_autoscaling(given("demand"), planned=planned, seconds=100, twin=twin)
    assert set(result.policies) == {"demand", "hpa"}
    assert result.goals == ()
    assert any("learned twin of chained" in note for note in result.notes)
