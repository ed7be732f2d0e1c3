"""A pool's day from real traces: how online demand rises and falls, and which offline jobs come.

*Tides* are days of request rates (``http``), as shares of the mean rate in the busiest hour of a usual day, and of CPU
use (``util``), as shares of all that there is; the seed chooses the day. A trace is turned so that the quietest hour
of its mean day is at ``QUIET_S``: services of one pool have their users in one time zone, those of the traces have
not. A day with a gap (an hour without a request) is not played. *Jobs* last as long and have as many workers as in
Philly; what a worker asks for is that of an openb pod of class BE, cut into executors where that is more than a node
may be expected to lend.

``built_in`` is for machines without the traces: figures on it say nothing of a real cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lab.traces.cells import POD_COLUMNS, POD_EXTRA_COLUMNS, gpu_request, rows
from lab.worlds.services.loads import parse_trace
from shared.errors import ConfigError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DAY_S = 86_400
QUIET_S = 4 * 3600
GAP_S = 3600
MIB = 1024 * 1024
REQUESTS = (
    "nasa_http_1995_per_minute.csv", "twitter_stream_2021-08_per_10s.csv", "nab_elb_request_count_5min.csv",
)  # fmt: skip
USES = (
    "nab_cpu_utilization_asg_misconfiguration_5min.csv", "nab_grok_asg_anomaly_5min.csv",
    "nab_ec2_cpu_5f5533_5min.csv", "nab_ec2_cpu_ac20cd_5min.csv",
)  # fmt: skip
JOBS, PODS = "philly_jobs_pollux.csv", "openb_pod_list_default.csv"
FOLDERS = ("http", "util", "dljobs", "openb")
"""Where they lie under ``data``."""
LEAST_JOB_S, MOST_JOB_S = 60.0, 12 * 3600.0
"""Jobs that ended before had failed at their start; longer ones are played as ones of half a day."""
MOST_WORKERS = 8
JOBS_STREAM, DAY_STREAM = 17, 19


@dataclass(frozen=True)
class Tide:
    """The demand of one service over any of its days, in ``step_s`` steps; ``days``: the first step of each that may
    be played. ``of_use``: percent of CPU that is used, not requests."""

    name: str
    step_s: float
    shares: Floats
    days: tuple[int, ...]
    of_use: bool = False

    def day(self, seed: int) -> Floats:
        """The demand at each second of the day that the seed chooses; between steps a line."""
        rng = np.random.default_rng([seed, DAY_STREAM, len(self.shares)])
        first = self.days[int(rng.integers(len(self.days)))]
        steps = int(np.ceil(DAY_S / self.step_s)) + 1
        part = self.shares[(first + np.arange(steps)) % len(self.shares)]
        return np.interp(np.arange(DAY_S), np.arange(steps) * self.step_s, part)


@dataclass(frozen=True, slots=True)
class TracedJob:
    """An offline job: ``workers`` that each ask for so much, for ``seconds`` while all of them run."""

    seconds: float
    workers: int
    gpus: int
    cpu_millis: int
    memory_bytes: int


@dataclass(frozen=True)
class JobTrace:
    """What jobs are drawn from: (seconds, workers) as they were submitted, and shapes (milli-cores, bytes) of workers
    with a GPU and without."""

    lengths: Floats
    workers: Ints
    with_gpu: Ints
    without: Ints

    def draw(self, seed: int, *, gpus: int, most_workers: int, most_millis: int = 0) -> JobDraw:
        """The jobs of one kind in the order in which a seed brings them. A worker of more than ``most_millis`` is
        played as several that ask for as much together; 0: none is."""
        return JobDraw(self, seed, gpus=gpus, most_workers=most_workers, most_millis=most_millis)


class JobDraw:
    """An endless queue of jobs; the same seed brings the same, whoever takes them."""

    def __init__(self, trace: JobTrace, seed: int, *, gpus: int, most_workers: int, most_millis: int) -> None:
        self._trace = trace
        self._most_millis = most_millis
        self._gpus = gpus
        self._shapes = trace.with_gpu if gpus else trace.without
        self._rows = np.flatnonzero(trace.workers <= most_workers)
        if not len(self._rows):
            raise ConfigError(f"{JOBS}: it has no job of at most {most_workers} workers; give the trace itself")
        self._rng = np.random.default_rng([seed, JOBS_STREAM, gpus])

    def __next__(self) -> TracedJob:
        row = int(self._rows[self._rng.integers(len(self._rows))])
        cpu, memory = self._shapes[int(self._rng.integers(len(self._shapes)))].tolist()
        seconds = float(np.clip(self._trace.lengths[row], LEAST_JOB_S, MOST_JOB_S))
        parts = -(-cpu // self._most_millis) if self._most_millis else 1
        return TracedJob(seconds, int(self._trace.workers[row]) * parts, self._gpus, cpu // parts, memory // parts)


@dataclass(frozen=True)
class TidalTraces:
    """All that a day is made of."""

    tides: tuple[Tide, ...]
    jobs: JobTrace
    built_in: bool = False


def read_traces(files: Mapping[str, str]) -> TidalTraces:
    """Of the text of trace files by name. Raises ``ConfigError`` naming the file that is missing or malformed."""
    for name in (*REQUESTS, *USES, JOBS, PODS):
        if name not in files:
            raise ConfigError(
                f"--trace-dir: {name} is missing; give the folder that holds {', '.join(FOLDERS)}, or built-in"
            )
    tides = [tide_of(name, files[name], of_use=name in USES) for name in (*REQUESTS, *USES)]
    return TidalTraces(tuple(tides), jobs_of(files[JOBS], files[PODS]))


def tide_of(name: str, text: str, *, of_use: bool = False) -> Tide:
    """A trace of at least a day. Raises ``ConfigError``."""
    trace = parse_trace(text, name)
    shares, step_s = np.asarray(trace.rates, np.float64), trace.told_s
    a_day = int(DAY_S / step_s)
    if a_day < 1 or len(shares) < a_day:
        raise ConfigError(f"{name}: {len(shares) * step_s / 3600:.1f} hours; give a trace of at least a day")
    turn = _quietest(shares, step_s) - int(QUIET_S / step_s)
    last = len(shares) - a_day
    firsts = list(range(turn % a_day, last + 1, a_day)) or [0]
    days = tuple(first for first in firsts if of_use or not _gap(shares[first : first + a_day], step_s))
    if not days:
        raise ConfigError(f"{name}: each of its days has an hour without a request; give a trace without gaps")
    peak = 100.0 if of_use else _busiest(shares, days, step_s)
    return Tide(name.partition(".")[0], step_s, shares / peak, days, of_use)


def _busiest(shares: Floats, days: Sequence[int], step_s: float) -> float:
    """The mean rate in the busiest hour of a usual day."""
    hour, a_day = max(1, int(3600 / step_s)), int(DAY_S / step_s)
    ones = np.ones(hour) / hour
    return float(np.median([np.convolve(shares[first : first + a_day], ones, "valid").max() for first in days]))


def _quietest(shares: Floats, step_s: float) -> int:
    """Where in the mean day the quietest hour begins."""
    a_day = int(DAY_S / step_s)
    mean = shares[: len(shares) // a_day * a_day].reshape(-1, a_day).mean(axis=0)
    hour = max(1, int(3600 / step_s))
    sums = np.convolve(np.concatenate([mean, mean[: hour - 1]]), np.ones(hour), "valid")
    return int(np.argmin(sums))


def _gap(day: Floats, step_s: float) -> bool:
    """Whether nothing at all comes for so long."""
    longest = run = 0
    for empty in day == 0:
        run = run + 1 if empty else 0
        longest = max(longest, run)
    return longest * step_s >= GAP_S


def jobs_of(jobs: str, pods: str) -> JobTrace:
    """Of Philly's jobs and openb's pods. Raises ``ConfigError`` with line and column."""
    lengths: list[float] = []
    workers: list[int] = []
    for row in rows(jobs, JOBS, ("duration", "num_gpus")):
        count = row["num_gpus"].number(100_000)
        text = row["duration"].text
        try:
            seconds = float(text)
        except ValueError:
            seconds = float("nan")
        if not seconds >= 0:
            raise row["duration"].bad("give seconds")
        if seconds >= LEAST_JOB_S and 1 <= count <= MOST_WORKERS:
            lengths.append(seconds)
            workers.append(count)
    shapes: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
    for row in rows(pods, PODS, POD_COLUMNS, POD_EXTRA_COLUMNS):
        devices, share = gpu_request(row)
        cpu, memory = row["cpu_milli"].number(), row["memory_mib"].number()
        offline = "qos" not in row or row["qos"].text.strip() == "BE"
        if offline and cpu and memory and (devices == 0 or (devices == 1 and share == 1000)):
            shapes[devices == 1].append((cpu, memory * MIB))
    for found, name, what in (
        (lengths, JOBS, f"job of 1 to {MOST_WORKERS} workers that took a minute"),
        (shapes[True], PODS, "pod of class BE with one whole GPU"),
        (shapes[False], PODS, "pod of class BE without a GPU"),
    ):  # fmt: skip
        if not found:
            raise ConfigError(f"{name}: it has no {what}; give the trace itself")
    return JobTrace(
        np.array(lengths), np.array(workers, np.int64), np.array(shapes[True], np.int64),
        np.array(shapes[False], np.int64),
    )  # fmt: skip


def built_in() -> TidalTraces:
    """A made-up week: services whose demand follows the sun, and jobs whose lengths are as spread as Philly's."""
    rng = np.random.default_rng(0)
    step_s, days = 60.0, 7
    minutes = np.arange(days * DAY_S // 60)
    tides = []
    for number, (name, of_use) in enumerate((("web", False), ("feed", False), ("search", False), ("store", True))):
        sun = 0.55 - 0.45 * np.cos(2 * np.pi * (minutes * 60 - QUIET_S + 1800 * number) / DAY_S)
        evening = 0.15 * np.exp(-(((minutes * 60 % DAY_S) / 3600 - 20.5) ** 2) / 2)
        noise = rng.normal(0.0, 0.02, len(minutes))
        shape = np.maximum((0.5 + 0.2 * sun if of_use else sun + evening) + noise, 0.01)
        firsts = tuple(range(0, len(shape), DAY_S // 60))
        tides.append(Tide(name, step_s, shape if of_use else shape / _busiest(shape, firsts, step_s), firsts, of_use))
    lengths = np.maximum(rng.lognormal(np.log(1200.0), 1.6, 4000), LEAST_JOB_S)
    workers = rng.choice([1, 2, 4, 8], 4000, p=[0.85, 0.06, 0.06, 0.03])
    gpu = [(cpu, 48 * 1024 * MIB) for cpu in (8000, 10000, 11000, 12000)]
    plain = [(cpu, 40 * 1024 * MIB) for cpu in (8000, 12000, 16000)]
    trace = JobTrace(lengths, workers.astype(np.int64), np.array(gpu, np.int64), np.array(plain, np.int64))
    return TidalTraces(tuple(tides), trace, built_in=True)


def day_of(tides: Sequence[Tide], seed: int) -> Floats:
    """The demand of every service at every second: float64 [services, seconds]."""
    return np.stack([tide.day(seed) for tide in tides])
