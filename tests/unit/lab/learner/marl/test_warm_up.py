"""marl-dqn begins where kube-default, or a cluster's history, is."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lab.algorithms.imitation import ImitationSettings
from lab.learner.marl import warm_up as marl_warm_up
from lab.learner.marl.settings import settings_for
from lab.learner.marl.training import MarlRun
from lab.learner.marl.warm_up import calibrate, decisions_to_imitate, warm_up
from shared.errors import ConfigError
from shared.policy.marl.features import FEATURES
from tests.captures import make_capture
from twin.model.capture import encode

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def few_episodes(monkeypatch):
    monkeypatch.setattr(marl_warm_up, "EPISODES", 6)


@pytest.mark.parametrize("policy", ["marl-dqn", "single-dqn", "marl-dqn-per-node"])
def test_a_run_agrees_with_kube_default_and_is_judged_on_what_it_learned(policy: str) -> None:
    run = MarlRun(settings_for(policy, 1000))
    found = list(warm_up(run, "kube-default", ImitationSettings(learning_rate=3e-3, epochs=12)))
    assert found[-1].agreement > found[0].agreement or found[-1].agreement > 0.9
    assert all(np.array_equal(run.averaged[name], array) for name, array in run.learner.online.stack.arrays().items())
    target = run.learner.target.state_dict()
    assert all(torch.equal(target[name], value) for name, value in run.learner.online.state_dict().items())


def test_a_history_comes_as_the_policys_own_features(tmp_path) -> None:
    file = tmp_path / "twin.json.gz"
    file.write_bytes(encode(make_capture(pods=40)))
    found = decisions_to_imitate(str(file), settings_for("marl-dqn", 1000))
    assert len(found) > 20
    assert found.features.shape[2] == len(FEATURES)
    measured = found.features[:, :, FEATURES.index("measured")]
    assert measured[found.present].any()


def test_a_history_is_refused_by_networks_made_for_a_number_of_nodes(tmp_path) -> None:
    with pytest.raises(ConfigError, match="single-dqn is made for 4 nodes"):
        decisions_to_imitate(str(tmp_path / "any"), settings_for("single-dqn", 1000))


@pytest.mark.parametrize("policy", ["marl-dqn", "single-dqn"])
def test_calibration_keeps_the_ranking(policy: str) -> None:
    run = MarlRun(settings_for(policy, 1000))
    decisions = decisions_to_imitate("kube-default", run.settings)
    features, present = torch.from_numpy(decisions.features), torch.from_numpy(decisions.present)
    before = run.learner.online(features, present).detach().argmax(1)
    calibrate(run.learner.online, decisions, level=-3.0, spread=0.2)
    assert torch.equal(run.learner.online(features, present).detach().argmax(1), before)
    assert float(run.learner.online.stack(features).detach().mean()) == pytest.approx(-3.0, abs=1e-2)
