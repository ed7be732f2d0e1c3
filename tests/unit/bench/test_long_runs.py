"""Long runs are the shipped recipes, only longer, and what is told of them is their validations."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from bench.policies.long_runs import POLICIES, Course, course, line, run_of
from lab.learner.deepsets.ppo import PpoRun
from lab.learner.deepsets.training import DeepSetsRun
from lab.learner.marl.training import MarlRun
from shared.errors import ConfigError


@pytest.mark.parametrize("policy", POLICIES)
def test_a_long_run_differs_from_the_shipped_one_in_its_length_alone(policy):
    short, long = run_of(policy, 1001, 1), run_of(policy, 1001, 10)
    assert long.length == 10 * short.length
    if isinstance(short, MarlRun):
        assert isinstance(long, MarlRun)
        again = replace(long.settings, rounds=short.settings.rounds, patience=short.settings.patience)
        assert (again, long.settings.patience) == (short.settings, sys.maxsize)
    else:
        assert isinstance(long, DeepSetsRun | PpoRun)
        assert replace(long.settings, decisions=short.settings.decisions) == short.settings


def test_a_policy_that_is_not_trained_here_is_refused():
    with pytest.raises(ConfigError, match="is not trained here"):
        run_of("frag", 1001, 10)


def test_every_validation_of_a_run_is_told():
    run = run_of("el", 1001, 1)
    assert isinstance(run, PpoRun)
    short = PpoRun(replace(run.settings, decisions=1_200, validate_every=600))
    found = course(short)
    assert (len(found.values), found.steps) == (2, short.done)
    assert min(found.values) == short.best_regret


def test_a_row_tells_best_worst_of_the_second_half_and_last():
    short, long = Course((0.5, 0.1), 100, 1.0), Course((0.9, 0.05, 0.2, 0.1), 1000, 12.4)
    assert line("lb", 7, short, long) == "| `lb` | 7 | 100 | 1,000 | 0.1000 | 0.0500 | 0.2000 | 0.1000 | 12 |"
