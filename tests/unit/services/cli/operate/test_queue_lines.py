"""``conclave queue``: the tree, one queue, and what ``simulate`` reads and says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from services.cli.__main__ import run
from services.cli.operate.job_file import job_of
from services.cli.operate.queues import QUEUES, queue_lines, requests_text, simulated_lines
from shared.errors import ConfigError
from tests.admin_server import AdminServer

GIB = 2**30
CPU_USE = {
    "name": "cpu_millis", "used": 12_000, "guaranteed": 8000, "maximum": 16_000, "borrowed": 4000,
    "share": 0.25,
}  # fmt: skip
MEMORY_USE = {
    "name": "memory_bytes", "used": 4 * GIB, "guaranteed": None, "maximum": None, "borrowed": 0,
    "share": 0.1,
}  # fmt: skip
VISION: dict[str, Any] = {
    "name": "vision", "parent": "research", "path": ["research", "vision"], "depth": 1, "order": "Priority",
    "strategy": "DRF", "weight": "2", "share": 0.25, "dominant": "cpu_millis", "resources": [CPU_USE, MEMORY_USE],
    "pods": 12, "pending_units": 3, "blocked_units": 1, "parked_units": 2, "parked_pods": 20, "problem": "",
    "warnings": [],
    "deleting": False, "namespaces": ["vision"], "children": [], "borrowing": {"cpu_millis": 8000}, "lending": None,
    "reclaim": True, "reclaim_after_s": 60.0, "min_run_s": 300.0, "half_life_s": None, "past": {},
    "units": [
        {"position": 1, "key": "podgroup:v/train", "namespace": "v", "name": "train", "source": "podgroup",
         "priority": 5, "members": 8, "waiting_s": 30.0, "requests": {}, "blocked": "", "reason": "NodeResourcesFit",
         "place": "active"},
    ],
}  # fmt: skip


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONCLAVE_CONTEXTS", str(tmp_path / "none.toml"))
    monkeypatch.delenv("CONCLAVE_SERVER", raising=False)


def test_the_tree_shows_used_guaranteed_and_maximum() -> None:
    top = VISION | {"name": "research", "depth": 0, "resources": [], "dominant": "", "share": 0.0}
    lines = QUEUES.lines([top, VISION])
    assert [line.split() for line in lines] == [
        ["NAME", "PENDING", "HELD", "NO-ROOM", "PODS", "OF-CLUSTER", "BY", "CPU", "MEMORY"],
        ["research", "3", "1", "2", "12", "0.0%", "-", "-", "-"],
        ["vision", "3", "1", "2", "12", "25.0%", "cpu", "12/8/16", "4Gi/-/-"],
    ]
    assert lines[2].startswith("  vision")
    broken = QUEUES.lines([VISION | {"problem": "parent: there is no Queue base"}])
    assert broken[1].endswith("parent: there is no Queue base")


def test_gpus_have_a_column_where_there_are_any_in_the_numbers_of_the_queues_spec() -> None:
    gpu = {"name": "conclave.io/gpu-milli", "used": 1500, "guaranteed": 4000, "maximum": None}
    whole = {"name": "nvidia.com/gpu", "used": 6, "guaranteed": None, "maximum": 8}
    fpga = {"name": "example.com/fpga", "used": 1, "guaranteed": None, "maximum": 2}
    lines = QUEUES.lines([VISION | {"resources": [gpu, whole, fpga]}, VISION], wide=True)
    assert lines[0].split()[9:11] == ["NVIDIA.COM/GPU", "CONCLAVE.IO/GPU-MILLI"]
    assert lines[1].split()[9:11] == ["6/-/8", "1500/4000/-"]
    assert "example.com/fpga 1/-/2" in lines[1]


def test_one_queue_is_told_with_its_units_in_turn() -> None:
    lines = queue_lines(VISION)
    assert lines[0] == "research / vision"
    assert "  weight     2; uses 25.0% of the cluster's cpu" in lines
    assert ("  waiting    3 units, 1 of them held back; for 2 units (20 pods) no node has room") in lines
    assert "  borrowing  at most cpu 8" in lines
    assert "  reclaim    what it lent is taken back after 60s" in lines
    assert "  protected  what it borrows runs for 5m at least" in lines
    assert [line.split() for line in lines if line.startswith("cpu ")] == [["cpu", "12", "8", "16", "4", "25.0%"]]
    assert lines[-1].split() == ["1", "v", "train", "active", "podgroup", "8", "5", "30s", "NodeResourcesFit", "-"]
    assert queue_lines(VISION | {"units": []})[-1] == "nothing waits in it"


def test_a_queue_says_what_it_is_set_to_and_no_zeros() -> None:
    lines = queue_lines(VISION | {"dominant": "", "share": 0.0, "reclaim_after_s": 0.0, "min_run_s": 0.0})
    assert "  weight     2; uses nothing" in lines
    assert "  reclaim    what it lent is taken back at once" in lines
    assert not [line for line in lines if line.startswith("  protected")]
    protected = queue_lines(VISION | {"reclaim": False, "min_run_s": 600.0})
    assert "  protected  what it borrows runs for 10m at least" in protected
    assert not [line for line in protected if line.startswith("  reclaim")]


def test_a_simulation_says_when_what_holds_it_and_who_leaves() -> None:
    found = {
        "queue": "vision", "summary": "it would start in 60 s, once 12 pods have been evicted for it", "members": 8,
        "fits": 6, "blocked": "queue research: cpu 8 of maximum 8 is used",
        "displaced": [{"pod": f"b/p{n}", "node": "n1", "queue": "speech", "priority": 0} for n in range(12)],
    }  # fmt: skip
    lines = simulated_lines(found)
    assert lines[:4] == [
        "vision: it would start in 60 s, once 12 pods have been evicted for it",
        "  quota      queue research: cpu 8 of maximum 8 is used",
        "  room       6 of 8 members fit on the nodes as they are",
        "  displaces  b/p0 on n1, queue speech, priority 0",
    ]
    assert lines[-1].strip() == "and 2 more pods"
    said = "its queue lets it go, but 0 of 8 members fit on the nodes as they are"
    assert simulated_lines({"queue": "vision", "summary": said, "members": 8, "fits": 0}) == [f"vision: {said}"]


def test_show_may_be_left_out_and_simulate_asks_what_it_was_told(capsys: pytest.CaptureFixture[str]) -> None:
    answers = {
        "GET /v1/queues": {"items": [VISION], "continue": ""},
        "GET /v1/queues/vision": VISION,
        "GET /v1/queues/vision/simulate": {"queue": "vision", "summary": "it would start at once"},
    }
    with AdminServer(answers) as server:
        at = ["--server", server.url]
        assert run(["queue", *at]) == 0
        assert run(["queue", "vision", *at]) == 0
        assert run(["queue", "show", "vision", "-o", "name", *at]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == "queue/vision"
        told = ["--members", "8", "--request", "cpu=2", "--request", "memory=4Gi", "--priority", "-5", "-n", "v"]
        assert run(["queue", "simulate", "vision", *told, *at]) == 0
        assert capsys.readouterr().out.splitlines() == ["vision: it would start at once"]
        query = {name: values[0] for name, values in server.asked[-1].query.items()}
        assert query == {"members": "8", "requests": "cpu=2,memory=4Gi", "priority": "-5", "namespace": "v"}
        assert run(["queue", "--place", "active", *at]) == 2
        assert "conclave pending-pods --place" in capsys.readouterr().err
        assert run(["queue", "simulate", *at]) == 2
        assert "NAME: which Queue?" in capsys.readouterr().err


def test_a_job_without_a_queues_name_is_simulated_in_the_one_of_its_namespace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j, namespace: lab}\n"
        "spec: {template: {spec: {containers: [{name: c, image: i}]}}}\n"
    )
    with AdminServer({"GET /v1/queues/-/simulate": {"queue": "vision", "summary": "it would start at once"}}) as server:
        assert run(["queue", "simulate", "-f", str(job), "--server", server.url]) == 0
        assert capsys.readouterr().out.splitlines() == ["vision: it would start at once"]
        assert server.asked[-1].query["namespace"] == ["lab"]
        assert run(["queue", "simulate", "--server", server.url]) != 0
        assert "NAME: which Queue?" in capsys.readouterr().err


def test_requests_are_pairs_and_the_last_word_wins() -> None:
    assert requests_text(["cpu=1", "memory=1Gi", "cpu=2", ""]) == "cpu=2,memory=1Gi"
    for wrong in ("cpu", "=2", "cpu="):
        with pytest.raises(ConfigError, match="--request"):
            requests_text([wrong])


JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train, namespace: vision, annotations: {conclave.io/gang: "true", conclave.io/gang-min-count: "6"}}
spec:
  parallelism: 8
  completions: 8
  completionMode: Indexed
  template:
    metadata: {labels: {conclave.io/queue: vision}}
    spec:
      priority: 7
      containers: [{name: main, resources: {requests: {cpu: 1500m, memory: 2Gi}}}]
"""
PODS = """
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: g, labels: {conclave.io/queue: speech}}
spec: {schedulingPolicy: {gang: {minCount: 2}}}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}
- {apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}
"""


def test_a_job_is_read_out_of_its_manifest(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    assert job_of(file) == {
        "members": 8, "min_count": 6, "requests": f"cpu=1500m,memory={2 * GIB}", "priority": 7, "namespace": "vision",
        "queue": "vision",
    }  # fmt: skip
    file.write_text(PODS)
    assert job_of(file) == {"members": 2, "min_count": 2, "requests": "cpu=1000m", "queue": "speech"}
    file.write_text(JOB.replace('annotations: {conclave.io/gang: "true", conclave.io/gang-min-count: "6"}', ""))
    assert job_of(file)["min_count"] == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("kind: ConfigMap", "holds none of Pod, Job"),
        ("a: [", "is no YAML"),
        (PODS.replace("{cpu: 1}", "{cpu: 2}", 1), "request different amounts"),
        (JOB.replace("1500m", "much"), "much"),
    ],
)
def test_a_manifest_that_cannot_be_simulated_says_why(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=told):
        job_of(file)
    with pytest.raises(ConfigError, match="No such file"):
        job_of(tmp_path / "none.yaml")
