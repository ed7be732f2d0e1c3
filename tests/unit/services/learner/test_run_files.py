"""The folder of a training run: nothing overwritten, nothing half written, every figure in its places."""

from __future__ import annotations

import json
import os
import signal

import pytest

pytest.importorskip("torch")

from services.learner.run_files import checkpoint_of, open_folder, recording, spelled_seeds, write_weights
from shared.errors import ConfigError
from shared.policy.weights import decode, encode
from tests.marl_weights import weights


def test_a_run_is_neither_overwritten_nor_resumed_where_there_is_none(tmp_path):
    open_folder(tmp_path / "new", [1000], resume=False)
    with pytest.raises(ConfigError, match=r"--resume: .* holds no checkpoint of seeds"):
        open_folder(tmp_path / "new", [1000, 1001], resume=True)
    checkpoint_of(tmp_path / "new", 1001).write_bytes(b"")
    open_folder(tmp_path / "new", [1000, 1001], resume=True)
    with pytest.raises(ConfigError, match=r"seed-1001\.ckpt is there already"):
        open_folder(tmp_path / "new", [1000, 1001], resume=False)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"--out: .*file/sub cannot be made"):
        open_folder(tmp_path / "file" / "sub", [1], resume=False)


def test_figures_of_a_step_go_on_after_what_is_there(tmp_path):
    for done, step in ((0, 1), (1, 2)):
        with recording(tmp_path, 7, label="x", done=done, length=2) as record:
            record.note(step, {"train/loss": 0.5 * step})
    lines = [json.loads(line) for line in (tmp_path / "curves-7.jsonl").read_text().splitlines()]
    assert lines == [{"step": 1, "train/loss": 0.5}, {"step": 2, "train/loss": 1.0}]
    assert list((tmp_path / "logs" / "seed-7").iterdir())


def test_sigterm_ends_a_run_as_an_interrupt_does_and_only_then(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), recording(tmp_path, 7, label="x", done=0, length=2):
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_weights_and_card_are_what_a_reader_takes(tmp_path):
    file = write_weights(tmp_path, weights("good"))
    assert file.read_bytes() == encode(weights("good"))
    card = json.loads((tmp_path / "marl-dqn.json").read_text())
    assert card["shapes"] == decode(file.read_bytes(), policy="marl-dqn").card.shapes
    with pytest.raises(ConfigError, match="the policy takes"):
        write_weights(tmp_path, weights("good"), expect_shapes={"l0.w": (1, 1)})


@pytest.mark.parametrize(("seeds", "told"), [((1000,), "1000"), ((1000, 1001, 1002), "1000-1002"), ((1, 3), "1,3")])
def test_seeds_are_spelled_as_the_command_takes_them(seeds, told):
    assert spelled_seeds(seeds) == told
