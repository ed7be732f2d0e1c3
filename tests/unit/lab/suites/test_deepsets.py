"""The deepsets suite promises what targets.md T2 asks, refuses what it does not compare, and can fail."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lab.evaluation.results import from_json, silent
from lab.suites.deepsets import SIZES, experiments, run_suite
from lab.suites.suites import SuiteInput, find_suite
from shared.errors import ConfigError
from shared.policy.deepsets.features import FEATURE_COUNT, FEATURES
from shared.policy.networks import mlp_shapes
from shared.policy.weights import Card, WeightsFile
from tests.elsewhere import elsewhere


def untrained(name: str) -> WeightsFile:
    rng = np.random.default_rng(3)
    shapes = mlp_shapes([FEATURE_COUNT, 8, 1])
    arrays = {key: rng.normal(size=shape).astype(np.float32) for key, shape in shapes.items()}
    return WeightsFile(arrays, Card(policy=name, version=1, features=list(FEATURES)), name)


def test_every_objective_is_promised_on_three_to_a_thousand_nodes():
    promised = {(e.objective, len(e.scenario.sizes)) for e in experiments() if e.promised}
    sized = {(objective, nodes) for objective in ("ee", "lb", "el") for nodes in SIZES}
    assert promised == sized | {("ee", 20), ("lb", 12)}
    assert any(e.promised and e.scenario.filled for e in experiments())


def test_test_1_is_500_waves_of_30_pods_on_three_nodes():
    scenario = next(e.scenario for e in experiments() if e.name == "test1-3")
    assert (scenario.pods, scenario.decisions, scenario.pod_cpu_millis) == (30, 15_000, 250)


def test_late_and_noisy_columns_are_told_without_a_promise():
    told = {e.name for e in experiments() if not e.promised}
    assert {"lag-1", "lag-10", "noise-10%"} <= told


def test_an_untrained_network_meets_no_promise_but_never_chooses_an_infeasible_node():
    weights = {name: untrained(name) for name in ("ee", "lb", "el")}
    result = run_suite(SuiteInput((42, 43), "", weights=weights), planned=experiments((3,), share=0.01))
    met = {goal.goal: goal.met for goal in result.goals}
    assert met["infeasible"]
    assert not met["lb/test2-3/balanced"]
    assert not met["el/test2-3/within_soft"]
    assert {"kube-default", "most-allocated", "greedy-latency", "oracle"} <= result.policies.keys()
    assert from_json(result.to_json()) == result


def test_a_part_of_the_experiments_gives_the_figures_that_the_whole_gives():
    asked = SuiteInput((42, 43), "", ("ee",), weights={"ee": untrained("ee")})
    planned = experiments((3,), share=0.01, objectives=["ee"])
    whole = run_suite(asked, planned=planned)
    found = run_suite(asked, planned=[replace(e, deciders=("ee", "oracle")) for e in planned[:2]])
    assert {name.split("/")[1] for name in found.policies["ee"]} == {"test1-3", "test2-3"}
    assert found.policies.keys() == {"ee", "oracle"}
    for name, metric in found.policies["ee"].items():
        assert metric == whole.policies["ee"][name]
    assert found.goals == whole.goals


def test_a_policy_that_is_not_compared_is_refused_by_name():
    with pytest.raises(ConfigError, match="'frag' is not compared here"):
        run_suite(SuiteInput((42,), "", policies=("frag",)), silent)


def test_the_suite_is_found_by_its_name():
    assert find_suite("deepsets") is run_suite


def test_runs_that_are_played_elsewhere_give_the_same_figures():
    asked = SuiteInput((42, 43), "", ("el",), weights={"el": untrained("el")})
    planned = experiments((3,), share=0.01, objectives=["el"])[:1]
    here, there = (run_suite(one, planned=planned) for one in (asked, replace(asked, each=elsewhere)))
    assert here.to_json() == there.to_json()


def test_energy_is_told_in_joules_for_ee_alone():
    weights = {name: untrained(name) for name in ("ee", "lb")}
    planned = [one for one in experiments((3,), share=0.01, objectives=["ee", "lb"]) if one.name == "test2-3"]
    found = run_suite(SuiteInput((42, 43), "", ("ee", "lb"), weights=weights), planned=planned).policies
    packed, spread = (found[name]["ee/test2-3/joules"].mean for name in ("most-allocated", "kube-default"))
    assert packed < 0.7 * spread
    assert not [name for name in found["lb"] if "joules" in name]
