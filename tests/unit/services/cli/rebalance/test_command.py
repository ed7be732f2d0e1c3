"""``conclave rebalance --dry-run`` over a file: the plan as text, JSON and a picture; bad input gets one line."""

from __future__ import annotations

import gzip
import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from services.cli.__main__ import run
from tests.builders import make_node
from tests.unit.shared.rebalance.worlds import owned

BUDGET = {
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"selector": {"matchLabels": {"app": "web"}}},
    "status": {"disruptionsAllowed": 1},
}


def cluster() -> dict[str, Any]:
    nodes = [make_node(name).json for name in "abc"]
    pods = [owned("a-1", "a", "2"), owned("a-2", "a", "1"), owned("b-1", "b", "1"), owned("c-1", "c", "500m")]
    return {"nodes": nodes, "pods": [pod.json for pod in pods], "pdbs": [BUDGET]}


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps(cluster()))
    return file


def dry(file: Path, *more: str) -> int:
    return run(["rebalance", "--capture", str(file), "--dry-run", *more])


def test_a_plan_says_who_goes_where_what_it_wins_whom_it_disturbs_and_why_now(
    capture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = tmp_path / "plan.svg"
    assert dry(capture, "--goal", "empty-nodes", "--picture", str(drawn)) == 0
    out = capsys.readouterr().out
    assert "goal empty-nodes: nodes in use 3 -> 2" in out
    assert "default/c-1  c     a" in out
    assert "budget web; default/ReplicaSet:web" in out
    assert "its place is free from the start" in out
    assert "freed: c" in out
    assert "default/c-1" in "".join(ET.parse(drawn).getroot().itertext())


def test_a_dump_is_planned_over_as_of_the_newest_time_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Pods of a real cluster say when they were made; no age is asked for unless somebody asks."""
    whole, file = cluster(), tmp_path / "cluster.json"
    for pod in whole["pods"]:
        pod["metadata"]["creationTimestamp"] = "2026-11-29T01:00:00Z"
    whole["nodes"][0]["metadata"]["creationTimestamp"] = "2026-11-29T02:00:00Z"
    file.write_text(json.dumps(whole))
    for age, moves in (("0s", 1), ("30m", 1), ("2h", 0)):
        assert dry(file, "--goal", "empty-nodes", "--min-pod-age", age, "-o", "json") == 0
        assert len(json.loads(capsys.readouterr().out)["moves"]) == moves


@pytest.mark.parametrize("gain", ["nan", "inf", "-1"])
def test_a_gain_that_is_no_amount_is_refused(capture: Path, gain: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert dry(capture, "--goal", "load", "--min-gain", gain) == 2
    assert "--min-gain" in capsys.readouterr().err


def test_json_is_the_plan_for_programs(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dry(capture, "--goal", "empty-nodes", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [(move["name"], move["source"], move["target"], move["batch"]) for move in found["moves"]] == [
        ("c-1", "c", "a", 1)
    ]
    assert found["freed"] == ["c"]


def test_a_twin_file_is_read_as_of_its_last_moment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = cluster()
    pods = [{"pod": pod, "arrived_s": 0.0, "ended_s": 5.0 if number == 0 else None} for number, pod in
            enumerate(whole["pods"])]  # fmt: skip
    series = {"a": {"cpu": [None, 900.0], "memory": [1e9, None]}}
    file = tmp_path / "twin.gz"
    captured = {
        "schema": 1, "started_at": "2026-11-29T00:00:00Z", "length_s": 10.0, "step_s": 5.0, "nodes": whole["nodes"],
        "pods": pods, "series": series,
    }  # fmt: skip
    file.write_bytes(gzip.compress(json.dumps(captured).encode()))
    assert dry(file, "--goal", "load", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert "no use was measured: load is what is requested" not in found["notes"]
    assert not [move for move in found["moves"] if move["name"] == "a-1"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--goal", "load", "--goal", "empty-nodes"], "load and empty-nodes exclude each other"),
        ([], "--goal: none is given; give one of load"),
        (["--goal", "load", "--unit", "default/x"], "--unit: goes with --goal unblock"),
        (["--goal", "unblock"], "--unit: goes with --goal unblock"),
        (["--goal", "unblock", "--unit", "default/x"], "unblock: no pod waits that is default/x"),
        (["--goal", "load", "--kubeconfig", "x"], "--kubeconfig does not go with it"),
        (["--goal", "load", "--again-after", "soon"], "is no duration"),
    ],
)
def test_what_cannot_be_asked_gets_one_line(
    capture: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dry(capture, *arguments) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"{", "give a file of 'conclave twin capture'"),
        (b"{}", "nodes: there are none"),
        (b'{"nodes": [], "pod_disruption_budgets": []}', "'pod_disruption_budgets' is not read"),
        (b'{"nodes": [], "replicasets": []}', "'replicasets' is not read; did you mean replicaSets?"),
        (
            gzip.compress(
                b'{"schema": 1, "started_at": "", "length_s": 0, "nodes": [], "pods": [], "serie": {}}', mtime=0
            ),
            "'serie' is not read; did you mean series?",
        ),
        (b"\x1f\x8b nothing", "give a file of 'conclave twin capture'"),
        (gzip.compress(b"{}", mtime=0)[:-9], "it is cut"),
        (
            gzip.compress(b'{"schema": 7, "started_at": "", "length_s": 0, "nodes": [], "pods": []}', mtime=0),
            "schema 7 is not 1",
        ),
    ],
)
def test_a_file_that_is_no_cluster_is_named(
    tmp_path: Path, data: bytes, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad"
    file.write_bytes(data)
    assert dry(file, "--goal", "load") == 2
    assert says in capsys.readouterr().err


def test_a_file_is_planned_over_and_nobody_is_moved_in_it(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rebalance", "--capture", str(capture), "--goal", "load"]) == 2
    assert "give --dry-run" in capsys.readouterr().err
