"""The Queues as they bear on the live jobs: who counts where, and what is told of it."""

from __future__ import annotations

from collections import Counter

from services.jobs.core.members import live, workers_of
from services.jobs.core.observing import ObservedJobs
from services.jobs.core.state import JobsState, JobState
from shared.jobs.quotas import QuotaClaim, Quotas, Used
from shared.kube.pod_groups import PODGROUPS
from shared.kube.training.training_jobs import gpu_resource
from shared.model.controllers.training_job import JobCondition
from shared.model.units.queue import QueueStatus
from shared.scheduling.queues.nodes import Amounts, Blocked
from shared.scheduling.reasons import of_limit

WITHIN_QUOTA = "WithinQuota"

NEVER_WRITTEN = QueueStatus()


def quotas_of(state: JobsState, seen: ObservedJobs) -> Quotas | None:
    """What the queues leave at this moment; None: there are none, and nothing is held back."""
    if not state.queues:
        return None
    shown = {job.name for job in seen.observation.jobs if job.name in state.jobs}
    claims = {key: _claim(state, state.jobs[key]) for key in shown}
    decided = {state.jobs[key].job.uid for key in shown}
    used = [
        Used(whose.label or _of_group(state, whose.namespace, whose.group), whose.namespace, amounts)
        for whose, amounts in state.usage
        if whose.job not in decided
    ]
    totals: Counter[str] = Counter()
    for node in state.nodes.values():
        for name, amount in node.amounts:
            totals[name] += amount
    return Quotas(state.queues.values(), totals, used, claims)


def _claim(state: JobsState, seen: JobState) -> QuotaClaim:
    """As its pods ask: admission may have added to what the template says."""
    job = seen.job
    standing = live(state.pods_of(job))
    workers = [pod.amounts for pod in workers_of(standing) if pod.amounts]
    worker = workers[0] if workers else job.amounts
    scheduler = (job.template.get("spec") or {}).get("schedulerName") or state.rules.scheduler_name
    return QuotaClaim(
        label=job.queue,
        namespace=job.namespace,
        worker=worker,
        servers=_all(job.ps_amounts, job.ps),
        gpu=gpu_resource(dict(worker)),
        held=scheduler == state.rules.scheduler_name,
    )


def _all(amounts: Amounts, count: int) -> Amounts:
    return tuple((name, amount * count) for name, amount in amounts) if count else ()


def _of_group(state: JobsState, namespace: str, group: str) -> str:
    made = state.made.get((PODGROUPS.kind, namespace, group)) if group else None
    return made.queue if made is not None else ""


def queue_of(state: JobsState, seen: JobState) -> str:
    """The queue that the job is in: the one that it names, else its namespace's; "" for none."""
    return seen.job.queue or state.bindings.get(seen.job.namespace, "")


def reason_of(blocked: Blocked) -> str:
    """The reason of a condition."""
    return of_limit(blocked.problem)


def condition_of(blocked: Blocked) -> JobCondition:
    """What is told of a job that a limit holds back, or its growth."""
    return JobCondition(WITHIN_QUOTA, "False", reason_of(blocked), blocked.text())
