"""TrainingJobs in words and columns. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

from services.cli.listing.kinds import ListKind, number, text
from services.cli.terminal.tables import NONE, age, printable
from shared.kube.training.training_jobs import TrainingJobObject, job_from_api
from shared.kube.training.training_status import rfc3339
from shared.model.controllers.training_job import JobCondition, JobPhase, TrainingJob
from shared.scheduling.reasons import GATED, QUOTA, REASONS, UNUSABLE


def _now() -> float:
    return dt.datetime.now(dt.UTC).timestamp()


def listed(item: TrainingJobObject, now: Callable[[], float] = _now) -> dict[str, Any]:
    """One job as it is listed, and as ``-o json`` shows it."""
    job = job_from_api(item)
    status, report = job.status, job.status.report
    ready = _condition(job, "Ready")
    return {
        "name": job.name, "namespace": job.namespace, "uid": job.uid, "phase": status.phase.value,
        "workers": status.running, "target": status.target, "minimum": job.minimum, "maximum": job.maximum,
        "requested": job.requested, "gpus_per_worker": job.gpu_milli / 1000, "priority": job.priority,
        "queue": job.queue, "paused": job.paused, "progress": report.progress, "steps": report.steps,
        "samples_per_s": report.samples_per_s, "loss": report.loss, "restarts": status.restarts,
        "failures": status.failures, "lost_steps": status.lost_steps, "gpu_s": status.gpu_s,
        "restart_s": status.restart_s or job.restart_s, "reason": ready.reason, "message": ready.message,
        "problem": job.problem, "age_s": max(0.0, now() - job.created) if job.created else None,
    }  # fmt: skip


JOBS = ListKind(
    title="TrainingJob",
    resource="trainingjob",
    namespace=lambda item: item.get("namespace"),
    empty="there is no TrainingJob; docs/jobs.md shows one",
    columns=(
        text("NAMESPACE", "namespace"),
        text("NAME", "name"),
        text("PHASE", "phase"),
        text("WORKERS", "target", lambda item: f"{item['workers']}/{item['target']}"),
        text("BOUNDS", "minimum", lambda item: f"{item['minimum']}-{item['maximum']}"),
        number("PROGRESS", "progress", lambda item: NONE if item["progress"] is None else f"{item['progress']:.1%}"),
        number("RESTARTS", "restarts"),
        number("FAILURES", "failures"),
        number("AGE", "age_s", lambda item: age(item.get("age_s"))),
        text("REASON", "reason"),
        number("GPUS", "gpus_per_worker", lambda item: f"{item['gpus_per_worker']:g}", wide=True),
        number("PRIORITY", "priority", wide=True),
        text("QUEUE", "queue", wide=True),
        number("GPU-HOURS", "gpu_s", lambda item: f"{item['gpu_s'] / 3600:.2f}", wide=True),
        number("LOST-STEPS", "lost_steps", wide=True),
        text("MESSAGE", "message", lambda item: printable(item["message"]) or NONE, wide=True),
    ),
)


def _condition(job: TrainingJob, kind: str) -> JobCondition:
    found = (one for one in job.status.conditions if one.type == kind)
    return next(found, JobCondition(kind, "Unknown", "NotSeen", "the jobs service has not seen it; does it run?"))


def _said(value: Any, shown: str = "") -> str:
    return NONE if value is None else shown or f"{value:g}"


def job_lines(item: TrainingJobObject) -> list[str]:
    """One job, for people."""
    job = job_from_api(item)
    status, report = job.status, job.status.report
    bounds = f"{job.minimum} to {job.maximum}, {job.requested} asked for"
    speed = f"loss {_said(report.loss)}, {_said(report.samples_per_s)} samples/s"
    known = "measured" if status.restart_s else "as it says"
    cost = f"{status.restart_s or job.restart_s:.0f} s each ({known})"
    gpus = f", {job.gpu_milli / 1000:g} GPUs each" if job.gpu_milli else ""
    lines = [
        f"{printable(job.key)}: {status.phase.value}",
        f"  workers     {status.running} run of {status.target} decided ({bounds}){gpus}",
        f"  progress    {_said(report.progress, f'{report.progress or 0:.1%}')}, step {_said(report.steps)}, {speed}",
        f"  reported    {rfc3339(report.at) or 'never'}",
        f"  checkpoint  {printable(job.checkpoint) or NONE}, at step {_said(report.checkpoint_steps)}",
        f"  restarts    {status.restarts}, {cost}; {status.lost_steps} steps lost by them",
        f"  failures    {status.failures} of {job.backoff_limit}",
        f"  used        {status.gpu_s / 3600:.2f} GPU hours in {age(status.ran_s)}",
    ]
    if job.ps:
        lines.insert(2, f"  servers     {job.ps} parameter servers")
    if status.batch or job.batch:
        lines.insert(
            2, f"  batch       {status.batch or job.batch}" + (f" of {job.batch_range}" if job.batch_range else "")
        )
    return [*lines, *_conditions(job)]


def _conditions(job: TrainingJob) -> list[str]:
    return [
        f"  {one.type:<13} {one.status:<7} {one.reason}{': ' if one.message else ''}{printable(one.message)}"
        for one in job.status.conditions
    ]


KUBELETS_WORD = "'kubectl describe pod -n {namespace}' of the pod that is named shows its events; correct spec.template"
NEXT = {
    "Waiting": "lower spec.workers.minimum or raise spec.priority; 'conclave jobs list' shows who comes before it",
    **{word: REASONS[word].helps for word in (QUOTA, UNUSABLE, GATED)},
    "Starting": "'conclave explain podgroup/{name} -n {namespace}' says which nodes its workers lack",
    "Restarting": "'conclave explain podgroup/{name} -n {namespace}' says which nodes its workers lack",
    "DoesNotFit": "'conclave nodes' shows what is free; its pods want CPU, memory or nodes that nobody has left",
    "PodRefused": "look at the node that is named: its kubelet counts otherwise than its Node says",
    "PodLost": "do as the message says; a replacement is made meanwhile",
    "ImagePullBackOff": "correct the image's name, its registry or spec.template.spec.imagePullSecrets",
    "CreateContainerConfigError": "make the Secret or ConfigMap that is named",
    "BackOff": "'kubectl logs' of the pod that is named says why it failed",
    "Invalid": "correct the field; nothing of it is changed before",
    "WriteRefused": "correct what the API server names: the pod template, a quota, a name that is taken",
    "Paused": "'conclave jobs resume {name} -n {namespace}'",
    "Failed": "its pods are kept: 'kubectl logs'; make it again when it is repaired",
    "NotSeen": "'kubectl get pods -n conclave-system' shows whether conclave-jobs runs",
}
NEXT |= {
    "ErrImagePull": NEXT["ImagePullBackOff"],
    "InvalidImageName": NEXT["ImagePullBackOff"],
    **dict.fromkeys(
        ("CreateContainerError", "RunContainerError", "CrashLoopBackOff", "ContainerCreating"), KUBELETS_WORD
    ),
}
"""What to do, by the reason of the condition Ready."""


def why_lines(item: TrainingJobObject) -> list[str]:
    """Why it is where it is, and what to do."""
    job = job_from_api(item)
    ready = _condition(job, "Ready")
    lines = [f"{printable(job.key)}: {job.status.phase.value}: {printable(ready.message) or ready.reason}"]
    if ready.reason in NEXT:
        lines.append(f"  do          {NEXT[ready.reason].format(name=job.name, namespace=job.namespace)}")
    others = [
        one for one in job.status.conditions if one.type in ("Reporting", "Checkpointing") and one.status == "False"
    ]
    lines += [f"  {one.type.lower():<11} {printable(one.message)}" for one in others]
    if job.status.phase is JobPhase.RUNNING and job.status.target < job.requested:
        quota = _condition(job, "WithinQuota")
        told = f"no further: {printable(quota.message)}" if quota.status == "False" else ""
        lines.append(f"  grows       {told or 'when GPUs are free and nobody waits for its minimum'}")
    return lines
