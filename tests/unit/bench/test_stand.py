"""The test stand: what benches with real processes share counts and tells what was there."""

from __future__ import annotations

import argparse
import re
from collections import Counter
from pathlib import Path

import pytest

from bench.arrival import times_ms
from bench.drain.run import further, report
from bench.stand.contest import CONCLAVE, KUBE, LIMIT, Poster, add_arguments, contestants, numbers, pods
from bench.stand.figures import spread, table
from bench.stand.writes import (
    STATUS_CHANGES,
    AuditWrites,
    MetricsWrites,
    changed_by_the_bench,
    of_pods,
    per_pod,
    requests_in,
    write_column,
)

BENCH = Path(__file__).parents[3] / "bench"
METRICS = """
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",dry_run="",group="",resource="pods",subresource="binding",verb="POST"} 40
apiserver_request_total{code="409",dry_run="",group="",resource="pods",subresource="binding",verb="POST"} 2
apiserver_request_total{code="200",dry_run="",group="",resource="pods",subresource="",verb="WATCH"} 9
apiserver_request_total{code="201",dry_run="",group="events.k8s.io",resource="events",subresource="",verb="POST"} 3
apiserver_request_total{code="201",dry_run="All",group="",resource="pods",subresource="",verb="POST"} 5
"""


def options(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(arguments)


def names(*arguments: str, limit: bool = True) -> list[str]:
    return [one.name for one in contestants(options(*arguments), limit=Poster if limit else None)]


def test_the_limit_and_every_mesh_take_turns_and_kube_scheduler_where_there_is_one():
    assert names() == [LIMIT, CONCLAVE]
    assert names("--kube-scheduler", "/bin/ks", limit=False) == [KUBE, CONCLAVE]
    assert names("--agents", "1,2", "--only", CONCLAVE) == [
        "conclave, 1 agents, 1 binders",
        "conclave, 2 agents, 1 binders",
    ]
    assert names("--kube-scheduler", "/bin/ks", "--only", KUBE) == [KUBE]
    assert names("--beside", "/src/before", "--only", CONCLAVE) == [CONCLAVE, "conclave, before"]
    assert names("--single", "--only", CONCLAVE) == [CONCLAVE, "conclave, single"]


def test_numbers_are_whole_and_above_0_where_none_makes_no_sense():
    assert numbers("1000,5000") == [1000, 5000]
    assert numbers("0,1", least=0) == [0, 1]
    with pytest.raises(argparse.ArgumentTypeError, match="whole numbers from 1 on"):
        numbers("0,5")


def test_pods_have_as_many_shapes_as_were_asked_for():
    made = list(pods("p", 9, 4))
    assert len({body["metadata"]["name"] for body in made}) == 9
    assert len({str(body["spec"]) for body in made}) == 4


def test_an_api_servers_own_metrics_count_every_writing_request_that_was_not_a_dry_run():
    assert requests_in(METRICS) == {"POST pods/binding": 42, "POST events": 3}


async def test_the_twins_audit_file_is_read_on_and_a_line_that_is_not_whole_yet_waits(tmp_path):
    file = tmp_path / "audit.jsonl"
    file.write_bytes(b'{"verb":"create","kind":"Pod"}\n{"verb":"bi')
    writes = AuditWrites(file)
    assert await writes.so_far() == {"create Pod": 1}
    with file.open("ab") as more:
        more.write(b'nd","kind":"Pod"}\n')
    assert await writes.so_far() == {"create Pod": 1, "bind Pod": 1}


def test_writes_per_pod_leave_out_what_the_bench_did_and_a_second_write_of_a_pod_is_seen():
    before = Counter({"create Pod": 10, "bind Pod": 3})
    after = Counter({"create Pod": 30, "bind Pod": 13, "patch Pod": 1, "create Event": 5})
    found = per_pod(before, after, 10)
    assert found == {"bind Pod": 1.0, "create Event": 0.5, "patch Pod": 0.1}
    assert of_pods(found) == 1.1
    assert of_pods({"POST pods/binding": 1.0, "POST events": 3.0}) == 1.0


@pytest.mark.parametrize("name", STATUS_CHANGES)
def test_changes_of_status_that_the_bench_made_are_taken_off_and_one_more_is_seen(name):
    before, made = Counter({name: 3}), changed_by_the_bench(20)
    assert per_pod(before + made, Counter({name: 23}), 20) == {}
    assert of_pods(per_pod(before + made, Counter({name: 24}), 20)) == 0.05


def test_a_further_pod_costs_what_a_start_with_one_pod_did_not():
    start = {"bound": 1, "cpu_s": {"a": 1.0, "b": 1.0}}
    assert further({"bound": 1001, "cpu_s": {"a": 1.5, "b": 1.75}}, start) == 1.25
    assert further({"bound": 1, "cpu_s": {"a": 9.0}}, start) == 0.0


def test_medians_stand_with_the_least_and_the_most():
    assert spread([3.0, 1.0, 2.5]) == "2.5 (1.0..3.0)"
    assert spread([1234.5], 0) == "1,234"
    assert spread([]) == "no runs"
    assert table(("a", "b"), [("1", "22")]) == ["| a | b  |", "|---|----|", "| 1 | 22 |"]


def test_the_report_says_who_was_not_bound_and_how_far_from_the_limit_a_mesh_is():
    def run(who: str, bound: int, rate: float) -> dict[str, object]:
        return {
            "who": who, "scene": "like", "running": 0, "nodes": 10, "pods": 20, "bound": bound,
            "pods_per_s": rate, "cpu_ms_per_pod": 1.0,
            "cpu_ms_per_further_pod": 0.5, "server_cpu_ms_per_pod": 0.3, "rss_mb": 90.0, "rss_mb_of": {},
            "first_bind_s": 1.0, "last_bind_s": 2.0, "fullest_node": 3,
            "cpu_to_first_s": {"a": 0.5}, "writes_of_pods_per_pod": 1.0,
            "writes_per_pod": {"bind Pod": 1.0},
            "cpu_s": {"a": 1.0}, "bytes_per_pod": {}, "conflicts": 0, "placements": 20, "load_before": 0.1,
            "calibration_ms": 9.0,
        }  # fmt: skip

    told = report([run(LIMIT, 20, 1000.0), run(CONCLAVE, 19, 450.0)])
    assert any("conclave (1 NOT BOUND)" in line for line in told)
    assert "conclave: 0.45 x bindings" in told


def test_times_are_quantiles_in_milliseconds():
    assert times_ms({"a": 0.0041, "b": 0.0152}) == {"p50": 4.1, "p90": 15.2, "p99": 15.2, "p100": 15.2}


def test_every_bench_with_processes_ends_them_when_it_is_told_to_end():
    """``asyncio.run`` alone dies of SIGTERM, and what it started lives on."""
    benches = [file for file in BENCH.rglob("*.py") if re.search(r"bench\.stand\b", file.read_text())]
    assert len(benches) > 8
    alone = [file.name for file in benches if "asyncio.run(" in file.read_text() and file.name != "ending.py"]
    assert alone == [], "use bench.stand.ending"


def test_nobody_to_measure_is_told_in_one_line():
    with pytest.raises(SystemExit, match="nobody is left to measure; take of conclave"):
        names("--only", KUBE, limit=False)


def test_several_binders_are_as_many_shards_in_turns():
    assert names("--binders", "1,2", limit=False) == [
        "conclave, 1 agents, 1 binders",
        "conclave, 1 agents, 2 binders",
    ]


async def test_a_server_without_figures_of_its_requests_is_told_once(capsys):
    class Cluster:
        async def metrics(self) -> str:
            return "Forbidden"

    writes = MetricsWrites(Cluster())
    assert await writes.so_far() == await writes.so_far() == Counter()
    assert capsys.readouterr().err.count("writes are not counted") == 1


def test_writes_that_nobody_counted_are_not_shown_as_none():
    counted = {"writes_per_pod": {"bind Pod": 1.0}, "writes_of_pods_per_pod": 1.0}
    assert write_column([counted, {"writes_per_pod": {}, "writes_of_pods_per_pod": 0.0}]) == "1.000"
    assert write_column([{"writes_per_pod": {}, "writes_of_pods_per_pod": 0.0}]) == "not told"
