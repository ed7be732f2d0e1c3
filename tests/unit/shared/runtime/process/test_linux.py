"""Giving back what only the start needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os, ssl, sqlite3, json
from pathlib import Path
import numpy as np
from shared.runtime.process.linux import forget_start
FORK
def of_files():
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssFile:")[1].split()[0])
before = of_files()
forget_start()
after = of_files()
assert float(np.arange(10.0).sum()) == 45.0 and json.loads("[1]") == [1] and ssl.create_default_context()
print(before, after)
"""


FORK = """
if child := os.fork():
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("fork", ["", FORK], ids=["started", "forked"])
def test_text_that_only_the_start_touched_is_given_back_and_everything_still_runs(fork: str) -> None:
    """In a fork, pages that its parent changed are shared, and a mapping that has one stays too."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("FORK", fork)], capture_output=True, text=True, check=True
    )
    before, after = map(int, done.stdout.split())
    assert after < before
