"""What a decision is worth: the progress that it is expected to bring, in units of one worker of each job. Pure.

    worth = sum over jobs of goodput(what it gets) / goodput(one worker of it) · (1 - restart_s / HORIZON_S if changed)

Goodput is Pollux' (samples per second times what a sample is worth). Divided by the job's own, a job with fast samples
counts no more than one with slow ones: it is the job's rate of progress, up to a factor that is the same for both
policies that are compared.
"""

from __future__ import annotations

from collections.abc import Collection
from math import sqrt

from shared.decide.judging import Gap
from shared.jobs.bounds import Allowed
from shared.jobs.observation import JobAllocation, JobObservation, JobsObservation
from shared.jobs.online.learned import PRIOR_MEAN, PRIOR_SD, spread_of
from shared.jobs.policies.goodput import even

HORIZON_S = 600.0
"""A change is taken to hold so long: the restart is paid once in it."""


def compared(seen: JobsObservation, teacher: Allowed, other: Allowed, jobs: Collection[str]) -> Gap:
    """Over these jobs. A job that both give the same adds no error: its speed cancels out."""
    base = more = variance = 0.0
    per_node = max((node.gpus for node in seen.nodes), default=1)
    for job in seen.jobs:
        if job.name not in jobs:
            continue
        mine, theirs = teacher.changes.get(job.name), other.changes.get(job.name)
        one, one_sd = rate(job, mine, per_node)
        base += one
        if _count(job, mine) != _count(job, theirs) or _batch(job, mine) != _batch(job, theirs):
            two, two_sd = rate(job, theirs, per_node)
            more += two - one
            variance += one_sd**2 + two_sd**2
    return Gap(base, more, sqrt(variance))


def rate(job: JobObservation, wish: JobAllocation | None, per_node: int) -> tuple[float, float]:
    """(the job's part of the worth, its standard deviation); ``wish`` None: it keeps what it has."""
    workers, batch = _count(job, wish), _batch(job, wish)
    if workers <= 0:
        return 0.0, 0.0
    per = max(1, int(per_node / job.gpus_per_worker)) if job.gpus_per_worker > 0 else workers
    placement = even(-(-workers // per), workers)
    changed = job.workers > 0 and workers != job.workers
    paid = max(0.0, 1.0 - job.restart_s / HORIZON_S) if changed else 1.0
    if job.speed is None:
        found = workers ** PRIOR_MEAN[1] * paid
        return found, found * PRIOR_SD[1] * (workers > 1)
    alone = job.speed.samples_per_s((1,), job.batch, "") * job.speed.efficiency(job.batch, job.progress or 0.0)
    speed = job.speed.samples_per_s(placement, batch, "") * job.speed.efficiency(batch, job.progress or 0.0)
    found = speed / alone * paid if alone > 0 else 0.0
    return found, found * min(1.0, spread_of(job.speed, placement, batch))


def _count(job: JobObservation, wish: JobAllocation | None) -> int:
    return job.workers if wish is None else wish.workers


def _batch(job: JobObservation, wish: JobAllocation | None) -> int:
    return (wish.batch if wish is not None else None) or job.batch_now or job.batch
