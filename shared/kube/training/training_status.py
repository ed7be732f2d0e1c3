"""The status of a TrainingJob: read from the object, and written as a merge patch. Pure.

It is read leniently: whatever is not as we write it counts as not written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from shared.model.controllers.training_job import JobCondition, JobPhase, JobReport, JobStatus, TrainingJob


def seconds_of(text: Any) -> float:
    """Seconds since 1970 of an RFC 3339 time; 0.0 where it is none."""
    if not isinstance(text, str) or not text:
        return 0.0
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def rfc3339(at: float) -> str | None:
    """The time as the API server writes it; None for 0.0."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at else None


_HAS_RUN = frozenset({JobPhase.RUNNING, JobPhase.RESHAPING, JobPhase.RESTARTING})


def status_from_api(status: Any) -> JobStatus:
    """The status as last written; whatever is not as we write it counts as not written."""
    if not isinstance(status, Mapping):
        return JobStatus()
    try:
        phase = JobPhase(status.get("phase"))
    except ValueError:
        phase = JobPhase.PENDING
    conditions = [c for c in status.get("conditions") or () if isinstance(c, Mapping)]
    report = status.get("report")
    if phase in _HAS_RUN and not seconds_of(status.get("startTime")):
        phase = JobPhase.STARTING  # somebody else wrote it: what has never started does not run
    return JobStatus(
        phase=phase,
        observed_generation=_whole(status.get("observedGeneration")),
        term=_whole(status.get("term")),
        target=_whole(status.get("targetWorkers")),
        running=_whole(status.get("runningWorkers")),
        batch=_whole(status.get("batch")),
        attempt=_whole(status.get("attempt")),
        unplaced=_whole(status.get("unplaced")),
        rendezvous=_whole(status.get("rendezvous")),
        failures=_whole(status.get("failures")),
        members=str(status.get("members") or ""),
        restarts=_whole(status.get("restarts")),
        lost_steps=_whole(status.get("lostSteps")),
        restart_s=_number(status.get("restartSeconds")) or 0.0,
        gpu_s=_number(status.get("gpuSeconds")) or 0.0,
        ran_s=_number(status.get("ranSeconds")) or 0.0,
        started=seconds_of(status.get("startTime")),
        changed=seconds_of(status.get("changeTime")),
        retry_at=seconds_of(status.get("retryTime")),
        ended=seconds_of(status.get("completionTime")),
        report=_report(report if isinstance(report, Mapping) else {}),
        conditions=tuple(
            JobCondition(*(str(c.get(name, "")) for name in ("type", "status", "reason", "message")))
            for c in conditions
        ),
    )


def _report(report: Mapping[str, Any]) -> JobReport:
    steps, saved, resumed = (report.get(name) for name in ("steps", "checkpointSteps", "resumedSteps"))
    return JobReport(
        steps=steps if isinstance(steps, int) else None,
        samples_per_s=_number(report.get("samplesPerSecond")),
        loss=_number(report.get("loss")),
        progress=_number(report.get("progress")),
        epochs_left=_number(report.get("epochsLeft")),
        remaining_samples=_number(report.get("remainingSamples")),
        checkpoint_steps=saved if isinstance(saved, int) else None,
        resumed_steps=resumed if isinstance(resumed, int) else None,
        at=seconds_of(report.get("time")),
    )


def times_from_api(status: Any) -> dict[str, str]:
    found = status.get("conditions") or () if isinstance(status, Mapping) else ()
    return {str(c.get("type", "")): str(c.get("lastTransitionTime", "")) for c in found if isinstance(c, Mapping)}


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def _number(value: Any) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if good else None


def status_patch(job: TrainingJob, status: JobStatus, now: str) -> dict[str, Any]:
    """The merge patch of the status subresource, which holds for the object at the job's uid and resourceVersion alone.

    A condition's time stays while its status is the same as it stands; otherwise it is ``now`` (RFC 3339).
    """
    before = {condition.type: condition.status for condition in job.status.conditions}
    report = status.report
    return {
        "metadata": {"uid": job.uid, "resourceVersion": job.resource_version},
        "status": {
            "phase": status.phase.value,
            "observedGeneration": status.observed_generation,
            "term": status.term,
            "targetWorkers": status.target,
            "runningWorkers": status.running,
            "workers": f"{status.running}/{status.target}",
            "batch": status.batch,
            "attempt": status.attempt,
            "unplaced": status.unplaced,
            "rendezvous": status.rendezvous,
            "failures": status.failures,
            "members": status.members or None,
            "restarts": status.restarts,
            "lostSteps": status.lost_steps,
            "restartSeconds": round(status.restart_s, 3),
            "gpuSeconds": round(status.gpu_s, 3),
            "ranSeconds": round(status.ran_s, 3),
            "startTime": rfc3339(status.started),
            "changeTime": rfc3339(status.changed),
            "retryTime": rfc3339(status.retry_at),
            "completionTime": rfc3339(status.ended),
            "progress": None if report.progress is None else f"{report.progress:.1%}",
            "report": {
                "steps": report.steps,
                "samplesPerSecond": report.samples_per_s,
                "loss": report.loss,
                "progress": report.progress,
                "epochsLeft": report.epochs_left,
                "remainingSamples": report.remaining_samples,
                "checkpointSteps": report.checkpoint_steps,
                "resumedSteps": report.resumed_steps,
                "time": rfc3339(report.at),
            }
            if report != JobReport()
            else None,
            "conditions": [
                {
                    "type": one.type, "status": one.status, "reason": one.reason, "message": one.message,
                    "lastTransitionTime": (
                        job.times.get(one.type, now) if before.get(one.type) == one.status else now
                    ),
                    "observedGeneration": status.observed_generation,
                }
                for one in status.conditions
            ],
        },
    }  # fmt: skip
