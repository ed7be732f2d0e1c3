"""One run: a workload on a cluster by a policy, as an order that another process can carry out, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean

import numpy as np

from lab.jobs.clusters import JobsCluster
from lab.jobs.learning import LearningSpeeds
from lab.jobs.tables import CONVERGENCE_FILE, THROUGHPUT_FILE, Models, read_models
from lab.jobs.workloads import Workload, jobs_of, parse_workloads, without_ncf
from lab.worlds.training.simulation import (
    JobOutcome,
    ScheduleChange,
    SimulatedTrainingJob,
    Simulation,
    SimulationSettings,
    run,
)
from shared.errors import ConfigError
from shared.jobs.observation import Decision, JobsObservation, Policy
from shared.jobs.registry import ADAPTS_BATCH, POLICIES, make

HOUR_S = 3600.0
QUANTILES = 201


@dataclass(frozen=True, slots=True)
class WorkloadSource:
    """The text of a workload's file and of the tables: all that its jobs follow from."""

    workloads: str
    file: str
    throughput: str
    convergence: str

    @classmethod
    def of(cls, workloads: str, file: str, tables: Mapping[str, str]) -> WorkloadSource:
        """``tables``: text by file name. ``ConfigError``: one is missing."""
        for name in (THROUGHPUT_FILE, CONVERGENCE_FILE):
            if name not in tables:
                raise ConfigError(f"--tables: {name} is missing; give the folder with the measured tables")
        return cls(workloads, file, tables[THROUGHPUT_FILE], tables[CONVERGENCE_FILE])

    @property
    def models(self) -> Models:
        """The tables, read."""
        return read_models(self.throughput, self.convergence)

    def read(self) -> dict[tuple[str, int], Workload]:
        """The workloads, read."""
        return _workloads(self)


@lru_cache(maxsize=4)
def _workloads(source: WorkloadSource) -> dict[tuple[str, int], Workload]:
    return parse_workloads(source.workloads, source.file, source.models)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOrder:
    """One run to be played. It holds text and settings alone, so that it goes to another process."""

    source: WorkloadSource
    workload: tuple[str, int]
    cluster: JobsCluster
    policy: str
    seed: int
    second_set: bool = False
    """NCF's jobs are CIFAR10's (``workloads.without_ncf``)."""
    learned_speeds: bool = False
    """The policy knows no tables, only what jobs report (``learning.py``)."""
    adaptive: bool | None = None
    """Whether policies choose batches; None: as the policy is made for."""
    settings: SimulationSettings
    clock: Callable[[], float] | None = None
    """CPU seconds; None: decisions are not timed."""


@dataclass(frozen=True, slots=True)
class PlayedRun:
    """What became of one run."""

    outcomes: tuple[JobOutcome, ...]
    changes: tuple[ScheduleChange, ...]
    refused: tuple[str, ...]
    decide_s: tuple[float, ...]
    """CPU seconds of each decision, where it was timed."""
    most_s: float

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Jobs that had not ended when the run was given up."""
        return tuple(one.name for one in self.outcomes if one.ended is None)

    def hours(self) -> list[float]:
        """From submission to end of each job; of one that did not end, as long as the run lasted."""
        return [min(one.completion_s, self.most_s - one.submitted) / HOUR_S for one in self.outcomes]

    def figures(self) -> dict[str, float]:
        """What is reported of a run; hours, and a job that did not end counts as long as the run lasted."""
        hours = np.array(self.hours())
        found = {
            "avg_jct_h": float(hours.mean()),
            "p50_jct_h": float(np.percentile(hours, 50)),
            # the value of one job, as in the published results: the 158th of 160
            "p99_jct_h": float(np.percentile(hours, 99, method="lower")),
            "makespan_h": max((one.ended or self.most_s) for one in self.outcomes) / HOUR_S,
            "restarts_per_job": fmean(one.restarts for one in self.outcomes),
            "gpu_hours": sum(one.attained_s for one in self.outcomes) / HOUR_S,
            "unfinished": float(len(self.unfinished)),
            "refused_decisions": float(len(self.refused)),
        }
        if self.decide_s:
            found["decide_ms"] = 1000.0 * fmean(self.decide_s)
            found["decide_p99_ms"] = 1000.0 * float(np.percentile(self.decide_s, 99))
        return found


def quantiles(runs: Sequence[PlayedRun]) -> tuple[float, ...]:
    """Of the hours of all jobs of these runs together: ``QUANTILES`` of them, evenly from the least to the most."""
    hours = [one for played in runs for one in played.hours()]
    return tuple(np.quantile(hours, np.linspace(0.0, 1.0, QUANTILES)).round(6).tolist())


class Timed:
    """A policy whose decisions are timed by a clock that is handed in."""

    def __init__(self, policy: Policy, clock: Callable[[], float]) -> None:
        self.name = policy.name
        self._policy, self._clock = policy, clock
        self.seconds: list[float] = []

    def reset(self, seed: int) -> None:
        """Begin anew."""
        self._policy.reset(seed)

    def decide(self, seen: JobsObservation) -> Decision:
        """The policy's decision."""
        began = self._clock()
        decision = self._policy.decide(seen)
        self.seconds.append(self._clock() - began)
        return decision


def play(order: RunOrder) -> PlayedRun:
    """Carry an order out. ``ConfigError``: a policy, workload or job that cannot be played."""
    workload = order.source.read().get(order.workload)
    if workload is None:
        raise ConfigError(
            f"{order.source.file}: no workload {order.workload[1]} of {order.workload[0]!r}; give another"
        )
    if order.second_set:
        workload = without_ncf(workload, order.workload, order.source.read().values(), order.source.models)
    adaptive = ADAPTS_BATCH in POLICIES.entry(order.policy).traits if order.adaptive is None else order.adaptive
    jobs = jobs_of(workload, gpus=order.cluster.gpus, adaptive=adaptive)
    policy: Policy = make(order.policy)
    if order.learned_speeds:
        policy = LearningSpeeds(policy)
    return play_jobs(jobs, order.cluster, policy, order.seed, order.settings, clock=order.clock)


def play_jobs(
    jobs: Sequence[SimulatedTrainingJob],
    cluster: JobsCluster,
    policy: Policy,
    seed: int,
    settings: SimulationSettings,
    *,
    clock: Callable[[], float] | None = None,
    tick: Callable[[int], None] | None = None,
) -> PlayedRun:
    """These jobs on this cluster by this policy."""
    timed = Timed(policy, clock) if clock is not None else None
    simulation = Simulation(jobs, cluster.nodes, settings, seed)
    outcomes = run(simulation, policy if timed is None else timed, seed, tick)
    return PlayedRun(
        tuple(outcomes),
        tuple(sorted(simulation.changes, key=lambda change: change.time)),
        tuple(simulation.refused),
        tuple(timed.seconds) if timed is not None else (),
        settings.most_s,
    )
