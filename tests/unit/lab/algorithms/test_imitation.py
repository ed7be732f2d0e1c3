"""Warm-up by imitation: a set network comes to decide as its teacher does."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lab.algorithms.descent import TrainingDiverged
from lab.algorithms.imitation import ImitationSettings, imitate, spelled
from lab.evaluation.decisions import RecordedDecisions
from lab.learner.deepsets.network import DeepSetsQ
from lab.learner.deepsets.settings import DeepSetsSettings
from lab.learner.deepsets.training import DeepSetsRun
from lab.learner.deepsets.warm_up import calibrate, decisions_to_imitate, warm_up, worth
from shared.errors import ConfigError
from tests.captures import make_capture
from twin.model.capture import encode

torch.set_num_threads(1)


def least_of(count: int, seed: int) -> RecordedDecisions:
    """The teacher takes the candidate whose first feature is least; 2 to 6 candidates."""
    rng = np.random.default_rng(seed)
    features = rng.random((count, 6, 3)).astype(np.float32)
    present = np.arange(6) < rng.integers(2, 7, count)[:, None]
    target = np.zeros((count, 6), np.float32)
    target[np.arange(count), np.where(present, features[:, :, 0], 9).argmin(axis=1)] = 1.0
    return RecordedDecisions(features, present, target)


def test_network_learns_to_choose_as_the_teacher_does() -> None:
    network = DeepSetsQ((3, 16, 1), seed=1)
    settings = ImitationSettings(learning_rate=1e-2, epochs=15)
    found = list(imitate(network, least_of(600, 1), settings, np.random.default_rng(1)))
    assert found[-1].agreement > 0.95
    assert found[-1].held_back_loss < found[0].held_back_loss


def test_agreement_is_measured_on_what_was_held_back() -> None:
    """The ablation: answers without a rule can be learned by heart, and the decisions held back show it."""
    decisions = least_of(60, 2)
    rng = np.random.default_rng(3)
    for row, present in enumerate(decisions.present):
        decisions.target[row] = 0
        decisions.target[row, rng.integers(present.sum())] = 1
    settings = ImitationSettings(learning_rate=1e-2, epochs=60)
    found = list(imitate(DeepSetsQ((3, 64, 64, 1), seed=1), decisions, settings, np.random.default_rng(1)))
    assert found[-1].agreement < 0.6


def test_what_is_not_there_is_never_chosen_nor_learned_from() -> None:
    decisions = least_of(100, 4)
    spoiled = RecordedDecisions(decisions.features.copy(), decisions.present, decisions.target)
    spoiled.features[~decisions.present] = 100.0
    ends = [
        list(imitate(DeepSetsQ((3, 8, 1), seed=1), one, ImitationSettings(epochs=2), np.random.default_rng(1)))[-1]
        for one in (decisions, spoiled)
    ]
    assert ends[0] == ends[1]


def test_too_few_decisions_and_a_loss_that_is_not_finite_are_refused() -> None:
    with pytest.raises(ConfigError, match="19 decisions are too few"):
        list(imitate(DeepSetsQ((3, 1), seed=1), least_of(19, 1), ImitationSettings(), np.random.default_rng(1)))
    broken = least_of(40, 1)
    broken.features[:, 0, 0] = np.nan
    with pytest.raises(TrainingDiverged, match="not finite"):
        list(imitate(DeepSetsQ((3, 1), seed=1), broken, ImitationSettings(), np.random.default_rng(1)))


def test_a_run_begins_where_kube_default_is() -> None:
    run = DeepSetsRun(DeepSetsSettings("lb"))
    before = {name: value.clone() for name, value in run.learner.target.state_dict().items()}
    found = list(warm_up(run, "kube-default", ImitationSettings(epochs=3)))
    assert found[-1].agreement > 0.9
    after = run.learner.target.state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert all(torch.equal(after[name], value) for name, value in run.learner.online.state_dict().items())


def test_a_captures_history_can_be_imitated_and_is_known_by_its_digest(tmp_path) -> None:
    file = tmp_path / "twin.json.gz"
    file.write_bytes(encode(make_capture(pods=60)))
    assert len(decisions_to_imitate(str(file), DeepSetsSettings("lb"))) > 20
    assert spelled(str(file)).startswith("sha256:")
    assert spelled("kube-default") == "kube-default"
    with pytest.raises(ConfigError, match="--warm-up"):
        spelled(str(tmp_path / "missing"))


def test_settings_without_a_warm_up_are_what_they_were() -> None:
    assert "warm_up" not in DeepSetsSettings("lb").as_json()
    assert DeepSetsSettings("lb", warm_up="kube-default").as_json()["warm_up"] == "kube-default"


def test_calibrated_values_have_the_size_of_returns_and_the_ranking_stays() -> None:
    """Logits are several times too far apart for values; unscaled, learning from rewards first undoes the ranking."""
    network, decisions = DeepSetsQ((3, 16, 1), seed=1), least_of(300, 5)
    list(imitate(network, decisions, ImitationSettings(learning_rate=1e-2, epochs=5), np.random.default_rng(1)))
    features, present = torch.from_numpy(decisions.features), torch.from_numpy(decisions.present)

    def outputs() -> torch.Tensor:
        return network(features, present).detach().masked_fill(~present, torch.nan)

    before = outputs()
    calibrate(network, decisions, level=5.0, spread=0.4)
    after = outputs()
    assert torch.equal(before.nan_to_num(-torch.inf).argmax(1), after.nan_to_num(-torch.inf).argmax(1))
    assert float(after.nanmean(1).mean()) == pytest.approx(5.0, abs=1e-3)
    deviation = (after - after.nanmean(1, keepdim=True)).square().nanmean(1).sqrt()
    assert float(deviation.mean()) == pytest.approx(0.4, abs=1e-3)


def test_what_a_choice_is_worth_is_measured_by_playing() -> None:
    level, spread = worth(DeepSetsSettings("lb"))
    assert 3.0 < level < 5.0  # at most 10 points a decision, times 0.1, over 1 - 0.8
    assert 0.1 < spread < 0.6
