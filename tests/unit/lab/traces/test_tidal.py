"""Tides and offline jobs from real traces, and what of a trace is refused."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from lab.traces.tidal import (
    DAY_S,
    FOLDERS,
    JOBS,
    MOST_JOB_S,
    MOST_WORKERS,
    PODS,
    QUIET_S,
    REQUESTS,
    USES,
    built_in,
    day_of,
    jobs_of,
    read_traces,
    tide_of,
)
from shared.errors import ConfigError
from tests.openb_trace import DATA, needs

HOUR = 3600
POD_LIST = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,4000,1024,0,0\nb,8000,2048,1,1000\n"
JOB_LIST = "timestamp,duration,num_gpus\nt,600.0,1\nt,99999999.0,2\nt,3.0,1\nt,700,64\n"


def requests(days: int, *, quiet_hour: int, gap_day: int = -1) -> str:
    """Requests by the minute: a wave with one quiet hour a day, and one day with three hours without any."""
    lines = ["minute_index,requests"]
    for minute in range(days * 1440):
        hour = minute % 1440 / 60
        rate = round(60 - 50 * np.cos(2 * np.pi * (hour - quiet_hour - 0.5) / 24)) + 10
        lines.append(f"{minute},{0 if minute // 1440 == gap_day and 9 <= hour < 12 else rate}")
    return "\n".join(lines)


def test_the_quietest_hour_of_any_trace_comes_at_four():
    for quiet in (0, 7, 22):
        day = tide_of("a.csv", requests(3, quiet_hour=quiet)).day(1)
        hours = day.reshape(24, HOUR).mean(axis=1)
        assert int(np.argmin(hours)) == QUIET_S // HOUR


def test_the_busiest_hour_of_a_usual_day_is_one_whatever_the_unit():
    text = requests(4, quiet_hour=4)
    tenfold = "\n".join(
        line if number == 0 else f"{line.partition(',')[0]},{10 * int(line.partition(',')[2])}"
        for number, line in enumerate(text.splitlines())
    )
    for one in (tide_of("a.csv", text), tide_of("a.csv", tenfold)):
        assert one.day(3).reshape(24, HOUR).mean(axis=1).max() == pytest.approx(1.0, abs=0.02)


def test_a_day_with_a_gap_is_not_played():
    whole, gapped = tide_of("a.csv", requests(6, quiet_hour=4)), tide_of("a.csv", requests(6, quiet_hour=4, gap_day=2))
    assert len(gapped.days) == len(whole.days) - 1
    assert all(tide_of("a.csv", requests(6, quiet_hour=4, gap_day=2)).day(seed).min() > 0 for seed in range(12))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("minute_index,requests\n0,1\n1,2\n", "give a trace of at least a day"),
        (requests(1, quiet_hour=4, gap_day=0), "each of its days has an hour without a request"),
        ("minute_index,requests\n0,1\n1,x\n", "line 3, column 2"),
    ],
)
def test_a_trace_that_tells_no_day_is_refused_in_one_line(text, words):
    with pytest.raises(ConfigError, match=words) as refused:
        tide_of("mine.csv", text)
    assert str(refused.value).startswith("mine.csv")
    assert len(str(refused.value).splitlines()) == 1


def test_jobs_are_as_long_as_submitted_within_bounds_and_ask_what_pods_ask():
    trace = jobs_of(JOB_LIST, POD_LIST)
    assert sorted(zip(trace.lengths, trace.workers, strict=True)) == [(600.0, 1), (99999999.0, 2)]
    with_gpu, without = (trace.draw(5, gpus=gpus, most_workers=4) for gpus in (1, 0))
    jobs = [next(with_gpu) for _ in range(20)]
    assert {(job.gpus, job.cpu_millis) for job in jobs} == {(1, 8000)}
    assert {job.seconds for job in jobs} == {600.0, MOST_JOB_S}
    assert {next(without).cpu_millis for _ in range(20)} == {4000}


def test_a_worker_that_asks_for_more_than_an_executor_is_played_as_several():
    whole, cut = (jobs_of(JOB_LIST, POD_LIST).draw(5, gpus=1, most_workers=4, most_millis=most) for most in (0, 3000))
    for _ in range(10):
        one, parts = next(whole), next(cut)
        assert parts.workers == 3 * one.workers
        assert parts.cpu_millis == one.cpu_millis // 3 <= 3000
        assert parts.seconds == one.seconds


def test_only_pods_of_class_be_are_what_jobs_ask_for():
    pods = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,qos\na,1,1,0,0,BE\nb,2,2,0,0,LS\nc,3,3,1,1000,BE\n"
    trace = jobs_of(JOB_LIST, pods)
    assert trace.without[:, 0].tolist() == [1]


def test_the_same_seed_brings_the_same_jobs_whoever_takes_them_and_another_seed_others():
    trace = built_in().jobs
    first, again, other = (trace.draw(seed, gpus=0, most_workers=4) for seed in (7, 7, 8))
    drawn = [next(first) for _ in range(30)]
    assert drawn == [next(again) for _ in range(30)]
    assert drawn != [next(other) for _ in range(30)]
    assert max(job.workers for job in drawn) <= 4


@pytest.mark.parametrize(
    ("jobs", "pods", "words"),
    [
        ("timestamp,duration,num_gpus\nt,soon,1\n", POD_LIST, "line 2, column duration"),
        ("timestamp,duration,num_gpus\nt,-1,1\n", POD_LIST, "line 2, column duration"),
        ("timestamp,duration,num_gpus\nt,3,1\n", POD_LIST, "no job of 1 to 8 workers"),
        (JOB_LIST, POD_LIST.replace(",1,1000", ",0,0"), "no pod of class BE with one whole GPU"),
        ("duration\n5\n", POD_LIST, "num_gpus"),
    ],
)
def test_a_list_that_tells_no_jobs_is_refused_in_one_line(jobs, pods, words):
    with pytest.raises(ConfigError, match=words) as refused:
        jobs_of(jobs, pods)
    assert len(str(refused.value).splitlines()) == 1


def test_a_missing_trace_is_named():
    with pytest.raises(ConfigError, match=r"--trace-dir: nasa_http_1995_per_minute.csv is missing; .* or built-in"):
        read_traces({})


def test_the_real_traces_make_days_that_differ_by_seed():
    files = {}
    for name in (*REQUESTS, *USES, JOBS, PODS):
        found = [path for folder in FOLDERS for path in (DATA / folder).glob(f"{name}*")]
        path = needs(found[0] if found else DATA / "http" / name)
        data = path.read_bytes()
        files[name] = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    traces = read_traces(files)
    one, other = day_of(traces.tides, 42), day_of(traces.tides, 43)
    assert one.shape == other.shape == (7, DAY_S)
    assert not np.array_equal(one, other)
    assert np.isfinite(one).all()
    assert one.min() >= 0
    assert traces.jobs.workers.max() == MOST_WORKERS


def test_a_list_of_jobs_that_are_all_too_large_is_refused_in_one_line():
    trace = jobs_of("duration,num_gpus\n600.0,4\n600.0,8\n", POD_LIST)
    with pytest.raises(ConfigError, match=rf"{JOBS}: it has no job of at most 2 workers; give the"):
        trace.draw(5, gpus=0, most_workers=2)
