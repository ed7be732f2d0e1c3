"""Workloads: which jobs come when. Read from files of Pollux' form, or drawn from Philly's arrivals as Pollux drew.

A workload's jobs become ``SimulatedTrainingJob`` in one of two modes. *Fixed*: the batch is the user's. *Adaptive*: a
policy chooses it, from the initial to the largest measured one, and samples are counted at the initial one. Models that
gain nothing from a second GPU stay on one and keep one batch, as in Pollux' simulator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from lab.jobs.tables import Models, count, model_of, positive
from lab.traces.cells import Cell, rows, unique
from lab.worlds.training.models import TrainingModel
from lab.worlds.training.simulation import SimulatedTrainingJob, SimulationSettings
from shared.errors import ConfigError

T = TypeVar("T")
WORKLOADS_FILE = "pollux_workloads.csv"
PHILLY_FILE = "philly_jobs_pollux.csv"
COLUMNS = ("name", "application", "num_replicas", "batch_size")
SUBMITTED = ("submit_time_s", "time")
SET, WORKLOAD = "set", "workload"

HOURS = 8
FIRST_HOUR = 2
SHORTEST_S = 60.0
HOUR_S = 3600.0
MOST_GPU_S = 1000 * HOUR_S
SMALL, MEDIUM, LARGE = ("cifar10", "ncf"), ("deepspeech2", "bert"), "yolov3"
LARGEST = "imagenet"


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """One job as its user submitted it."""

    name: str
    submitted: float
    model: TrainingModel
    requested: int
    batch: int


Workload = tuple[SubmittedJob, ...]


def parse_workloads(text: str, file: str, models: Models) -> dict[tuple[str, int], Workload]:
    """The workloads of a file by (set, number); ("", 0) where it has no such columns.

    ``ConfigError`` names line, column and remedy: an unknown model, a batch or a request beyond what was measured, or a
    name that is there twice.
    """
    header = text.removeprefix("\ufeff").split("\n", 1)[0]
    names = [name.strip() for name in header.split(",")]
    when = next((name for name in SUBMITTED if name in names), SUBMITTED[0])
    several = SET in names and WORKLOAD in names
    found: dict[tuple[str, int], list[SubmittedJob]] = {}
    seen: dict[tuple[str, int], dict[str, int]] = {}
    for row in rows(text, file, (*COLUMNS, when)):
        key = (row[SET].text.strip(), row[WORKLOAD].number(10_000)) if several else ("", 0)
        name = unique(row["name"].mark(), row["name"], seen.setdefault(key, {}))
        model = model_of(models, row["application"])
        found.setdefault(key, []).append(
            SubmittedJob(
                name,
                _submitted(row[when]),
                model,
                count(row["num_replicas"]),
                _batch(row["batch_size"], model),
            )
        )
        _check_measured(row["num_replicas"], found[key][-1])
    if not found:
        raise ConfigError(f"{file}, line 2, column 1 ({names[0]}): no job follows the header; give at least one")
    return {key: tuple(sorted(jobs, key=lambda one: one.submitted)) for key, jobs in found.items()}


def _submitted(cell: Cell) -> float:
    """Before the run is given up: a job that comes later would count as one that took less than no time."""
    at, most_s = positive(cell, least=0.0), SimulationSettings().most_s
    if at >= most_s:
        raise cell.bad(f"a run lasts {most_s:g} s at most; give seconds from the workload's begin")
    return at


def _batch(cell: Cell, model: TrainingModel) -> int:
    batch, (low, high) = count(cell, 2**31), model.batch_range
    if not low <= batch <= high:
        raise cell.bad(f"{model.name} was measured with batches from {low} to {high}; give one of these")
    return batch


def _check_measured(cell: Cell, row: SubmittedJob) -> None:
    """The request of its user must run, packed on nodes as wide as were measured."""
    full, rest = divmod(row.requested, row.model.times.widest)
    placement = (row.model.times.widest,) * full + (rest,) * (rest > 0)
    if row.model.step_s(placement, row.model.deal(row.requested, row.batch)) is None:
        raise cell.bad(f"{row.model.name} with batch {row.batch} was not measured so; give workers that were")


def jobs_of(workload: Workload, *, gpus: int, adaptive: bool) -> list[SimulatedTrainingJob]:
    """The jobs for a cluster of so many GPUs. ``ConfigError``: one asks for more than there are."""
    return [_job(row, gpus, adaptive=adaptive) for row in workload]


def _job(row: SubmittedJob, gpus: int, *, adaptive: bool) -> SimulatedTrainingJob:
    if row.requested > gpus:
        raise ConfigError(f"{row.name}: asks for {row.requested} GPUs, the cluster has {gpus}; give a larger cluster")
    model = row.model
    batch, batches = row.batch, None
    if adaptive and model.adapted_batch is not None:
        batch = model.adapted_batch
    elif adaptive:
        batch, batches = model.batch_range[0], model.batch_range
    largest = batches[1] if batches else batch
    maximum = min(max(model.most_workers(largest), 1 if adaptive else row.requested), gpus)
    return SimulatedTrainingJob(
        name=row.name,
        submitted=row.submitted,
        model=model,
        requested=min(row.requested, maximum),
        batch=batch,
        maximum=maximum,
        batch_range=batches,
    )


def without_ncf(workload: Workload, key: tuple[str, int], others: Iterable[Workload], models: Models) -> Workload:
    """The same arrivals with each job of NCF, which gains nothing from a second GPU, replaced by one of CIFAR10, as
    Sia's authors did (SOSP 2023). Workers and batch are drawn from those that CIFAR10's jobs have in ``others``, by the
    workload's ``key`` alone. ``ConfigError``: none has."""
    old, new = SMALL[1], SMALL[0]
    setups = sorted({(row.requested, row.batch) for one in others for row in one if row.model.name == new})
    if not setups:
        raise ConfigError(f"workloads: no job of {new} to take workers and batch from; give the published workloads")
    rng = np.random.default_rng([key[1], *key[0].encode()])
    found = []
    for row in workload:
        if row.model.name == old:
            workers, batch = _one_of(setups, rng)
            row = SubmittedJob(f"{row.name}-as-{new}", row.submitted, models[new], workers, batch)
        found.append(row)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class JobArrivals:
    """What workloads are drawn from: (second of the window, GPU-seconds) of past jobs, and how users set models up."""

    jobs: tuple[tuple[float, float], ...]
    configurations: Mapping[str, tuple[tuple[int, int], ...]]

    @classmethod
    def of(cls, philly: str, tuned: Sequence[Workload]) -> JobArrivals:
        """From Philly's jobs as text, and the configurations (workers, batch) in these workloads."""
        jobs: list[tuple[float, float]] = []
        for row in rows(philly, PHILLY_FILE, ("timestamp", "duration", "gpu_time")):
            at = _second_of_day(row["timestamp"]) - FIRST_HOUR * HOUR_S
            gpu_s = positive(row["gpu_time"], least=0.0)
            if 0 <= at < HOURS * HOUR_S and gpu_s < MOST_GPU_S and positive(row["duration"], least=0.0) >= SHORTEST_S:
                jobs.append((at, gpu_s))
        found: dict[str, set[tuple[int, int]]] = {}
        for job in (job for workload in tuned for job in workload):
            found.setdefault(job.model.name, set()).add((job.requested, job.batch))
        return cls(tuple(jobs), {name: tuple(sorted(some)) for name, some in found.items()})

    def draw(self, seed: int, count: int, models: Models) -> Workload:
        """``count`` jobs: Pollux' recipe (section 5.3), by GPU time into small, medium, large and largest models."""
        rng = np.random.default_rng(seed)
        drawn: list[tuple[float, str, tuple[int, int]]] = []
        for chosen in rng.choice(len(self.jobs), count, replace=False).tolist():
            at, gpu_s = self.jobs[chosen]
            hours = gpu_s / HOUR_S
            name = LARGEST
            if hours < 1.0:
                name = _one_of(SMALL, rng)
            elif hours < 10.0:
                name = _one_of(MEDIUM, rng)
            elif hours < 100.0:
                name = LARGE
            drawn.append((at, name, _one_of(self.configurations[name], rng)))
        drawn.sort()
        return tuple(
            SubmittedJob(f"{name}-{number}", at, models[name], workers, batch)
            for number, (at, name, (workers, batch)) in enumerate(drawn)
        )


def _one_of(choices: Sequence[T], rng: np.random.Generator) -> T:
    return choices[int(rng.integers(len(choices)))]


def _second_of_day(cell: Cell) -> float:
    parts = cell.text.strip()[-8:].split(":")
    if len(parts) != 3 or not all(part.isdigit() for part in parts):
        raise cell.bad("give a time such as 2017-10-09 07:01:55")
    hours, minutes, seconds = map(int, parts)
    return hours * HOUR_S + minutes * 60.0 + seconds
