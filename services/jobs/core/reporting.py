"""Reports of jobs, by HTTP or by annotation: what is believed of them, and what a restart is seen to have cost.

A report that is refused changes nothing but the condition that says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from services.jobs.core.assess import MEAN_OF, whole
from services.jobs.core.events import Reported
from services.jobs.core.members import runs, workers_of
from services.jobs.core.state import JobsState, JobState
from shared.jobs.online.learned import Way
from shared.jobs.reports import ReportRefused, Said, accept, began_anew, lost_steps, read_report
from shared.model.controllers.training_job import JobReport, WorkerPod


def take_annotation(state: JobsState, pod: WorkerPod, now: float) -> bool | None:
    """What a worker's annotation says, once per text; None where it says nothing new."""
    seen = state.job_of(pod)
    if seen is None or seen.read_annotations.get(pod.uid) == pod.report:
        return None
    seen.read_annotations[pod.uid] = pod.report
    try:
        said, problem, reason = read_report(pod.report), "", ""
    except ReportRefused as error:
        said, problem, reason = Said(), f"{pod.name}: {error}", error.reason
    return take_report(state, Reported(seen.job.key, pod.job, said, problem, reason), now)


def recall_annotations(state: JobsState, now: float) -> Iterator[bool | None]:
    """At the end of the first listing: what stands on pods is news only of a job that nothing is known of. Of another
    one it may be older than what is known, and says nothing of whether the job still reports."""
    for pod in list(state.pods.values()):
        seen = state.job_of(pod) if pod.report else None
        if seen is None:
            continue
        if seen.job.status.report == JobReport():
            yield take_annotation(state, pod, now)
        else:
            seen.read_annotations[pod.uid] = pod.report


def take_report(state: JobsState, event: Reported, now: float) -> bool | None:
    """Whether the report is believed; None where there is no such job any more."""
    seen = state.jobs.get(event.key)
    if seen is None or seen.job.uid != event.uid or seen.job.ended:
        return None
    wall, last = state.wall(now), seen.report or seen.job.status.report
    try:
        if event.problem:
            raise ReportRefused(event.problem, reason=event.reason)
        # in the first one that a new leader gets, anything may have happened since the last one
        restarted = bool(seen.awaits_report or seen.change_began) or not seen.believed
        report = accept(event.said, job=seen.job.key, last=last, at=whole(wall), restarted=restarted)
    except ReportRefused as error:
        seen.report_problem = (error.reason, str(error)[:512])
        return False
    seen.report_problem, seen.believed = ("", ""), True
    seen.lost_steps += lost_steps(last, report)
    # who says what its processes began at may still be reporting from before the change
    if seen.awaits_report and (report.resumed_steps is None or began_anew(last, report)):
        _count_restart(seen, wall)
    if report.checkpoint_steps is not None and report.checkpoint_steps != seen.saved:
        seen.saved, seen.saved_at = report.checkpoint_steps, wall
    if event.said.samples_per_s and not seen.awaits_report:
        _learn(state, seen, event.said.samples_per_s)
    seen.report = report
    return True


def _learn(state: JobsState, seen: JobState, samples_per_s: float) -> None:
    """The speed is of the workers that run now, where these are what was decided."""
    job = seen.job
    running = [pod for pod in workers_of(state.pods_of(job)) if runs(pod)]
    if len(running) == job.status.target and not seen.change_began:
        nodes = len({pod.node for pod in running})
        seen.speeds.add(Way(len(running), nodes, job.status.batch or job.batch or 1), samples_per_s)


def _count_restart(seen: JobState, wall: float) -> None:
    """The first report after a change says how long it took."""
    cost = max(0.0, wall - seen.awaits_report)
    known = seen.restart_s or seen.job.status.restart_s
    seen.restart_s = known + MEAN_OF * (cost - known) if known else cost
    seen.awaits_report = 0.0
