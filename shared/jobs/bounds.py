"""Which of a policy's wishes are carried out: bounds of each job and what the GPUs hold. Pure.

A policy is not trusted. What it may not do is left as it is, job by job, with a line that says why; the others go on.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from shared.jobs.observation import Decision, JobAllocation, JobObservation, JobsObservation

EPSILON = 1e-9


class Allowed(Struct, frozen=True):
    """``changes``: what is carried out, by job; ``refused``: what is not, and why."""

    changes: dict[str, JobAllocation]
    refused: dict[str, str]


def workers_of(job: JobObservation, decision: Decision) -> int:
    """How many workers the job has under a decision."""
    wanted = decision.get(job.name)
    return job.workers if wanted is None else wanted.workers


def allow(seen: JobsObservation, decision: Decision, *, may_stop: Iterable[str] = ()) -> Allowed:
    """``may_stop``: jobs that may be taken to 0 while they run; any other keeps at least its minimum."""
    stoppable, jobs = set(may_stop), {job.name: job for job in seen.jobs}
    changes: dict[str, JobAllocation] = {}
    refused: dict[str, str] = {}
    for name, wanted in decision.items():
        job = jobs.get(name)
        if job is None:
            refused[name] = "there is no such job"
        elif problem := _problem(job, wanted, stoppable):
            refused[name] = problem
        elif wanted.workers != job.workers or (wanted.batch or job.batch_now) != job.batch_now:
            changes[name] = wanted
    _hold_to_capacity(seen, changes, refused)
    return Allowed(changes, refused)


def _problem(job: JobObservation, wanted: JobAllocation, stoppable: set[str]) -> str:
    count = wanted.workers
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        return f"{count!r} workers: not a number of workers"
    if count == 0 and job.workers > 0 and job.name not in stoppable:
        return "0 workers: it runs, and may not be stopped (it has no checkpoint)"
    if count and count != job.workers and not job.minimum <= count <= job.maximum:
        return f"{count} workers: not from {job.minimum} to {job.maximum}"
    if wanted.batch is not None:
        low, high = job.batch_range or (job.batch, job.batch)
        if isinstance(wanted.batch, bool) or not low <= wanted.batch <= high:
            return f"batch {wanted.batch!r}: not from {low} to {high}"
    return ""


def capacity(seen: JobsObservation) -> float:
    """GPUs of all nodes."""
    return float(sum(node.gpus for node in seen.nodes))


def _hold_to_capacity(seen: JobsObservation, changes: dict[str, JobAllocation], refused: dict[str, str]) -> None:
    """Of growth that no GPU is left for, the jobs that came last wait: what shrinks goes first, so that nobody is held
    back by what is about to be free."""
    free = capacity(seen)
    for job in seen.jobs:
        after = changes[job.name].workers if job.name in changes else job.workers
        stays = min(after, job.workers)
        free -= stays * job.gpus_per_worker + (job.server_gpus if stays else 0.0)
    for job in seen.jobs:
        wanted = changes.get(job.name)
        if wanted is None or wanted.workers <= job.workers:
            continue
        needs = (wanted.workers - job.workers) * job.gpus_per_worker + (0.0 if job.workers else job.server_gpus)
        if needs <= 0.0:
            continue
        if needs <= free + EPSILON:
            free -= needs
        else:
            del changes[job.name]
            refused[job.name] = f"{wanted.workers} workers: {needs:g} more GPUs, and {max(0.0, free):g} are free"
