"""What came of a demo: the counts are the audit's, and a broken promise makes the run a failure."""

from __future__ import annotations

import json

import pytest

from lab.cli.demo.result import DemoResult, DemoSettings, StatsBook, build_result
from lab.cli.demo.workload import load_workload
from services.cli.local.mesh import MeshSettings
from services.cli.local.supervisor import ProcessUsage
from shared.errors import ConfigError
from tests.unit.lab.audit.audit_history import History


def result_of(tmp_path, history: History, *, failovers=(), stuck: str = "") -> DemoResult:
    audit_file = tmp_path / "audit.jsonl"
    audit_file.write_bytes(b"".join(history.lines))
    settings = DemoSettings(
        workload=load_workload("uniform", seed=3, nodes=None, trace_dir=None),
        mesh=MeshSettings(etcd="", kubeconfig=tmp_path / "k", agents=4, seed=3, speed=10.0, state_dir=tmp_path),
        kills=(),
        audit_file=audit_file,
        port=0,
    )
    usage = {"agent": [ProcessUsage(1.0, 10**7)]}
    return build_result(
        settings, list(failovers), stats=StatsBook(), usage=usage, restarts={"agent-0": 0}, stuck=stuck, elapsed_s=1.0
    )


def good() -> History:
    return History().node().wait(10).pod("a").pod("b").bind("a").bind("b")


WANTED = {
    "pods_submitted", "pods_bound", "pods_unschedulable", "double_bound", "overcommitted_nodes", "pods_per_s",
    "schedule_latency_ms", "bytes_per_decision", "rss_mb", "cpu_ms_per_pod", "failovers", "policy", "seed",
}  # fmt: skip


def test_a_good_run_is_ok_and_holds_every_figure(tmp_path):
    result = result_of(tmp_path, good())
    figures = json.loads(json.dumps(result.figures))
    assert set(figures) >= WANTED
    assert figures["ok"] is True
    assert (figures["pods_submitted"], figures["pods_bound"]) == (2, 2)
    assert figures["cpu_ms_per_pod"]["total"] == 500.0
    assert result.picture is not None


@pytest.mark.parametrize(
    ("history", "problem"),
    [
        (good().bind("a"), "double_bound"),
        (good().pod("c", {"cpu": "900m"}).bind("c"), "overcommitted_nodes"),
        (good().pod("c"), "schedulable_but_unbound"),
        (good().pod("c", {"cpu": "5"}), "lost"),
        (good().pod("c", nodeSelector={"a": "b"}).bind("c"), "misplaced"),
    ],
)
def test_a_broken_promise_makes_the_run_a_failure(tmp_path, history, problem):
    figures = result_of(tmp_path, history).figures
    assert figures["ok"] is False
    assert any(problem in text for text in figures["problems"])


def test_a_kill_without_recovery_and_a_stuck_run_are_failures(tmp_path):
    failover = {"victim": "leader", "at_s": 5.0, "killed": True, "recovery_s": None, "back_s": None}
    assert result_of(tmp_path, good(), failovers=[failover]).figures["ok"] is False
    assert result_of(tmp_path, good(), stuck="nothing moved").figures["problems"] == ["nothing moved"]


def test_a_damaged_audit_is_no_result(tmp_path):
    history = good()
    history.lines[1] = b"{\n"
    with pytest.raises(ConfigError, match="line 2"):
        result_of(tmp_path, history)
