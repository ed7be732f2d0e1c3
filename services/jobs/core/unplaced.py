"""Workers that no node takes hold GPUs in the books and nowhere else: after ``start_timeout_s`` these are given back.

    some of its pods have no node for so long --> the minimum stands: it goes on with what stands
                                              --> it does not: none, told (``DoesNotFit``), tried again later

The wait before the next attempt doubles from ``start_timeout_s`` to ``MOST_S``; a new spec is tried at once. A job
without a checkpoint is never stopped while a worker of it runs. One with a Queue waits as long as its Queue lets it:
made anew it would lose its turn there. A new leader counts from when it saw it first.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from services.jobs.core.members import has_succeeded, live, runs, workers_of
from services.jobs.core.state import JobState, State
from shared.backoff import backoff_s
from shared.model.training_job import PARAMETER_SERVER, JobStatus, Phase, TrainingJob, WorkerPod

MOST_S = 3600.0


def standing(job: TrainingJob, pods: Sequence[WorkerPod]) -> int:
    """Workers that have a node; 0 where the first of the rendezvous or a parameter server has none."""
    placed = [pod for pod in live(pods) if pod.node]
    workers = workers_of(placed)
    servers = sum(pod.role == PARAMETER_SERVER for pod in placed)
    return len(workers) if servers >= job.ps and any(pod.index == 0 for pod in workers) else 0


def watch_places(state: State, seen: JobState, now: float) -> None:
    """Note since when some of its pods have no node; each that gets one begins the wait anew."""
    job, pods, wall = seen.job, state.pods_of(seen.job), state.wall(now)
    target, holds_gpus = job.status.target, job.gpu_milli or (job.ps and job.ps_gpu_milli)
    placed = standing(job, pods)
    other = job.queue or job.problem or has_succeeded(pods)
    if not target or placed >= min(target, job.maximum) or not holds_gpus or other:
        seen.unplaced_since = 0.0
        return
    begins = max(job.status.changed, job.status.retry_at)
    if not seen.unplaced_since or placed > seen.placed:
        seen.unplaced_since = wall
    seen.unplaced_since = max(seen.unplaced_since, begins)
    seen.placed = placed


def target_left(state: State, seen: JobState, now: float) -> int | None:
    """What the job keeps once its wait for nodes is over; None: nothing is given back."""
    job = seen.job
    if not seen.unplaced_since or state.wall(now) - seen.unplaced_since < state.settings.start_timeout_s:
        return None
    pods = state.pods_of(job)
    placed = standing(job, pods)
    if placed >= job.minimum:
        return placed
    return None if not job.checkpoint and any(map(runs, workers_of(pods))) else 0


def give_back(state: State, status: JobStatus, left: int, wall: float) -> JobStatus:
    """The status with that many workers; with none it is tried again after a wait."""
    if left:
        return replace(status, target=left)
    first_s = state.settings.start_timeout_s
    wait_s = backoff_s(status.unplaced + 1, first_s=first_s, most_s=max(first_s, MOST_S), drawn=1.0)
    return replace(status, target=0, unplaced=status.unplaced + 1, retry_at=float(int(wall + wait_s)))


def begin_anew(job: TrainingJob, status: JobStatus) -> JobStatus:
    """Nothing is held against a job that runs, or whose spec is another."""
    if not status.unplaced:
        return status
    if job.generation != job.status.observed_generation and not status.target:
        return replace(status, unplaced=0, retry_at=0.0)
    return replace(status, unplaced=0) if status.phase is Phase.RUNNING else status


def waits_for_room(job: TrainingJob, wall: float) -> bool:
    """Whether its GPUs were given back and the next attempt is not yet due: no policy is asked about it."""
    changed = job.generation != job.status.observed_generation
    return not job.status.target and bool(job.status.unplaced) and job.status.retry_at > wall and not changed
