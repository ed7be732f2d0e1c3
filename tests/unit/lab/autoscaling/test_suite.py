"""The suite: the same seeds for everybody, a policy's nonsense refused, a user's files read."""

from __future__ import annotations

import csv
import io

import pytest

from lab.autoscaling.calibration import calibrate
from lab.autoscaling.episode import ATTACKER, STEPS_HEADER, Setup, StepsFile, play
from lab.autoscaling.policies import make, names
from lab.autoscaling.suite import TOPOLOGY, TRACE, ScalingExperiment, experiments, run_suite
from lab.suites.suites import SuiteInput
from lab.worlds.services.scenarios import SCENARIOS, calibration
from lab.worlds.services.topology import default_topology
from shared.errors import ConfigError

SHORT = [ScalingExperiment("mixed", "mixed", 1.0)]
TINY = """
nodes: [{name: n, cpu: "4", memory: 8Gi}]
entries: {web: 1}
services:
  web: {throughput: 100, replicas: {minimum: 1, maximum: 5, start: 2}, requests: {cpu: 500m, memory: 1Gi}}
"""


class Wants:
    """Wants the same at each decision."""

    name = "wants"

    def __init__(self, decision):
        self.decision = decision

    def reset(self, seed):
        pass

    def decide(self, seen):
        return self.decision


def test_policies_meet_the_same_load_and_are_compared_with_hpa():
    given = SuiteInput((100, 101), "conclave evaluate", ("demand",))
    result = run_suite(given, planned=SHORT, seconds=300)
    assert list(result.policies) == ["demand", "hpa"]
    assert {paired.b for paired in result.paired} == {"hpa"}
    assert set(result.policies["demand"]) >= {"mixed/success", "mixed/replica_hours", "mixed/reward"}
    again = run_suite(given, planned=SHORT, seconds=300)
    assert again.policies == result.policies


def test_every_decision_is_a_row_and_what_is_missing_is_empty():
    steps = StepsFile()
    run_suite(SuiteInput((100,), "c", ("hpa",)), planned=SHORT, seconds=60, steps=steps)
    rows = list(csv.DictReader(io.StringIO(steps.content().decode())))
    assert list(rows[0]) == list(STEPS_HEADER)
    assert len(rows) == 6 * 4
    assert rows[0]["arrivals"] == ""  # nothing was scraped before the first decision
    assert float(rows[-1]["arrivals"]) > 0


def test_a_trace_and_a_topology_of_ones_own_are_played_calm_and_mixed():
    planned = experiments(own_files=True)
    assert [one.name for one in planned] == ["calm", "mixed"]
    files = {TRACE: "\n".join(str(10 + number % 7) for number in range(400)), TOPOLOGY: TINY}
    result = run_suite(SuiteInput((100,), "c", ("hpa",), files), planned=planned, seconds=120)
    assert result.policies["hpa"]["calm/success"].mean > 90
    assert not result.goals
    with pytest.raises(ConfigError, match="--trace, line 2, column 1"):
        run_suite(SuiteInput((100,), "c", ("hpa",), {TRACE: "1\nx\n"}), planned=planned)
    with pytest.raises(ConfigError, match="--topology: services"):
        run_suite(SuiteInput((100,), "c", ("hpa",), {TOPOLOGY: TINY.replace("100", ".inf")}), planned=planned)


def test_what_many_agents_gain_over_one_is_a_goal_where_both_are_played():
    planned, seeds = [ScalingExperiment("mixed", "mixed", 1.0)], (100,)
    both = run_suite(SuiteInput(seeds, "c", ("karma", "karma-single", "dqn")), planned=planned, seconds=300)
    (goal,) = [goal for goal in both.goals if "single" in goal.goal]
    success = {name: metrics["mixed/success"].mean for name, metrics in both.policies.items()}
    assert goal.value == pytest.approx(success["karma"] - max(success["karma-single"], success["dqn"]))
    alone = run_suite(SuiteInput(seeds, "c", ("karma",)), planned=planned, seconds=60)
    assert not [goal for goal in alone.goals if "single" in goal.goal]


def test_who_is_trained_for_a_graph_of_another_size_is_left_out_and_named():
    planned = experiments(own_files=True)[:1]
    result = run_suite(SuiteInput((100,), "c", (), {TOPOLOGY: TINY}), planned=planned, seconds=60)
    assert {"karma-single", "dqn"}.isdisjoint(result.policies)
    assert {"karma", "aware", "demand", "hpa"} <= set(result.policies)
    assert [note for note in result.notes if note.startswith("dqn is left out")]
    with pytest.raises(ConfigError, match="policy dqn: its weights are for 4 services, the graph has 1"):
        run_suite(SuiteInput((100,), "c", ("dqn",), {TOPOLOGY: TINY}), planned=planned, seconds=60)


def test_without_files_the_five_scenarios_the_attacker_and_the_sweeps_are_planned():
    planned = [one.name for one in experiments(own_files=False)]
    assert planned[:6] == [*SCENARIOS, ATTACKER]
    assert {"ddos-8x", "failures-20%"} <= set(planned)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        pytest.param({"scenario": "flood"}, "--scenario: 'flood' is not known", id="scenario"),
        pytest.param({"intensity": 2.0}, "--intensity: it is a scenario's strength", id="alone"),
        pytest.param({"scenario": "failures", "intensity": 2.0}, "out of range for failures", id="range"),
        pytest.param({"scenario": "ddos", "intensity": float("nan")}, "out of range for ddos", id="nan"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(flags, told):
    with pytest.raises(ConfigError, match=told):
        experiments(own_files=False, **flags)


def test_an_unknown_policy_is_named_with_those_there_are():
    with pytest.raises(ConfigError, match=r"'best' is not compared here; choose from hpa, hpa-default"):
        make("best")
    assert set(names()) >= {"hpa", "hpa-default", "keda", "predictive", "demand"}


@pytest.mark.parametrize(
    ("decision", "told"),
    [({"x": 1}, "'x', which is not in the graph"), ({"a": 1.5}, "1.5 replicas"), ({"a": True}, "True replicas")],
)
def test_a_policys_nonsense_is_refused_by_its_name(decision, told):
    with pytest.raises(ConfigError, match=f"policy wants: .*{told}"):
        play(Setup(default_topology(), "calm", seconds=30), Wants(decision), 1)


def test_bounds_hold_whatever_a_policy_wants():
    rows = []
    play(Setup(default_topology(), "calm", seconds=60), Wants({"a": 99, "b": -5}), 1, note=rows.append)
    asked = {row[1]: row[3] for row in rows[-4:]}
    assert (asked["a"], asked["b"]) == (5, 1)


def test_what_is_frozen_names_its_command_and_is_near_what_was_wanted():
    frozen = calibration()
    assert frozen.command == "python -m lab.autoscaling.calibration"
    assert abs(frozen.success - 65.0) <= 3.0
    assert make("hpa").name == "hpa"


def test_calibration_finds_a_strength_where_the_best_hpa_answers_65_percent(monkeypatch):
    tried = []

    def success(topology, settings, intensity, seeds):
        tried.append(intensity)
        return 100.0 - 40.0 * intensity - abs(settings["target"] - 50) / 10

    monkeypatch.setattr("lab.autoscaling.calibration.success", success)
    found = calibrate(default_topology(), seeds=(1,))
    assert found.success == pytest.approx(65.0, abs=0.5)
    assert found.hpa["target"] == 50
    assert found.intensity == pytest.approx(0.875, abs=0.02)
