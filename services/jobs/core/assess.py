"""What a job's status should say: from the object as it stands, its pods, and what was decided. No I/O, no writes.

The status is the memory that outlives us: a decision, a counted failure and a backoff are in it before anything is done
for them. What it does not need to know at once (figures) is counted up here and written along.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from msgspec.structs import replace

from services.jobs.core.following import row
from services.jobs.core.holding import DOES_NOT_FIT, HeldJob, dark_nodes, refusal_of, unlike_spec, what_holds
from services.jobs.core.members import has_succeeded, live, meeting, runs, workers_of
from services.jobs.core.quotas import condition_of, reason_of
from services.jobs.core.state import JobsState, JobState
from services.jobs.core.unplaced import REFUSED_S, WRITE_REFUSED, begin_anew, give_back, target_left
from shared.backoff import backoff_s
from shared.kube.training.training_status import rfc3339
from shared.kube.training.worker_pods import as_of
from shared.model.controllers.training_job import (
    PARAMETER_SERVER,
    WORKER,
    JobCondition,
    JobPhase,
    JobReport,
    JobStatus,
    PodState,
    TrainingJob,
    WorkerPod,
)

READY, REPORTING, CHECKPOINTING, COMPLETE, FAILED = "Ready", "Reporting", "Checkpointing", "Complete", "Failed"
ACTIVE = frozenset({JobPhase.STARTING, JobPhase.RUNNING, JobPhase.RESHAPING, JobPhase.RESTARTING})
TELLING_S = 1.0
"""Between two writes of what people look for."""
MISSED_CHECKPOINTS = 3.0
"""So many intervals without a checkpoint are told."""
MEAN_OF = 0.5
"""Weight of the newest restart in the mean of what they cost."""


def whole(wall: float) -> float:
    """As the object keeps times."""
    return float(int(wall))


def failed_pod(job: TrainingJob, pods: Sequence[WorkerPod]) -> WorkerPod | None:
    """A pod that failed in the attempt that is under way, by its own fault."""
    for pod in pods:
        if row(pod).fails and pod.attempt >= job.status.attempt:
            return pod
    return None


def note_company(state: JobsState, seen: JobState) -> None:
    """Workers fail where others are taken from them: whoever was evicted or refused, or stands on a node that is lost,
    takes the processes of all with him, and so does the worker that all meet at, once it ran. Each excuses the attempt
    in which it is seen so first, and no other: what fails again with all there, or by itself, fails by its own
    fault."""
    ours = state.of_job.get(seen.job.uid, {})
    for pod in ours.values():
        note_pod(state, seen, pod)
    if seen.met[1] not in ours:
        _left(seen, seen.met[1])


def note_pod(state: JobsState, seen: JobState, pod: WorkerPod, *, gone: bool = False) -> None:
    """The same of one pod, as it changes: at the end of the turn it may be another, or gone."""
    if pod.role != WORKER:
        return
    pod, attempt = as_of(pod, state.wall(state.now)), seen.job.status.attempt
    node = state.nodes.get(pod.node)
    taken = pod.marked or pod.state in (PodState.DISRUPTED, PodState.LOST)
    if taken or (row(pod).fills and node is not None and not node.ready):
        seen.excuses.setdefault(pod.uid, attempt)
    elif pod.state is PodState.RUNNING and not gone:
        seen.excuses.pop(pod.uid, None)  # its node was heard of again
    if gone or pod.state is PodState.LEAVING:
        _left(seen, pod.uid)
    elif pod.state is PodState.RUNNING and pod.index == seen.job.status.rendezvous:
        seen.met = attempt, pod.uid


def _left(seen: JobState, uid: str) -> None:
    """A worker is not there any more, or about to be: did all meet at it?"""
    attempt = seen.job.status.attempt
    if seen.met == (attempt, uid):
        seen.excuses.setdefault(uid, attempt)


def lost_company(seen: JobState) -> bool:
    """Whether what failed in this attempt is excused."""
    return seen.job.status.attempt in seen.excuses.values()


def wanted_target(seen: JobState, pods: Sequence[WorkerPod]) -> int:
    """Workers that the job is to have now."""
    job = seen.job
    target = job.status.target
    if job.problem or has_succeeded(pods):
        return target  # as it is, whatever else is wished
    if job.paused:
        return 0
    if seen.wish is not None:
        target = seen.wish.workers
    return min(target, job.maximum)  # a minimum that was raised waits until there is room: the policy says when


def phase_of(job: TrainingJob, target: int, pods: Sequence[WorkerPod]) -> JobPhase:
    """Where a job is that has not ended."""
    workers = workers_of(pods)
    if has_succeeded(pods):
        return job.status.phase if job.status.phase in ACTIVE else JobPhase.RUNNING
    if target == 0:
        if any(pod.holds and pod.state is not PodState.LOST for pod in pods):
            return JobPhase.STOPPING
        return JobPhase.PAUSED if job.paused else JobPhase.PENDING
    running = sum(map(runs, workers))
    if running >= target and len(live(workers)) <= target:
        return JobPhase.RUNNING
    if running >= job.least:
        return JobPhase.RESHAPING
    return JobPhase.RESTARTING if job.status.started else JobPhase.STARTING


def count_time(state: JobsState, seen: JobState, now: float) -> None:
    """Count the time since it was last counted for the workers that run: asked before one of them is another, else the
    time before is counted for those after. Within a turn none passes."""
    wall, job = state.wall(now), seen.job
    if seen.counted_at == wall:
        return
    pods = [pod for pod in state.pods_of(job) if runs(pod)]
    workers = workers_of(pods)
    if seen.counted_at and workers:
        passed = max(0.0, wall - seen.counted_at)
        servers = sum(pod.role == PARAMETER_SERVER for pod in pods)
        seen.gpu_s += passed * (len(workers) * job.gpu_milli + servers * job.ps_gpu_milli) / 1000
        seen.ran_s += passed if len(workers) >= job.least else 0.0
    seen.counted_at = wall


def watch_members(state: JobsState, seen: JobState, now: float) -> None:
    """Count time, and notice that other workers run than before: each such change is one restart of all of them. Once a
    turn, however many of its pods changed."""
    wall, job = state.wall(now), seen.job
    count_time(state, seen, now)
    pods = state.pods_of(job)
    if has_succeeded(pods):
        return
    workers = [pod for pod in workers_of(pods) if runs(pod)]
    note_company(state, seen)
    now_run, ran = digest(workers), seen.members or job.status.members
    if job.status.target and phase_of(job, job.status.target, pods) is JobPhase.RUNNING:
        if ran and now_run != ran:
            seen.restarts += 1
            seen.awaits_report = seen.change_began or wall
            seen.excuses = {pod.uid: -1 for pod in pods if pod.uid in seen.excuses}
        if now_run != ran or not seen.saved_at:
            seen.saved_at = wall
        seen.members, seen.change_began = now_run, 0.0
        seen.refusals.clear()
    elif ran and now_run != ran and not seen.change_began:
        seen.change_began = wall


def digest(workers: Sequence[WorkerPod]) -> str:
    """The same for the same pods: written with the count of restarts, it says which of them are counted."""
    return hashlib.sha256(" ".join(sorted(pod.uid for pod in workers)).encode()).hexdigest()[:16]


def next_status(state: JobsState, seen: JobState, now: float) -> JobStatus:
    """The status as it should be. It is written only where it differs from the object's."""
    job, old, wall = seen.job, seen.job.status, state.wall(now)
    if job.ended:
        return old
    pods = state.pods_of(job)
    left = target_left(state, seen, now)
    if left is not None:
        seen.wish = None
    target = wanted_target(seen, pods) if left is None else left
    batch = old.batch if seen.wish is None or seen.wish.batch is None else seen.wish.batch
    status = replace(
        old,
        observed_generation=job.generation,
        term=state.term,
        target=target,
        batch=batch,
        rendezvous=meeting(job, pods),
        running=sum(map(runs, workers_of(pods))),
        members=seen.members or old.members,
        restarts=old.restarts + seen.restarts,
        lost_steps=old.lost_steps + seen.lost_steps,
        restart_s=seen.restart_s or old.restart_s,
        gpu_s=old.gpu_s + seen.gpu_s,
        ran_s=old.ran_s + seen.ran_s,
        report=seen.report or old.report,
        changed=whole(wall) if target != old.target else old.changed,
    )
    status = begin_anew(job, status if left is None else give_back(state, status, left, wall), freed=seen.freed)
    succeeded = has_succeeded(pods)
    if succeeded and (not live(workers_of(pods)) or _overdue(state, seen, wall)):
        return _ended(
            status, JobPhase.SUCCEEDED, wall, JobCondition(COMPLETE, "True", "WorkersSucceeded", "it has ended")
        )
    failed = failed_pod(job, pods) if target and not succeeded else None
    if failed is not None:
        status = _failed(state, seen, status, failed, wall)
        said = failed.message or "its log says why"
        if status.failures > job.backoff_limit:
            counted = f"{status.failures} failures, and spec.backoffLimit is {job.backoff_limit}"
            text = f"{failed.name} failed ({said}): {counted}"
            return _ended(status, JobPhase.FAILED, wall, JobCondition(FAILED, "True", "BackoffLimitExceeded", text))
    phase = phase_of(job, target, pods)
    if phase in (JobPhase.RUNNING, JobPhase.RESHAPING) and not status.started:
        status = replace(status, started=whole(wall))
    status = begin_anew(job, replace(status, phase=phase))
    return replace(status, conditions=_conditions(state, seen, status, phase, wall, pods, failed))


def _overdue(state: JobsState, seen: JobState, wall: float) -> bool:
    """Whether the first worker succeeded so long ago that the others will not."""
    seen.finishing_since = seen.finishing_since or wall
    return wall - seen.finishing_since >= state.settings.finish_s


def _failed(state: JobsState, seen: JobState, status: JobStatus, pod: WorkerPod, wall: float) -> JobStatus:
    """One more attempt is over; the next begins after a wait. Pods of the attempts before count no more. Those that
    went down with one that was taken away begin anew at once, and it is nobody's failure."""
    if lost_company(seen):
        return replace(status, attempt=pod.attempt + 1)
    failures = status.failures + 1
    settings = state.settings
    wait_s = backoff_s(failures, first_s=settings.retry_first_s, most_s=settings.retry_most_s)
    return replace(status, attempt=pod.attempt + 1, failures=failures, retry_at=whole(wall + wait_s))


def _ended(status: JobStatus, phase: JobPhase, wall: float, condition: JobCondition) -> JobStatus:
    ready = JobCondition(READY, "False", phase.value, condition.message)
    kept_ones = tuple(one for one in status.conditions if one.type not in (READY, COMPLETE, FAILED))
    return replace(status, phase=phase, running=0, ended=whole(wall), conditions=(ready, *kept_ones, condition))


# --- what is told ---------------------------------------------------------------------------------------------------


def _conditions(
    state: JobsState,
    seen: JobState,
    status: JobStatus,
    phase: JobPhase,
    wall: float,
    pods: Sequence[WorkerPod],
    failed: WorkerPod | None,
) -> tuple[JobCondition, ...]:
    found = [_ready(state, seen, status, phase, wall, pods, failed)]
    if seen.quota is not None and phase not in (JobPhase.PAUSED, JobPhase.STOPPING):
        found.append(condition_of(seen.quota))
    if phase in ACTIVE or status.report != JobReport():
        found.append(_reporting(state, seen, status, phase, wall))
    if seen.job.checkpoint and phase in ACTIVE:
        found.append(_checkpointing(seen, wall))
    return tuple(found)


def _ready(
    state: JobsState,
    seen: JobState,
    status: JobStatus,
    phase: JobPhase,
    wall: float,
    pods: Sequence[WorkerPod],
    failed: WorkerPod | None,
) -> JobCondition:
    job = seen.job
    on = "True" if phase in (JobPhase.RUNNING, JobPhase.RESHAPING) else "False"
    if job.problem:
        return JobCondition(READY, on, "Invalid", f"{job.problem}. What runs of it stays as it is")
    if phase in (JobPhase.STOPPING, JobPhase.PAUSED) and job.paused:
        text = f"spec.paused is true; conclave jobs resume {job.name} -n {job.namespace} goes on from the checkpoint"
        return JobCondition(READY, on, "Paused", text)
    if status.unplaced and not status.target:
        return _given_back(state, seen, status, on)
    if refusal := refusal_of(state, job):
        return JobCondition(READY, on, WRITE_REFUSED, refusal)
    if status.retry_at > wall:
        name = failed.name if failed is not None else "a pod"
        why = f" ({failed.message})" if failed is not None and failed.message else ""
        counted, again = f"{status.failures} of {job.backoff_limit} failures", rfc3339(status.retry_at)
        text = f"{name} failed{why}, {counted}; next attempt at {again}"
        return JobCondition(READY, on, "BackOff", text)
    more = f"; a policy wanted {seen.refused}" if seen.refused else ""
    if 0 < status.target < job.minimum:
        more += f"; spec.workers.minimum, {job.minimum}, holds once there is room for it"
    match phase:
        case JobPhase.PENDING | JobPhase.STOPPING:
            if seen.quota is not None:
                return JobCondition(READY, on, reason_of(seen.quota), seen.quota.text() + more)
            return JobCondition(READY, on, "Waiting", (seen.waits_for or "it waits for its turn") + more)
        case JobPhase.STARTING | JobPhase.RESTARTING:
            held = what_holds(state, seen, pods)
            told = held or HeldJob(phase.value, f"conclave units {job.key} says what the others wait for")
            text = f"{status.running} of at least {job.least} workers run; {told.message}"
            return JobCondition(READY, on, told.reason or phase.value, text + more)
        case JobPhase.RESHAPING:
            held = what_holds(state, seen, pods)
            more = (f"; {held.message}" if held else "") + more
            return JobCondition(
                READY, on, phase.value, f"{status.running} workers run, on the way to {status.target}{more}"
            )
        case _:
            more += unlike_spec(job, pods) + dark_nodes(state, pods)
            return JobCondition(READY, on, phase.value, f"{status.running} workers run{more}")


def _given_back(state: JobsState, seen: JobState, status: JobStatus, on: str) -> JobCondition:
    """Why it has no workers though it had its turn: as this term saw it, else as the object says."""
    reason, said = seen.given_back
    before = next((one for one in seen.job.status.conditions if one.type == READY), None)
    if not reason and before is not None and not seen.job.status.target:
        return replace(before, status=on)
    again = rfc3339(status.retry_at)
    times = "once" if status.unplaced == 1 else f"{status.unplaced} times in a row"
    most_s = REFUSED_S if reason == WRITE_REFUSED else state.settings.start_timeout_s
    waited = f"it was waited for {min(most_s, state.settings.start_timeout_s):g} s, {times}"
    text = f"{said or 'no node took its pods'}; {waited}; its GPUs are given back until {again}"
    return JobCondition(READY, on, reason or DOES_NOT_FIT, text)


def _reporting(state: JobsState, seen: JobState, status: JobStatus, phase: JobPhase, wall: float) -> JobCondition:
    reason, problem = seen.report_problem
    at = status.report.at
    if problem:
        return JobCondition(REPORTING, "False", reason, f"{problem}; what was reported before stands")
    if not at:
        return JobCondition(REPORTING, "Unknown", "NothingReported", "it is divided over GPUs by its bounds alone")
    if phase is JobPhase.RUNNING and wall - max(at, status.changed) > state.settings.silent_after_s:
        text = f"nothing was reported since {rfc3339(at)}; what was reported before stands"
        return JobCondition(REPORTING, "False", "Silent", text)
    return JobCondition(REPORTING, "True", "Reporting", "")


def _checkpointing(seen: JobState, wall: float) -> JobCondition:
    job, every_s = seen.job, seen.job.checkpoint_every_s
    if not every_s or seen.saved_at == 0.0 or wall - seen.saved_at <= MISSED_CHECKPOINTS * every_s:
        return JobCondition(CHECKPOINTING, "True" if seen.saved >= 0 else "Unknown", "AsPlanned", "")
    text = (
        f"no checkpoint was reported for {MISSED_CHECKPOINTS:g} times spec.checkpoint.intervalSeconds ({every_s:g}); "
        f"a restart would lose all since: look at {job.checkpoint}, or report checkpoint_steps"
    )
    return JobCondition(CHECKPOINTING, "False", "NoCheckpoint", text)


# --- what is worth a write ------------------------------------------------------------------------------------------


def decisive(status: JobStatus) -> tuple[object, ...]:
    """What is written at once."""
    return (
        status.phase, status.target, status.batch, status.members, status.attempt, status.failures, status.restarts,
        status.retry_at, status.unplaced, status.rendezvous,
        status.observed_generation, status.started, status.ended,
        tuple((one.type, one.status, one.reason) for one in status.conditions),
    )  # fmt: skip


def telling(status: JobStatus) -> tuple[object, ...]:
    """What people look for, within a second."""
    return status.running, tuple(one.message for one in status.conditions), status.lost_steps


def figures(status: JobStatus) -> tuple[object, ...]:
    """What may wait."""
    return status.report, round(status.gpu_s, 3), round(status.ran_s, 3), round(status.restart_s, 3)


def write_at(state: JobsState, seen: JobState, status: JobStatus, now: float) -> float | None:
    """When the status is to be written; None: the object says what it should."""
    old = seen.job.status
    if decisive(status) != decisive(old):
        return now
    if telling(status) != telling(old):
        return max(now, seen.written_at + TELLING_S)
    if figures(status) != figures(old):
        return max(now, seen.written_at + state.settings.status_every_s)
    return None


def took_effect(seen: JobState, before: JobStatus, after: JobStatus) -> None:
    """What the object has now need not be added again."""
    seen.gpu_s = max(0.0, seen.gpu_s - max(0.0, after.gpu_s - before.gpu_s))
    seen.ran_s = max(0.0, seen.ran_s - max(0.0, after.ran_s - before.ran_s))
    seen.restarts = max(0, seen.restarts - max(0, after.restarts - before.restarts))
    seen.lost_steps = max(0, seen.lost_steps - max(0, after.lost_steps - before.lost_steps))
    seen.freed = seen.freed and after.unplaced > 0
    if after.report == seen.report:
        seen.report = None
    wish, job = seen.wish, seen.job
    bounded = min(wish.workers, job.maximum) if wish is not None else 0
    if wish is not None and after.target == bounded and (wish.batch is None or wish.batch == after.batch):
        # the nodes that it wished for are still of use while its workers are made
        seen.wish = wish if wish.placement else None
