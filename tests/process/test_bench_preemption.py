"""The bench of preemption in small, with real processes: it ends, and its figures are there."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.process, pytest.mark.etcd]

SCENES = ("plain", "gangs", "reclaim")


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench.preemption", *arguments], capture_output=True, text=True, timeout=900, check=False
    )


def test_every_scene_of_the_bench_costs_one_victim_for_each_who_wanted_room(tmp_path):
    out = tmp_path / "out.json"
    done = bench("--nodes", "4", "--preemptors", "16", "--rounds", "1", "--agents", "0", "--json", str(out))
    assert done.returncode == 0, done.stderr[-2000:]
    runs = {(one["scene"], one["who"]): one for one in json.loads(out.read_text())["runs"]}
    assert runs.keys() == {(scene, who) for scene in SCENES for who in ("bindings", "conclave")}
    for one in runs.values():
        assert (one["bound"], one["victims"], one["victims_per_needed"]) == (16, 16, 1.0)
        assert one["victims_per_s"] > 0
    bare = runs["plain", "bindings"]["writes_each"]
    assert (bare["delete Pod"], bare["bind Pod"]) == (1.0, 1.0)


def test_more_preemptors_than_gpus_are_one_clear_line():
    done = bench("--nodes", "4", "--preemptors", "16,33")
    assert done.returncode == 2
    assert "--preemptors 33: --nodes 4 have 32 GPUs; take fewer, or more nodes" in done.stderr


def test_a_gang_that_would_be_short_is_one_clear_line():
    done = bench("--scenes", "gangs", "--nodes", "4", "--preemptors", "6")
    assert done.returncode == 2
    assert "gangs are of 4 each" in done.stderr
