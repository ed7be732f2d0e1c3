"""A second ``conclave up`` on a real cluster stands by while the first is there, then takes over.

That it waits for as long as it takes: ``tests/unit/services/cli/local/test_up_waits.py``.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tests.real.conftest import RunningPlane, mesh_of

SMALL = ("--single", "--coordinators", "1")


def test_a_second_mesh_stands_by_and_takes_over_when_the_first_has_gone(plane: RunningPlane, tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("conclave")), "up", "--kubeconfig", str(plane.kubeconfig), *SMALL]
    with contextlib.ExitStack() as first:
        ready = first.enter_context(mesh_of(plane, tmp_path, *SMALL))
        assert "etcd-release=" in ready
        waiting = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert waiting.stdout is not None
        try:
            told = list(through(lambda line: "standby: another mesh" in line, waiting.stdout))
            assert "standby: another mesh" in told[-1], told
            assert not any(line.startswith("ready") for line in told)
            first.close()
            told = list(through(lambda line: line.startswith("ready"), waiting.stdout))
            assert told[-1].startswith("ready"), told
        finally:
            waiting.terminate()
            waiting.wait(30)
            waiting.stdout.close()


def through(last: Callable[[str], bool], lines: Iterable[str]) -> Iterator[str]:
    """Lines up to the one that is the last, or to the end."""
    for line in lines:
        yield line
        if last(line):
            return
