"""A helper process goes with its parent, however the parent ends and whatever the helper was doing then."""

from __future__ import annotations

import subprocess
import sys

import pytest

PARENT = """
import contextlib, multiprocessing, signal, sys
from shared.runtime.process.linux import end_with_parent

def work(late, pipe):
    if not late:
        end_with_parent()
        print("loaded", flush=True)
        signal.pause()             # for ever
    print("loaded", flush=True)
    with contextlib.suppress(EOFError):
        pipe.recv()                # until the parent is gone
    end_with_parent()
    print("works on", flush=True)

if __name__ == "__main__":
    here, there = multiprocessing.get_context("spawn").Pipe()
    child = multiprocessing.get_context("spawn").Process(target=work, args=(sys.argv[1] == "late", there))
    child.start()
    there.close()
    child.join()
"""


@pytest.mark.parametrize("when", ["early", "late"])
def test_a_helper_ends_with_a_parent_that_is_killed_also_while_it_is_loading(tmp_path, when):
    (tmp_path / "parent.py").write_text(PARENT)
    with subprocess.Popen([sys.executable, tmp_path / "parent.py", when], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"loaded\n"
        parent.kill()
        rest = parent.stdout.read()  # ends when the helper, which holds the other end, has ended
    assert parent.returncode == -9
    assert rest == b""
