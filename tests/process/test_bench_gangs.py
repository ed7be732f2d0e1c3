"""The bench of gangs in small, with real processes: it ends, and its figures are there."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.process, pytest.mark.etcd]


def test_every_gang_of_the_bench_is_whole_also_with_a_kill_in_the_middle(tmp_path):
    out = tmp_path / "out.json"
    small = ("--nodes", "20", "--racks", "2", "--scale", "0.05", "--kill", "binder", "--json", str(out))
    done = subprocess.run(
        [sys.executable, "-m", "bench.gangs", "lone", "mixed", "750x4-racks", *small],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(out.read_text())["conclave"]
    for shape in ("lone", "mixed", "750x4-racks"):
        figures = found[shape]
        assert figures["all_bound"]
        assert figures["killed"].startswith("binder")
        assert (figures["partial_gangs"], figures["scattered"]) == (0, 0)
        assert 0 < figures["cpu_ms_per_pod"] <= figures["cpu_ms_per_pod_with_etcd"]
    assert found["mixed_of_lone"] > 0
