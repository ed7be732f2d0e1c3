"""Where ``jobs-sets`` learns: Twin A, whose changes cost nothing, and workloads drawn for Twin B by Pollux' recipe,
where each costs 30 s. What is reached on a seed is one number: mean hours from submission to end, and on Twin B the
tail too, as ``marginal`` was chosen there.

Twin B's tables lie in a folder; whoever plays reads them, so that an order stays small on its way to another process.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from lab.jobs.clusters import POLLUX
from lab.jobs.playing import PlayedRun, play_jobs
from lab.jobs.tables import CONVERGENCE_FILE, THROUGHPUT_FILE, Models, read_models
from lab.jobs.twin_a import TwinOrder, play_twin
from lab.jobs.workloads import PHILLY_FILE, WORKLOADS_FILE, JobArrivals, jobs_of, parse_workloads
from lab.worlds.training.simulation import SimulationSettings
from shared.errors import ConfigError
from shared.jobs.observation import Policy

JOBS, LEAST_JOBS, MOST_JOBS = 160, 80, 280
"""In a workload of Twin B's: to validate on, and the range to learn on, which are loads of 0.5 to 1.75."""
JOBS_STREAM = 31
TUNED = "tuned"
"""The set of Pollux' workloads whose users' setups are drawn from."""
TAIL = 0.2
"""Twin B's number is mean · p99^TAIL, hours both."""


@dataclass(frozen=True, slots=True)
class Playground:
    """``tables``: the folder of Twin B's; None: this is Twin A."""

    name: str
    workloads: int
    """Played by each network in a generation."""
    taught: int
    """Whose decisions are imitated."""
    validation: tuple[int, ...]
    tables: Path | None = None

    def play(self, policy: Policy, seed: int) -> PlayedRun:
        """One workload. ``ConfigError``: no tables."""
        if self.tables is None:
            return play_twin(TwinOrder(policy=policy, seed=seed))
        count = JOBS
        if seed not in self.validation:
            count = int(np.random.default_rng([seed, JOBS_STREAM]).integers(LEAST_JOBS, MOST_JOBS + 1))
        arrivals, models = _read(self.tables)
        jobs = jobs_of(arrivals.draw(seed, count, models), gpus=POLLUX.gpus, adaptive=True)
        return play_jobs(jobs, POLLUX, policy, seed, SimulationSettings())

    def number(self, policy: Policy, seed: int) -> float:
        """What a policy reaches on one workload; less is better."""
        figures = self.play(policy, seed).figures()
        return figures["avg_jct_h"] * (1.0 if self.tables is None else figures["p99_jct_h"] ** TAIL)


def playgrounds_of(tables: Path) -> tuple[Playground, ...]:
    """Both twins. ``ConfigError``: a table of Twin B is not there."""
    for name in (WORKLOADS_FILE, PHILLY_FILE, THROUGHPUT_FILE, CONVERGENCE_FILE):
        _text(tables, name)
    return (
        Playground("Twin A", workloads=4, taught=12, validation=tuple(range(100, 110))),
        Playground("Twin B", workloads=3, taught=4, validation=tuple(range(100, 106)), tables=tables),
    )


def default_tables() -> Path:
    """Where they lie: $CONCLAVE_SHARED/data/dljobs, default beside the project."""
    return Path(os.environ.get("CONCLAVE_SHARED", "../shared")) / "data" / "dljobs"


def mean(numbers: Sequence[float]) -> float:
    """Of some workloads."""
    return sum(numbers) / len(numbers)


@lru_cache(maxsize=2)
def _read(tables: Path) -> tuple[JobArrivals, Models]:
    models = read_models(_text(tables, THROUGHPUT_FILE), _text(tables, CONVERGENCE_FILE))
    file = tables / WORKLOADS_FILE
    known = parse_workloads(_text(tables, WORKLOADS_FILE), str(file), models)
    tuned = [workload for (name, _), workload in known.items() if name == TUNED]
    return JobArrivals.of(_text(tables, PHILLY_FILE), tuned), models


def _text(tables: Path, name: str) -> str:
    for file in (tables / name, tables / f"{name}.gz"):
        if file.exists():
            raw = file.read_bytes()
            return (gzip.decompress(raw) if file.suffix == ".gz" else raw).decode()
    raise ConfigError(f"training data: {tables / name} is missing; set CONCLAVE_SHARED to the folder of data/dljobs")
