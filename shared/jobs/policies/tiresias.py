"""Tiresias (Gu et al., NSDI 2019), as Pollux' simulator runs it: two queues by attained service, each first come first.

A job begins in the first queue and falls into the second once it has had 16 GPU-hours (discretized 2D-LAS). Going down
the first queue, then the second, each job that still fits has the workers its user asked for; the others are preempted.
A smaller job may run where a larger one before it does not fit. Nobody rises again (no starvation knob).
"""

from __future__ import annotations

from shared.jobs.observation import Decision, JobAllocation, JobsObservation
from shared.jobs.policies.placing import free_of, pack

THRESHOLD_S = 16 * 3600.0
"""GPU-seconds: the value in Pollux' simulator."""


class Tiresias:
    """Discretized least attained service."""

    name = "tiresias"

    def __init__(self, threshold_s: float = THRESHOLD_S) -> None:
        self._threshold_s = threshold_s
        self._queues: tuple[list[str], list[str]] = ([], [])

    def reset(self, seed: int) -> None:  # noqa: ARG002  nothing is drawn
        """Both queues are empty; nothing is drawn."""
        self._queues = ([], [])

    def decide(self, seen: JobsObservation) -> Decision:
        """Who stands far enough in front runs; who keeps running keeps its place."""
        jobs = {job.name: job for job in seen.jobs}
        first, second = ([name for name in queue if name in jobs] for queue in self._queues)
        known = {*first, *second}
        first += [name for name in jobs if name not in known]
        fallen = [name for name in first if jobs[name].workers and jobs[name].attained_s >= self._threshold_s]
        first = [name for name in first if name not in fallen]
        second += fallen
        self._queues = (first, second)
        left = sum(node.gpus for node in seen.nodes)
        runs: list[str] = []
        for name in (*first, *second):
            if jobs[name].requested <= left:
                left -= jobs[name].requested
                runs.append(name)
        stay = {name: jobs[name] for name in runs if jobs[name].workers == jobs[name].requested}
        free = free_of(seen.nodes, (job.placement for job in stay.values()))
        found = {name: JobAllocation(workers=0) for name, job in jobs.items() if job.workers and name not in runs}
        for name in runs:
            if name not in stay:
                workers = jobs[name].requested
                found[name] = JobAllocation(workers=workers, placement=pack(free, workers))
        return found
