"""Builders for tests of training jobs: the example's models, jobs of them, nodes, observations with a made-up speed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lab.jobs.example import example_tables
from lab.jobs.tables import CONVERGENCE_FILE, THROUGHPUT_FILE, Models, read_models
from lab.worlds.training.simulation import SimulatedTrainingJob
from shared.jobs.observation import JobObservation, JobsObservation, NodeObservation

DATA = Path(os.environ.get("CONCLAVE_SHARED", Path(__file__).parents[1].parent / "shared")) / "data" / "dljobs"


def measured_tables() -> dict[str, str]:
    """The user's tables, or the test is skipped."""
    if not (DATA / THROUGHPUT_FILE).exists():
        pytest.skip(f"no tables: {DATA / THROUGHPUT_FILE} is missing (CONCLAVE_SHARED names the folder)")
    return {file.name: file.read_text() for file in DATA.glob("pollux_*.csv")}


@cache
def example_models() -> Models:
    tables = example_tables()
    return read_models(tables[THROUGHPUT_FILE], tables[CONVERGENCE_FILE])


def training_job(name: str, model: str = "small", **changes: Any) -> SimulatedTrainingJob:
    """A job of an example model: 2 workers, batch 64, from second 0."""
    given = {"submitted": 0.0, "requested": 2, "batch": 64, "maximum": 8}
    return SimulatedTrainingJob(name=name, model=example_models()[model], **{**given, **changes})


def make_nodes(count: int = 2, gpus: int = 4) -> tuple[NodeObservation, ...]:
    return tuple(NodeObservation(name=f"n{at}", gpus=gpus) for at in range(count))


@dataclass(frozen=True)
class ConstantSpeed:
    """So many samples per second with so many workers, wherever they stand; every sample is worth one."""

    by_workers: tuple[float, ...]
    spanning: float = 1.0
    """Share of it that is left over several nodes."""

    def samples_per_s(self, placement: tuple[int, ...], batch: int, gpu_type: str) -> float:
        workers = sum(placement)
        known = self.by_workers[workers - 1] if workers <= len(self.by_workers) else 0.0
        return known * (self.spanning if len(placement) > 1 else 1.0)

    def efficiency(self, batch: int, progress: float) -> float:
        return 1.0


LINEAR = ConstantSpeed(tuple(float(workers) for workers in range(1, 17)))


def seen_job(name: str, **changes: Any) -> JobObservation:
    """A job that waits, asks for one worker of at most 8, and has 100 samples left at one a second per worker."""
    given: dict[str, Any] = {
        "submitted": 0.0,
        "minimum": 1,
        "maximum": 8,
        "requested": 1,
        "batch": 64,
        "progress": 0.0,
        "remaining_samples": 100.0,
        "speed": LINEAR,
    }
    given.update(changes)
    if "placement" in changes:
        given["workers"] = sum(changes["placement"].values())
    return JobObservation(name=name, **given)


def observation(*jobs: JobObservation, nodes: tuple[NodeObservation, ...] = (), now: float = 600.0) -> JobsObservation:
    return JobsObservation(now=now, jobs=jobs, nodes=nodes or make_nodes())


def workers_of(decision: Any) -> dict[str, int]:
    """Workers by job that a decision names, those with none left out."""
    return {name: allocation.workers for name, allocation in decision.items() if allocation.workers}
