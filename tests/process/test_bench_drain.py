"""The benches of a drain and of steady arrival in small, with real processes: they end, and their figures are there."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.process, pytest.mark.etcd]


def bench(name: str, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"bench.{name}", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_every_pod_of_a_drain_is_bound_by_one_write(tmp_path):
    out = tmp_path / "out.json"
    bench("drain", "--nodes", "20", "--pods", "60", "--rounds", "1", "--json", str(out))
    runs = {one["who"]: one for one in json.loads(out.read_text())["runs"]}
    assert runs.keys() == {"bindings", "conclave"}
    for one in runs.values():
        assert (one["bound"], one["writes_of_pods_per_pod"]) == (60, 1.0)
        assert one["first_bind_s"] > 0
        assert one["cpu_ms_per_pod"] > 0
    assert {name.split()[0] for name in runs["conclave"]["cpu_s"]} == {"up", "etcd", "coordinator", "agent", "binder"}


def test_a_mesh_in_one_process_takes_its_turn(tmp_path):
    out = tmp_path / "out.json"
    bench(
        "drain", "--nodes", "20", "--pods", "60", "--rounds", "1", "--agents", "0", "--single", "--only", "conclave",
        "--json", str(out),
    )  # fmt: skip
    runs = {one["who"]: one for one in json.loads(out.read_text())["runs"]}
    assert {one["bound"] for one in runs.values()} == {60}
    processes = {who: {name.split()[0] for name in one["cpu_s"]} for who, one in runs.items()}
    assert processes == {
        "conclave": {"up", "etcd", "coordinator", "binder"},
        "conclave, single": {"up", "etcd", "single"},
    }


def test_every_pod_of_a_steady_stream_is_bound_by_one_write(tmp_path):
    out = tmp_path / "out.json"
    bench("arrival", "--nodes", "20", "--rate", "20", "--seconds", "3", "--json", str(out))
    [one] = json.loads(out.read_text())["runs"]
    assert (one["pods"], one["bound"], one["writes_of_pods_per_pod"]) == (60, 60, 1.0)
    assert 0 < one["ms"]["p50"] <= one["ms"]["p99"]


def test_each_scene_of_a_drain_binds_all_and_leaves_nothing_behind(tmp_path):
    """What a scene left would be in the way of its own second round."""
    out, scenes = tmp_path / "out.json", ["deployments", "volumes", "join"]
    bench(
        "drain", "--scene", ",".join(scenes), "--nodes", "12", "--pods", "24", "--joining", "6", "--running", "30",
        "--rounds", "2", "--agents", "0", "--only", "conclave", "--json", str(out),
    )  # fmt: skip
    runs = json.loads(out.read_text())["runs"]
    assert [one["scene"] for one in runs] == 2 * scenes
    for one in runs:
        assert (one["bound"], one["running"]) == (24, 30)
        told = 1.0 if one["scene"] == "join" else 0.0  # why it waits, at least once
        assert one["writes_of_pods_per_pod"] >= 1.0 + told
        assert told or one["writes_of_pods_per_pod"] == 1.0


def test_every_change_of_status_is_one_and_nobody_but_the_bench_writes_a_pod(tmp_path):
    out = tmp_path / "out.json"
    bench(
        "arrival", "--scene", "status", "--nodes", "5", "--running", "20", "--rate", "20", "--seconds", "2",
        "--agents", "0", "--json", str(out),
    )  # fmt: skip
    [one] = json.loads(out.read_text())["runs"]
    assert (one["scene"], one["pods"]) == ("status", 40)
    assert one["cores"] > 0
    assert one["writes_per_pod"]["patch Pod"] == 1.0
    assert one["writes_of_pods_per_pod"] == 0.0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("drain", "--scene", "likes"), "'likes' is no scene; there are like, "),
        (("drain", "--running", "-1"), "'-1': give a whole number from 0 on"),
        (("arrival", "--scene", "status"), "--running 0: give the number of pods whose status is to change"),
    ],
)
def test_bad_input_is_one_clear_line(words, told):
    done = subprocess.run(
        [sys.executable, "-m", f"bench.{words[0]}", *words[1:]], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert told in done.stderr
