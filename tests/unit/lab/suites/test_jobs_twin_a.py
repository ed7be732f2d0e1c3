"""The suite jobs-twin-a: its worlds, its goals, and weights of a user's own."""

from __future__ import annotations

import numpy as np
import pytest

from lab.evaluation.results import ResultMetric
from lab.suites.jobs_twin_a import KPI, goals_of, run_suite
from lab.suites.suites import SuiteInput
from shared.errors import ConfigError
from shared.jobs.policies.learned.sets import shapes_of
from shared.policy.weights import Card, WeightsFile


def suite(*policies, **given):
    return run_suite(SuiteInput((42,), "c", policies, **given), lambda *_: None)


def test_each_policy_is_played_in_three_worlds():
    found = suite("drf", "optimus").policies
    assert set(found) == {"drf", "optimus"}
    assert {name.rpartition("/")[0] for name in found["drf"]} == {"", "speeds 20 % off", "models never seen"}
    assert found["drf"][KPI].mean > found["optimus"][KPI].mean


@pytest.mark.parametrize(("ours", "met"), [(1.0, [True, True]), (1.5, [False, False]), (1.2, [False, True])])
def test_goals_are_met_only_far_enough_below_both_baselines(ours, met):
    hours = {"drf": 2.0, "optimus": 1.5, "jobs-sets": ours}
    goals = goals_of({name: {KPI: ResultMetric.of([mean])} for name, mean in hours.items()})
    assert [goal.met for goal in goals] == met


def test_weights_of_ones_own_are_played_instead_of_the_shipped():
    arrays = {name: np.zeros(shape, np.float32) for name, shape in shapes_of((4,)).items()}
    weights = {"jobs-sets": WeightsFile(arrays, Card(policy="jobs-sets", version=1))}
    ours = suite("jobs-sets").policies["jobs-sets"][KPI].mean
    assert suite("jobs-sets", weights=weights).policies["jobs-sets"][KPI].mean > ours


def test_what_is_shipped_of_dl2_is_about_where_its_teacher_is_and_wrong_speeds_do_it_no_harm():
    found = suite("optimus", "jobs-dl2").policies
    ours, teacher = found["jobs-dl2"], found["optimus"]
    assert ours[KPI].mean == pytest.approx(teacher[KPI].mean, rel=0.03)
    assert ours[f"speeds 20 % off/{KPI}"].mean == ours[KPI].mean


def test_weights_that_nobody_plays_are_refused():
    weights = {"karma": WeightsFile({}, Card(policy="karma", version=1))}
    with pytest.raises(ConfigError, match="of 'karma', which is not measured here"):
        suite("drf", weights=weights)


def test_a_bound_stands_beside_the_figures_and_says_what_is_possible():
    found = suite("drf", bound=True)
    bound = found.policies["bound"]
    assert set(bound) == {KPI, f"models never seen/{KPI}"}
    assert bound[KPI].mean < found.policies["drf"][KPI].mean
    assert any(note.startswith("bound: on these seeds no scheduler is more than") for note in found.notes)
