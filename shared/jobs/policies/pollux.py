"""Pollux (Qiao et al., OSDI 2021): a genetic search over whole allocations for the fairest goodput of all jobs.

What is maximised is the power mean with p = -1 of each job's speedup over its fair share, times a factor below 1 for
jobs that would restart (section 4.2). A job may grow to twice the workers that it ever had, so that its speed is
learned step by step. At most one job that spans nodes stands on a node. Deviations from the authors' simulator:

1. speeds are the observation's, not a model fitted to what a job has run with so far;
2. one objective, not two: the second one there serves autoscaling, which there is none of here;
3. fewer generations a round, since the population lives on from round to round (``GENERATIONS``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shared.jobs.observation import Decision, JobAllocation, JobObservation, JobsObservation
from shared.jobs.policies.goodput import Floats, Goodputs, GoodputTables, best_batch
from shared.jobs.policies.pollux_search import Problem, States, search

POPULATION = 64
GENERATIONS = 24
RESTART_S = 30.0
SMALLEST = 1e-3
"""Added to each speedup, so that a job without workers counts much, but not infinitely."""
POWER = -1.0


class Pollux:
    """Keeps its population and how far each job has grown."""

    name = "pollux"

    def __init__(self, population: int = POPULATION, generations: int = GENERATIONS) -> None:
        self._population, self._generations = population, generations
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Begin with nothing known."""
        self._rng = np.random.default_rng(seed)
        self._grown: dict[str, int] = {}
        self._last: tuple[list[str], tuple[str, ...], States] | None = None
        self._tables: GoodputTables | None = None

    def decide(self, seen: JobsObservation) -> Decision:
        """The fittest allocation found, and each running job's best batch on it."""
        if self._tables is None or not self._tables.fits(seen):
            self._tables = GoodputTables(seen)
        jobs = sorted(seen.jobs, key=lambda job: (job.attained_s, job.submitted))
        self._grown = {job.name: max(self._grown.get(job.name, 0), job.workers) for job in jobs}
        tables = [self._tables.of(job) for job in jobs]
        nodes = tuple(node.name for node in seen.nodes)
        base = np.array([[job.placement.get(node, 0) for node in nodes] for job in jobs], np.int16)
        problem = Problem(
            base=base,
            gpus=np.array([node.gpus for node in seen.nodes], np.int16),
            most=np.array([min(max(2 * self._grown[job.name], 1), job.maximum) for job in jobs], np.int16),
            least=np.array([job.minimum for job in jobs], np.int16),
            worth=_worths(jobs, tables, self._tables),
            factor=np.array([restart_factor(job, seen.now) for job in jobs]),
        )
        states = search(problem, self._begin(jobs, nodes, base), self._population, self._generations, self._rng)
        self._last = ([job.name for job in jobs], nodes, states)
        return {
            job.name: _allocation(
                job, table, {node: int(count) for node, count in zip(nodes, row, strict=True) if count}
            )
            for job, table, row in zip(jobs, tables, states[0], strict=True)
        }

    def _begin(self, jobs: Sequence[JobObservation], nodes: tuple[str, ...], base: NDArray[np.int16]) -> States:
        """The last population with the jobs of now, and what stands."""
        if self._last is None or self._last[1] != nodes:
            return base[None]
        names, _, before = self._last
        was = {name: at for at, name in enumerate(names)}
        states = np.zeros((len(before), *base.shape), np.int16)
        here = [at for at, job in enumerate(jobs) if job.name in was]
        states[:, here] = before[:, [was[jobs[at].name] for at in here]]
        return np.concatenate([base[None], states])


def restart_factor(job: JobObservation, now: float) -> float:
    """What a job's speedup counts for if it restarts: its past share of time not spent in restarts (section 4.2)."""
    age = now - job.submitted
    return max(age - job.restarts * RESTART_S, 0.0) / (age + RESTART_S)


def _worths(jobs: Sequence[JobObservation], tables: Sequence[Goodputs | None], shape: GoodputTables) -> Floats:
    """float64 [jobs, nodes + 1, workers + 1]: speedup over the fair share, scaled so that one node's share is 1."""
    fair = -(-shape.workers // len(jobs))
    worths = np.zeros((len(jobs), shape.nodes + 1, shape.workers + 1))
    scale = shape.nodes / shape.workers
    for at, (job, table) in enumerate(zip(jobs, tables, strict=True)):
        if table is None:
            worths[at] = np.arange(shape.workers + 1) / fair * scale
            continue
        workers = min(fair, job.maximum)
        usual = table.rate[-(-workers // shape.per_node), workers] or table.rate.max() or 1.0
        worths[at] = table.rate / usual * scale
    return worths


def _allocation(job: JobObservation, table: Goodputs | None, placement: dict[str, int]) -> JobAllocation:
    if table is not None and not table.rate[len(placement), sum(placement.values())]:
        placement = {}  # it cannot run so
    batch = best_batch(table, placement) if placement and table is not None and job.batch_range else None
    return JobAllocation(workers=sum(placement.values()), placement=placement, batch=batch)
