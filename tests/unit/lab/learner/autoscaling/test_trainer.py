"""Orders of training: which variant is meant, what is refused, and a study that goes on where it was."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from lab.autoscaling.episode import Setup
from lab.learner.__main__ import main
from lab.learner.autoscaling import study
from lab.learner.autoscaling.episodes import default_world
from lab.learner.autoscaling.study import LOOKED_FOR, chosen_settings
from lab.learner.autoscaling.trainer import karma_settings
from lab.learner.autoscaling.training import KarmaRunSettings
from lab.learner.training.runner import Variant
from lab.workers import Workers
from shared.errors import ConfigError


@pytest.mark.parametrize(
    ("policy", "variant", "expected"),
    [
        ("karma", Variant(), ("karma", "multi", "hard", True, "imitation")),
        ("karma", Variant(agents="single", roles="none"), ("karma-single", "single", "none", False, "imitation")),
        ("karma-single", Variant(start="scratch"), ("karma-single", "single", "hard", True, "scratch")),
        ("karma", Variant(roles="hard", missions="off"), ("karma", "multi", "hard", False, "imitation")),
        ("karma", Variant(roles="none", missions="on"), ("karma", "multi", "none", True, "imitation")),
    ],
)
def test_a_variant_says_agents_roles_missions_and_start(policy, variant, expected):
    found = karma_settings(policy, variant, 1000, 3)
    assert (found.policy, found.agents, found.binding, found.missions, found.start) == expected
    assert found.rounds == 3
    assert found.seconds == 1800
    assert karma_settings(policy, replace(variant, episode_seconds="600"), 1000, 3).seconds == 600


def test_the_default_variant_is_trained_by_the_settings_of_the_shipped_weights():
    assert karma_settings("karma", Variant(), 1000, None) == KarmaRunSettings()


def test_one_agent_is_not_trained_as_many():
    with pytest.raises(ConfigError, match="--agents: karma-single is one agent; train karma for multi"):
        karma_settings("karma-single", Variant(agents="multi"), 1000, None)


@pytest.mark.parametrize(
    ("order", "told"),
    [
        (["dqn", "--roles", "hard"], "--episode-seconds, --trials: not for dqn; leave them out"),
        (["aware", "--trials", "3"], "--episode-seconds, --trials: not for aware; leave them out"),
        (["dqn", "--warm-up", "kube-default"], "--warm-up: dqn begins with a rule by itself, or not at all"),
        (["karma", "--seeds", "42"], "--seeds: 42 is kept for validation and tests"),
    ],
)
def test_what_a_policy_does_not_have_is_refused_in_one_line(order: list[str], told: str, tmp_path: Path):
    found = CliRunner().invoke(main, ["train", *order, "--out", str(tmp_path / "run")])
    assert found.exit_code == 2
    assert told in found.stderr
    assert found.stderr.count("\n") == 1


def test_a_study_takes_the_best_of_its_trials_and_goes_on_with_those_that_are_there(tmp_path, monkeypatch):
    tried: list[KarmaRunSettings] = []

    def score(settings: KarmaRunSettings, workers: Workers, world: Setup) -> float:
        tried.append(settings)
        return -abs(settings.learning_rate - 1e-3)

    monkeypatch.setattr(study, "_score", score)
    given = KarmaRunSettings(rounds=30)
    found = chosen_settings(given, 3, tmp_path, Workers(), world=default_world())
    assert len(tried) == 3
    assert {name: getattr(tried[0], name) for name in LOOKED_FOR} == {name: getattr(given, name) for name in LOOKED_FOR}
    assert found.learning_rate == min((one.learning_rate for one in tried), key=lambda rate: abs(rate - 1e-3))
    assert {name for name, value in asdict(found).items() if value != asdict(given)[name]} <= set(LOOKED_FOR)
    chosen_settings(given, 4, tmp_path, Workers(), world=default_world())
    assert len(tried) == 4
