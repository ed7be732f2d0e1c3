"""Ctrl-C while the command line is still being loaded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

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
