"""The folder of a training run: nothing overwritten, nothing half written, every figure in its places."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from lab.learner.training.run_files import (
    checkpoint_of,
    recording,
    run_folder,
    write_weights,
)
from shared.errors import ConfigError
from shared.policy.weights import decode, encode
from tests.marl_weights import weights


def run_alone(out: Path) -> AbstractContextManager[None]:
    return run_folder(out, [1000], resume=False)


def opened(out: Path, seeds: list[int], *, resume: bool) -> bool:
    with run_folder(out, seeds, resume=resume):
        return out.is_dir()


def test_a_run_is_neither_overwritten_nor_resumed_where_there_is_none(tmp_path):
    assert opened(tmp_path / "new", [1000], resume=False)
    with pytest.raises(ConfigError, match=r"--resume: .* holds no checkpoint of seeds"):
        opened(tmp_path / "new", [1000, 1001], resume=True)
    assert not (tmp_path / "new").exists()
    checkpoint_of(tmp_path, 1001).write_bytes(b"")
    assert opened(tmp_path, [1000, 1001], resume=True)
    with pytest.raises(ConfigError, match=r"seed-1001\.ckpt is there already"):
        opened(tmp_path, [1000, 1001], resume=False)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"--out: .*file/sub cannot be made"):
        opened(tmp_path / "file" / "sub", [1], resume=False)


def test_figures_of_a_step_go_on_after_what_is_there(tmp_path):
    for done, step in ((0, 1), (1, 2)):
        with recording(tmp_path, 7, label="x", done=done, length=2) as record:
            record.note(step, {"train/loss": 0.5 * step})
    lines = [json.loads(line) for line in (tmp_path / "curves-7.jsonl").read_text().splitlines()]
    assert lines == [{"step": 1, "train/loss": 0.5}, {"step": 2, "train/loss": 1.0}]
    assert list((tmp_path / "logs" / "seed-7").iterdir())


def test_steps_after_the_checkpoint_are_taken_out_before_they_are_trained_again(tmp_path):
    curves = tmp_path / "curves-7.jsonl"
    curves.write_text('{"step": -1, "a": 1}\n{"step": 5, "a": 2}\n{"step": 6, "a": 3}\n{"step": 7, "a"')
    with recording(tmp_path, 7, label="x", done=5, length=9) as record:
        record.note(6, {"a": 4.0})
    assert curves.read_text() == '{"step": -1, "a": 1}\n{"step": 5, "a": 2}\n{"step": 6, "a": 4.0}\n'


def test_a_run_begun_anew_keeps_no_figures_of_one_without_a_checkpoint(tmp_path):
    (tmp_path / "curves-7.jsonl").write_text('{"step": 0, "a": 1}\n')
    with recording(tmp_path, 7, label="x", done=0, length=9) as record:
        record.note(0, {"a": 4.0})
    assert (tmp_path / "curves-7.jsonl").read_text() == '{"step": 0, "a": 4.0}\n'


HOLD = """
import sys
from pathlib import Path
from lab.learner.training.run_files import run_folder
with run_folder(Path(sys.argv[1]), [1000], resume=False):
    print("at work", flush=True)
    sys.stdin.read()
"""


def test_a_second_trainer_is_refused_until_the_first_is_gone_even_if_killed(tmp_path):
    first = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == b"at work\n"
        with (
            pytest.raises(ConfigError, match=r"--out: another trainer is at work in"),
            run_folder(tmp_path, [1000], resume=False),
        ):
            pytest.fail("two trainers in one folder")
    finally:
        first.kill()
        first.communicate()
    with run_alone(tmp_path):
        pass


def test_a_folder_made_for_nothing_is_taken_away(tmp_path):
    with pytest.raises(ConfigError, match="--warm-up"), run_folder(tmp_path / "new", [1000], resume=False):
        raise ConfigError("--warm-up: leave it out")
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"--out: .*file/sub cannot be made"), run_alone(tmp_path / "file" / "sub"):
        pass


def test_a_full_disk_is_one_line_with_a_remedy(tmp_path):
    with (
        pytest.raises(ConfigError, match=r"seed-7\.ckpt: No space left on device; make room"),
        run_folder(tmp_path, [1000], resume=False),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), tmp_path / "seed-7.ckpt")


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
