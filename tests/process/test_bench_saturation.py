"""Benches with real processes: however one ends, nothing that it started is left."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.stand.proc import descendants
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.process, pytest.mark.etcd]


def mesh_below(pid: int) -> list[int]:
    """Everything that it started, once a process of each kind is there."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        with contextlib.suppress(OSError, ValueError):  # one has just started, or ended
            found = descendants(pid)
            if {name.partition(" ")[0] for name in found.values()} >= {"services.cli", "etcd", "services.coordinator"}:
                return [os.pidfd_open(one) for one in found]
        time.sleep(0.05)
    raise AssertionError(f"within {PATIENCE_S:g} s no mesh")


SMALL = {
    "soak": ("bench.saturation", "soak", "--waiting", "2", "--classes", "2", "--rate", "1", "--nodes", "4"),
    "drain": ("bench.drain", "--only", "conclave", "--pods", "4000", "--nodes", "4"),
}


@pytest.mark.parametrize("bench_of", SMALL)
def test_a_bench_that_is_told_to_end_takes_its_cluster_and_its_mesh_along(tmp_path: Path, bench_of: str) -> None:
    words = [sys.executable, "-m", *SMALL[bench_of], "--agents", "1"]
    started: list[int] = []
    told = tmp_path / "stderr"
    with told.open("w") as stderr, subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=stderr) as bench:
        try:
            started = mesh_below(bench.pid)
            bench.send_signal(signal.SIGTERM)
            bench.wait(PATIENCE_S)
            left = [one for one in started if not select.select([one], [], [], 0)[0]]
        finally:
            bench.kill()
            for one in started:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(one, signal.SIGKILL)
                os.close(one)
    assert not left
    assert told.read_text().endswith("bench: ended by SIGTERM\n")


def test_gangs_that_wait_in_a_full_cluster_are_told_whole(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    words = ("full", "--members", "4", "--waiting", "12", "--nodes", "3", "--classes", "2", "--seconds", "2")
    done = subprocess.run(
        [sys.executable, "-m", "bench.saturation", *words, "--agents", "1", "--json", str(out)],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(out.read_text())["conclave"]
    assert (found["told"], found["urgent_bound"]) == (12, 2)
