"""The lines of the README that begin "More of it", as they stand there, in a folder with what a clone has."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.process.mesh import ROOT

pytestmark = [pytest.mark.process, pytest.mark.etcd]

PROGRAM = ".venv/bin/conclave"


def lines() -> list[list[str]]:
    """The commands, as words."""
    text = (Path(ROOT) / "README.md").read_text(encoding="utf-8").partition("More of it:")[2]
    block = text.partition("```sh\n")[2].partition("```")[0]
    return [shlex.split(line, comments=True) for line in block.splitlines()]


def test_every_line_of_more_of_it_works_in_a_fresh_clone(tmp_path: Path) -> None:
    (tmp_path / "docs").symlink_to(Path(ROOT) / "docs")
    environ = {key: value for key, value in os.environ.items() if not key.startswith("CONCLAVE_")}
    commands = lines()
    assert [words[0] for words in commands] == [PROGRAM] * 3
    for _, *words in commands:
        done = subprocess.run(
            [sys.executable, "-m", "services.cli", *words], cwd=tmp_path, env=environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True, text=True, timeout=PATIENCE_S, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-2000:])
    figures = json.loads((tmp_path / "out.json").read_text())
    assert figures["ok"]
    assert figures["pods_bound"] > 0
