"""The demo's JSON: rates, latencies, bytes and costs; and what makes a run a failure."""

from __future__ import annotations

import pytest

from lab.audit.audit import AuditReport
from lab.audit.log import LogEntry
from lab.cli.demo.result import StatsBook, Timing, costs, problems
from services.cli.local.supervisor import ProcessUsage


def entry(verb: str, name: str, time_s: float) -> LogEntry:
    return LogEntry(1, time_s, verb, "Pod", "default", name, "u", {"metadata": {"name": name, "uid": name}})


def test_the_rate_is_of_the_workload_alone():
    timing = Timing()
    for i in range(10):
        timing.feed(entry("create", f"p{i}", 0.0))
        timing.feed(entry("bind", f"p{i}", 0.5 + i / 18))
    timing.feed(entry("create", "more-0000", 50.0))
    timing.feed(entry("bind", "more-0000", 60.0))
    assert timing.pods_per_s() == pytest.approx(10.0)
    assert timing.create_to_bind_ms()["p50"] == pytest.approx(777.778)


def stats(**figures) -> dict:
    latency = {"count": figures.pop("count", 0), "p50": figures.pop("p50", 0.0), "p99": figures.pop("p99", 0.0)}
    return {"coordinator": figures, "quantiles": {"schedule_latency_ms": latency}}


def test_a_killed_leader_s_counters_are_kept():
    book = StatsBook()
    book.put("a", stats(answers=100, decision_bytes=4000, bound=10, count=10, p50=3.0, p99=9.0))
    book.put("b", stats(answers=50, decision_bytes=2000, bound=5, plan_bytes=1500, count=5, p50=30.0, p99=90.0))
    book.put("b", None)
    per_decision, hops = book.bytes_per()
    assert per_decision == 40.0
    assert hops == {"decision_bytes": 400.0, "plan_bytes": 100.0}
    assert book.latency_ms() == {"p50": 3.0, "p99": 9.0, "count": 15}


def test_without_any_figures_everything_is_zero():
    assert StatsBook().bytes_per() == (0.0, {})
    assert StatsBook().latency_ms()["count"] == 0


def test_costs_count_every_process_and_name_the_largest():
    usage = {
        "agent": [ProcessUsage(1.0, 50_000_000), ProcessUsage(3.0, 70_000_000)],
        "etcd": [ProcessUsage(1.0, 10**7)],
    }
    rss, cpu = costs(usage, 1000)
    assert rss == {"agent": 70.0, "etcd": 10.0}
    assert cpu == {"agent": 4.0, "etcd": 1.0, "total": 5.0}


GOOD = {"victim": "leader", "at_s": 5, "killed": True, "recovery_s": 3.1}


def test_a_clean_run_has_no_problem():
    assert problems(AuditReport(pods_submitted=3, pods_bound=3), [GOOD]) == []


@pytest.mark.parametrize(
    ("report", "failover"),
    [
        (AuditReport(pods_submitted=1, double_bound=1), GOOD),
        (AuditReport(pods_submitted=1, overcommitted_nodes=1), GOOD),
        (AuditReport(pods_submitted=1, gpu_violations=1), GOOD),
        (AuditReport(pods_submitted=1, misplaced=1), GOOD),
        (AuditReport(pods_submitted=1, schedulable_but_unbound=1, lost=1), GOOD),
        (AuditReport(pods_submitted=1, lost=1), GOOD),
        (AuditReport(), GOOD),
        (AuditReport(pods_submitted=1), {**GOOD, "killed": False}),
        (AuditReport(pods_submitted=1), {**GOOD, "recovery_s": None}),
    ],
)
def test_each_broken_promise_is_one_problem(report, failover):
    assert len(problems(report, [failover])) == 1
