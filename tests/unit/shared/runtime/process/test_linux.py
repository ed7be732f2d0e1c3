"""Giving back what only the start needed."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import ssl, sqlite3, json
from pathlib import Path
import numpy as np
from shared.runtime.process.linux import forget_start
def of_files():
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssFile:")[1].split()[0])
before = of_files()
forget_start()
after = of_files()
assert float(np.arange(10.0).sum()) == 45.0 and json.loads("[1]") == [1] and ssl.create_default_context()
print(before, after)
"""


def test_text_that_only_the_start_touched_is_given_back_and_everything_still_runs() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert after < before
