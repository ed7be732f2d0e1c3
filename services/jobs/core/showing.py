"""The board that people are shown: jobs, where they ran, how they changed, and when each is expected to end."""

from __future__ import annotations

from math import exp

from services.jobs.core.deciding import Deciding
from services.jobs.core.members import live, runs, workers_of
from services.jobs.core.quotas import queue_of
from services.jobs.core.state import JobsState, JobState
from shared.jobs.board import Board, JobRow
from shared.model.controllers.training_job import JobPhase
from shared.model.resources import MILLI_PER_DEVICE


def board(state: JobsState, deciding: Deciding, now: float) -> Board:
    """Everything, jobs in the order in which they came."""
    wall = state.wall(now)
    jobs = sorted(state.jobs.values(), key=lambda seen: (seen.job.created, seen.job.key))
    return Board(
        leading=True,
        policy=deciding.pair.teacher.name,
        problem=deciding.problem,
        now=wall,
        since=state.timeline.since,
        jobs=tuple(_row(state, deciding, seen, wall) for seen in jobs),
        nodes={
            name: node.gpu_milli // MILLI_PER_DEVICE for name, node in sorted(state.nodes.items()) if node.gpu_milli
        },
        spans=state.timeline.spans(wall),
        changes=state.timeline.changes(wall),
    )


def _row(state: JobsState, deciding: Deciding, seen: JobState, wall: float) -> JobRow:
    job, status = seen.job, seen.job.status
    report = seen.report or status.report
    ends, early, late, by = expected_end(state, seen, wall)
    ready = next((one for one in status.conditions if one.type == "Ready"), None)
    held = sum(pod.gpu_milli for pod in live(state.pods_of(job)) if pod.node)
    return JobRow(
        name=job.name,
        namespace=job.namespace,
        phase=status.phase.value,
        workers=status.running,
        target=status.target,
        minimum=job.minimum,
        maximum=job.maximum,
        gpus=held / MILLI_PER_DEVICE,
        priority=job.priority,
        queue=queue_of(state, seen),
        progress=report.progress,
        restarts=status.restarts,
        failures=status.failures,
        lost_steps=status.lost_steps,
        created=job.created,
        started=status.started,
        ended=status.ended,
        ends=ends,
        ends_early=early,
        ends_late=late,
        by=by,
        reason=ready.reason if ready is not None else "",
        message=ready.message if ready is not None else "",
        candidate=deciding.pair.candidate_for(job.uid),
    )


def expected_end(state: JobsState, seen: JobState, wall: float) -> tuple[float, float, float, str]:
    """(when, early, late, by what) of a job that runs, if it stays as it is; zeros and "" where nothing is known.

    By work left over speed, where it reports both; else as fast as its share of progress came so far, which says
    nothing of how sure that is.
    """
    job, status = seen.job, seen.job.status
    report = seen.report or status.report
    if status.phase not in (JobPhase.RUNNING, JobPhase.RESHAPING):
        return 0.0, 0.0, 0.0, ""
    speed = seen.speeds.speed(job.batch or 1)
    workers = [pod for pod in workers_of(state.pods_of(job)) if runs(pod)]
    if report.remaining_samples is not None and speed is not None and workers:
        nodes: dict[str, int] = {}
        for pod in workers:
            nodes[pod.node] = nodes.get(pod.node, 0) + 1
        batch = status.batch or job.batch or 1
        placement = tuple(nodes.values())
        rate = speed.samples_per_s(placement, batch, "") * speed.efficiency(batch, report.progress or 0.0)
        sd = speed.uncertainty(placement, batch)
        left_s = max(0.0, report.remaining_samples / rate - (wall - report.at))
        return wall + left_s, wall + left_s * exp(-sd), wall + left_s * exp(sd), "speed"
    ran_s = status.ran_s + seen.ran_s
    if report.progress and ran_s:
        end = wall + ran_s * (1.0 - report.progress) / report.progress
        return end, end, end, "progress"
    return 0.0, 0.0, 0.0, ""
