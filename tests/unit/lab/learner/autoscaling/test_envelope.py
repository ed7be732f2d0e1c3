"""Weights that were trained before there were envelopes get one; none is made up where the training is not known."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from msgspec import UNSET
from msgspec.structs import replace

from lab.learner.autoscaling import training
from lab.learner.autoscaling.envelope import main
from shared.autoscaling.networks import karma
from shared.autoscaling.networks.features import FEATURES
from shared.policy.weights import WeightsFile, decode, encode, shipped_beside


def written(tmp_path, policy, **trained):
    shipped = shipped_beside(karma.__file__, policy)
    settings = {**shipped.card.trained.get("settings", {}), "seconds": 120, **trained}
    card = replace(shipped.card, envelope=UNSET, trained={**shipped.card.trained, "settings": settings})
    file = tmp_path / "w.npz"
    file.write_bytes(encode(WeightsFile(shipped.arrays, card)))
    return file


@pytest.mark.parametrize("policy", ["karma", "karma-single"])
def test_weights_get_the_range_of_every_input_and_keep_all_else(policy, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "ENVELOPE_EPISODES", 2)
    file = written(tmp_path, policy)
    before = decode(file.read_bytes(), policy=policy)
    found = CliRunner().invoke(main, [str(file)])
    assert found.exit_code == 0, found.output
    after = decode(file.read_bytes(), policy=policy)
    assert set(after.card.envelope) == set(FEATURES)
    assert replace(after.card, envelope=UNSET) == before.card
    assert all((after.arrays[name] == array).all() for name, array in before.arrays.items())


@pytest.mark.parametrize(
    ("policy", "trained", "told"),
    [
        ("dqn", {}, "is of dqn; give weights of"),
        ("karma", {"files": {"topology": "1"}}, "files of your own; train again"),
    ],
)
def test_weights_whose_training_cannot_be_played_are_refused_and_stay(policy, trained, told, tmp_path):
    file = written(tmp_path, policy, **trained)
    before = file.read_bytes()
    found = CliRunner().invoke(main, [str(file)])
    assert found.exit_code == 1
    assert told in found.output
    assert file.read_bytes() == before
