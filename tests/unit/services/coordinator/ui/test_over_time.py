"""What the dashboard draws over time: charts that run to now, and jobs over GPUs."""

from __future__ import annotations

from typing import Any

from tests.unit.services.coordinator.ui.javascript import run

MERGED = "const { merged } = await ui('history.js'); return merged(steps, fine).map((one) => one.at)"


def at(*seconds: float) -> list[dict[str, float]]:
    return [{"at": 1000 * second} for second in seconds]


def test_steps_fill_the_time_before_and_between_the_seconds_and_never_double_them() -> None:
    told = run(MERGED, steps=at(10, 20, 30, 40, 50, 60, 70), fine=at(31, 32, 61, 62, 75))
    assert told == [1000 * second for second in (10, 20, 31, 32, 40, 50, 61, 62, 75)]
    assert run(MERGED, steps=at(10, 20), fine=[]) == [10_000, 20_000]


def test_what_only_steps_tell_runs_to_now_too() -> None:
    script = (
        "const { completed } = await ui('history.js'); return completed(fine, steps).map((one) => one.evicted ?? null)"
    )
    steps = [{"at": 10_000, "told": True, "evicted": 2}, {"at": 20_000, "told": True, "evicted": 3}, {"at": 25_000}]
    assert run(script, fine=at(9, 10, 15, 20, 28), steps=steps) == [None, 2, 2, 3, 3]


def test_a_chart_of_another_clocks_steps_runs_to_now_by_ours() -> None:
    script = "const { aheadOf } = await ui('history.js'); return times.map(([now, then]) => aheadOf(now, then, 7))"
    minute = 60_000
    times = [[minute, "1970-01-01T00:00:59.5Z"], [10 * minute, "1970-01-01T00:05:00Z"], [0, "1970-01-01T00:05:00Z"]]
    assert run(script, times=[*times, [0, None]]) == [0, 5 * minute, -5 * minute, 7]


def test_what_an_autoscaler_decided_last_holds_until_now() -> None:
    script = """
        const { held } = await ui('autoscaler_panel.js');
        return held(samples, now).map((one) => [one.at, one.replicas]);
    """
    samples = [{"at": 1000, "replicas": 2}, {"at": 5000, "replicas": 3}]
    assert run(script, samples=samples, now=9000) == [[1000, 2], [4999, 2], [5000, 3], [9000, 3]]
    assert run(script, samples=[], now=9000) == []
    assert run(script, samples=samples, now=5000)[-1] == [5000, 3]


# --- jobs over GPUs -------------------------------------------------------------------------------------------------


def span(job: str, node: str, began: float, ended: float = 0.0, gpus: float = 1.0, pod: str = "w") -> dict[str, Any]:
    return {"job": f"team/{job}", "pod": f"{pod}-{began}", "node": node, "gpus": gpus, "began": began, "ended": ended}


def board(*spans: dict[str, Any], nodes: int = 0, ends: float = 0.0) -> dict[str, Any]:
    names = {one["job"].split("/")[1] for one in spans}
    jobs = [{"namespace": "team", "name": name, "ends": ends, "phase": "Running"} for name in sorted(names)]
    more = {f"node-{number:02d}": 8 for number in range(nodes)}
    return {"now": 100.0, "jobs": jobs, "nodes": more, "spans": list(spans)}


JOBS = "const { jobRows } = await ui('gantt_layout.js'); return jobRows(board, 0, 125)"
NODES = "const { nodeRows } = await ui('gantt_layout.js'); return nodeRows(board, 0, 125)"
COLOURED = "const { colouredJobs } = await ui('gantt_layout.js'); return [...colouredJobs(board, 0, 125, 2)]"


def test_a_job_is_one_row_as_high_as_it_has_gpus_whatever_its_workers_and_nodes() -> None:
    grown = [span("big", f"node-{number:02d}", 10 + 10 * (number >= 8)) for number in range(16)]
    (row,) = run(JOBS, board=board(*grown, nodes=79, ends=110.0))
    assert (row["name"], row["now"], row["most"]) == ("team/big", 16, 16)
    assert [(bar["gpus"], bar["began"], bar["ended"], bar["height"]) for bar in row["bars"]] == [
        (8, 10, 20, 0.5), (16, 20, 100, 1), (16, 100, 110, 1),
    ]  # fmt: skip
    assert [bar["expected"] for bar in row["bars"]] == [False, False, True]
    assert (row["bars"][0]["left"], round(row["bars"][0]["width"], 3)) == (0.08, 0.08)


def test_the_jobs_that_have_most_come_first_and_those_that_ended_last() -> None:
    told = run(JOBS, board=board(span("a", "n", 0, 90, 8), span("b", "n", 50, 0, 2), span("c", "n", 50, 0, 4)))
    assert [row["name"] for row in told] == ["team/c", "team/b", "team/a"]


def test_a_job_that_stopped_between_has_a_gap() -> None:
    (row,) = run(JOBS, board=board(span("a", "n", 10, 20), span("a", "n", 40)))
    assert [(bar["began"], bar["ended"]) for bar in row["bars"]] == [(10, 20), (40, 100)]


def test_of_nodes_those_in_use_are_drawn_the_most_used_first_and_no_idle_one() -> None:
    busy = [span("a", "node-70", 0, 0, 8), span("b", "node-05", 90, 0, 8), span("a", "node-33", 0, 50, 8)]
    told = run(NODES, board=board(*busy, nodes=79))
    assert [row["node"] for row in told] == ["node-70", "node-05", "node-33"]
    assert [row["lanes"] for row in told] == [8, 8, 8]


def test_each_worker_has_lanes_of_its_own_while_it_runs() -> None:
    (row,) = run(NODES, board=board(span("a", "n", 0, 0, 2), span("b", "n", 5, 20, 1), span("c", "n", 30, 0, 1)))
    assert [(bar["lane"], bar["lanes"]) for bar in row["bars"]] == [(0, 2), (2, 1), (2, 1)]


def test_the_jobs_that_used_most_have_colours_and_no_two_the_same() -> None:
    spans = [span("small", "n", 90), span("most", "n", 0, 0, 8), span("ended", "n", 0, 50, 8)]
    assert run(COLOURED, board=board(*spans)) == [["team/most", 1], ["team/ended", 2]]
