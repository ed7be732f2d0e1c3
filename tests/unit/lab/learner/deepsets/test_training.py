"""A training run is a function of its settings, goes on exactly where it stopped, and refuses orders it cannot take."""

from __future__ import annotations

import json
from itertools import islice

import pytest
import torch
from click.testing import CliRunner

from lab.evaluation.report.curves import parse_curves
from lab.learner.__main__ import TRAINERS, main
from lab.learner.deepsets.settings import DeepSetsSettings
from lab.learner.deepsets.training import DeepSetsRun
from shared.errors import ConfigError
from shared.policy.deepsets.policy import DeepSetsPolicy
from shared.policy.weights import decode, encode

torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"seed": 42}, "train on 1000 or more", id="test-seed"),
        pytest.param({"policy": "frag"}, "'frag' is not trained here", id="policy"),
        pytest.param({"decisions": 10}, "learning starts after 1000; give 1001 or more", id="too-short"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(changes, words):
    with pytest.raises(ConfigError, match=words):
        DeepSetsSettings(**({"policy": "lb"} | changes))


def test_a_resumed_run_equals_the_uninterrupted_one():
    settings = DeepSetsSettings(
        "lb", decisions=450, learning_starts=60, hidden=(8,), validate_every=10**6, replay_capacity=300
    )
    whole = DeepSetsRun(settings)
    reports = list(whole.run())
    assert {"train/loss", "validation/regret"} <= reports[-1].scalars.keys()
    assert whole.learner.updates > 150
    assert whole.replay.check_valid() == (True, "")

    first = DeepSetsRun(settings)
    assert len(list(islice(first.run(), 2))) == 2
    resumed = DeepSetsRun(settings)
    resumed.set_state(first.get_state())
    list(resumed.run())
    assert encode(resumed.weights(version=1)) == encode(whole.weights(version=1))
    assert resumed.best_regret == whole.best_regret


def test_the_command_trains_writes_and_refuses_to_overwrite(tmp_path):
    command = ["train", "el", "--out", str(tmp_path), "--seeds", "1000", "--steps", "1100"]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    file = decode((tmp_path / "el.npz").read_bytes(), policy="el")
    assert DeepSetsPolicy(file).name == "el"
    assert json.loads((tmp_path / "el.json").read_text())["trained"]["seeds"]["chosen"] == 1000
    curves = parse_curves((tmp_path / "curves-1000.jsonl").read_text().splitlines(), "curves")
    assert {"train/reward", "train/loss", "validation/regret"} <= curves.points.keys()
    assert any((tmp_path / "logs" / "seed-1000").iterdir())
    again = CliRunner().invoke(main, command)
    assert (again.exit_code, "--resume" in again.output) == (2, True)
    other = CliRunner().invoke(main, [*command[:-1], "1200", "--resume"])
    assert (other.exit_code, "other settings" in other.output) == (2, True)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        pytest.param(["--seeds", "42-51"], "train on 1000 or more", id="test-seeds"),
        pytest.param(["--seeds", "ten"], "--seeds", id="no-seeds"),
        pytest.param(["--resume"], "holds no checkpoint", id="nothing-to-resume"),
        pytest.param(["--warm-up", "no-such-file"], "--warm-up", id="warm-up"),
    ],
)
def test_orders_that_cannot_be_taken_are_refused_in_one_line(tmp_path, flags, words):
    refused = CliRunner().invoke(main, ["train", "lb", "--out", str(tmp_path / "new"), *flags])
    assert refused.exit_code == 2
    assert words in refused.output
    assert len(refused.output.strip().splitlines()) == 1
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("files", "told"), [((), "no checkpoint yet"), (("seed-1000.ckpt",), "go on with --resume")])
def test_an_interrupted_run_promises_no_checkpoint_that_is_not_there(tmp_path, monkeypatch, files, told):
    def interrupted(request):
        for name in files:
            (request.out / name).touch()
        raise KeyboardInterrupt

    monkeypatch.setitem(TRAINERS, "lb", interrupted)
    ended = CliRunner().invoke(main, ["train", "lb", "--out", str(tmp_path)])
    assert ended.exit_code == 130
    assert told in ended.output
