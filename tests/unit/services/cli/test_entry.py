"""Ctrl-C while the command line is still being loaded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from services.cli.__main__ import run

ROOT = Path(__file__).parents[4]

INTERRUPTED = """
import os, signal, sys

class WhileLoading:
    def find_spec(self, name, path=None, target=None):
        if name == "services.cli.app":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, WhileLoading())
from services.cli.{module} import main
main()
"""


@pytest.mark.parametrize(("module", "quiet"), [("entry", True), ("__main__", False)])
def test_an_interrupt_while_loading_ends_it_without_a_word(module: str, quiet: bool) -> None:
    """The second case, without the safeguard: what the first one keeps from people."""
    code = INTERRUPTED.format(module=module)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGINT
    assert ("Traceback" not in ended.stderr) is quiet
    assert (ended.stderr == "") is quiet


@pytest.mark.parametrize("arguments", [["version"], ["--help"], ["completion", "bash"]])
def test_a_full_disk_is_told_in_one_line(arguments: list[str]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "services.cli", *arguments],
            env=environment, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert ended.returncode == 1
    assert "No space left on device" in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [["drain", "n0", "{}"], ["nodes", "--agent", "{}"], ["explain", "default/{}"]])
def test_an_argument_that_is_no_text_is_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """``--agent`` of a byte that is no UTF-8 listed every node, and a name of one was a traceback."""
    given = [argument.format(os.fsdecode(b"\xff")) for argument in arguments]
    assert run([*given, "--server", "http://127.0.0.1:9"]) == 2
    error = capsys.readouterr().err
    assert "is not UTF-8" in error
    assert error.count("\n") == 1


def test_what_most_commands_do_not_need_is_not_loaded_before_they_run() -> None:
    """``--version`` and completion at a prompt: what they wait for is imports."""
    heavy = {"aiohttp", "cryptography", "grpc", "kubernetes", "matplotlib", "numpy", "psutil", "rich", "scipy", "yaml"}
    code = f"import sys, services.cli.app; print(*sorted({heavy} & set(sys.modules)))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    loaded = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []
