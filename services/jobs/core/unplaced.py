"""Workers that do not begin hold GPUs in the books, or on a node, and train nothing: these are given back in time.

    no node takes some of its pods, a kubelet cannot start them (``following.TABLE``: patience),
    the API server does not make them (``REFUSED_S``)
        --> the minimum stands: it goes on with what stands
        --> it does not: none, told why, tried again later

The wait before the next attempt doubles from ``start_timeout_s`` to ``MOST_S``; a new spec is tried at once. A job
without a checkpoint that has run is never stopped while a worker of it runs. A new leader counts from when it saw it
first.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from services.jobs.core.following import SLOW
from services.jobs.core.holding import DOES_NOT_FIT, begun, refusal_of, what_holds
from services.jobs.core.members import has_succeeded, live, runs, workers_of
from services.jobs.core.state import JobsState, JobState
from shared.backoff import backoff_s
from shared.model.controllers.training_job import (
    PARAMETER_SERVER,
    JobPhase,
    JobStatus,
    PodState,
    TrainingJob,
    WorkerPod,
)

MOST_S = 3600.0
WRITE_REFUSED = "WriteRefused"
REFUSED_S = 60.0
"""So long the API server may refuse to make the pods of a job that others gave GPUs to: twice the grace period that
pods on their way out have unless they say otherwise, since a quota counts those until they are gone."""


def standing(job: TrainingJob, pods: Sequence[WorkerPod], *, begin: bool = False) -> int:
    """Workers that have a node, and are not stuck there (``begin``: whose program has begun); 0 where the one that all
    meet at or a parameter server is not among them."""
    placed = [pod for pod in live(pods) if pod.node and pod.state is not PodState.STUCK and (begun(pod) or not begin)]
    workers = workers_of(placed)
    servers = sum(pod.role == PARAMETER_SERVER for pod in placed)
    met = any(pod.index == job.status.rendezvous for pod in workers)
    return len(workers) if servers >= job.ps and met else 0


def watch_places(state: JobsState, seen: JobState, now: float) -> None:
    """Note since when some of its pods have no node, or do not begin; each that does begins the wait anew, and one
    that is still on its way out. One that a kubelet refuses has its place for a moment: that is no beginning."""
    job, pods, wall = seen.job, state.pods_of(seen.job), state.wall(now)
    target = job.status.target
    holds = job.gpu_milli or (job.ps and job.ps_gpu_milli) or state.queues
    enough, begins = min(target, job.maximum), max(job.status.changed, job.status.retry_at)
    leaving = any(pod.state is PodState.LEAVING for pod in pods)
    waits = bool(target and holds and not leaving and not job.problem and not has_succeeded(pods))
    placed, started = standing(job, pods), standing(job, pods, begin=True)
    seen.unplaced_since, seen.placed = _since(seen.unplaced_since, seen.placed, placed, enough, begins, wall, waits)
    seen.slow_since, seen.begun = _since(seen.slow_since, seen.begun, started, enough, begins, wall, waits)


def _since(
    since: float, most: int, there: int, enough: int, begins: float, wall: float, waits: bool
) -> tuple[float, int]:
    """(since when too few are there, the most that were since then)."""
    if not waits or there >= enough:
        return 0.0, 0
    if not since or there > most:
        return max(wall, begins), there
    return max(since, begins), most


def target_left(state: JobsState, seen: JobState, now: float) -> int | None:
    """What the job keeps once its wait is over; None: nothing is given back."""
    job, wall, patience_s = seen.job, state.wall(now), state.settings.start_timeout_s
    refusal = refusal_of(state, job)
    if refusal and standing(job, state.pods_of(job)) < job.minimum and not _making_room(state, job.namespace):
        patience_s = min(patience_s, REFUSED_S)
    unplaced = bool(seen.unplaced_since) and wall - seen.unplaced_since >= patience_s
    slow = bool(seen.slow_since) and wall - seen.slow_since >= SLOW * patience_s
    if not unplaced and not slow:
        return None
    pods = state.pods_of(job)
    left = standing(job, pods, begin=not unplaced)
    if left < job.minimum:
        left = 0
        if not job.checkpoint and job.status.started and any(map(runs, workers_of(pods))):
            return None
    held = what_holds(state, seen, pods)
    if refusal:
        seen.given_back = (WRITE_REFUSED, refusal)
    else:
        seen.given_back = ((held.reason or DOES_NOT_FIT), held.message) if held is not None else (DOES_NOT_FIT, "")
    return left


def _making_room(state: JobsState, namespace: str) -> bool:
    """Whether pods of the namespace are on their way out, which its quotas count until they are gone."""
    return any(pod.namespace == namespace and pod.terminating for pod in state.pods.values())


def give_back(state: JobsState, status: JobStatus, left: int, wall: float) -> JobStatus:
    """The status with that many workers; with none it is tried again after a wait."""
    if left:
        return replace(status, target=left)
    first_s = state.settings.start_timeout_s
    wait_s = backoff_s(status.unplaced + 1, first_s=first_s, most_s=max(first_s, MOST_S), drawn=1.0)
    return replace(status, target=0, unplaced=status.unplaced + 1, retry_at=float(int(wall + wait_s)))


def begin_anew(job: TrainingJob, status: JobStatus, *, freed: bool = False) -> JobStatus:
    """Nothing is held against a job that runs, or whose spec is another. ``freed``: a name that it needs, and that was
    somebody else's, is free by now."""
    if not status.unplaced:
        return status
    if (freed or job.generation != job.status.observed_generation) and not status.target:
        return replace(status, unplaced=0, retry_at=0.0)
    return replace(status, unplaced=0) if status.phase is JobPhase.RUNNING else status


def waits_for_room(job: TrainingJob, wall: float) -> bool:
    """Whether its GPUs were given back and the next attempt is not yet due: no policy is asked about it."""
    changed = job.generation != job.status.observed_generation
    return not job.status.target and bool(job.status.unplaced) and job.status.retry_at > wall and not changed
