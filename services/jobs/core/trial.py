"""Before a decision takes GPUs from a job that runs, the API server is asked whether it would make the pods of the one
that gets them: dry runs, one for each role.

    waits, and another holds GPUs --> on trial: no policy sees it --> every role would be made --> it is decided about
                                        ^        a name that it needs is somebody else's |
                                        +--- later, longer each time <--- refused, told -+

No image, a PriorityClass that is not there, an admission that forbids it, a quota that is used up: all of that would be
found out only after the other job was stopped for it, and that one starts again twice. A quota of which other jobs of
the namespace hold a part says nothing yet: that part may come free by the very decision.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from services.jobs.core.events import WriteOutcome
from services.jobs.core.instructions import CreateObject, Write
from services.jobs.core.members import GROUP, SERVICE, a_pod, somebody_elses, taken_name, to_create
from services.jobs.core.state import POD, JobsState, JobState, Target
from shared.kube.training.training_pods import made_of, pod_name
from shared.model.controllers.training_job import MADE_OF_LABEL, PARAMETER_SERVER, ROLE_LABEL, WORKER, TrainingJob

QUOTA_USED_UP = "exceeded quota"
"""In the API server's words (ResourceQuota admission, 403)."""


def gpus_may_move(state: JobsState) -> bool:
    """Whether some job holds GPUs that a decision could give to another."""
    return any(seen.job.status.target and seen.job.gpu_milli for seen in state.jobs.values())


def begin(seen: JobState) -> None:
    """From the next look on the API server is asked."""
    if not seen.trial:
        seen.trial = {WORKER, PARAMETER_SERVER} if seen.job.ps else {WORKER}


def end(seen: JobState) -> None:
    """What was learned is of another spec, or turned out wrong."""
    seen.trial, seen.passed = set(), False


def asks(state: JobsState, seen: JobState, now: float) -> Iterator[Write]:
    """The dry runs that are due; a name or a frame that is somebody else's is told as a refusal."""
    job = seen.job
    if not seen.trial or job.status.target or job.paused or job.problem:
        return
    for kind in (SERVICE, GROUP):
        made = state.made.get((kind, job.namespace, job.name))
        if made is not None and made.job != job.uid:
            if state.writes.free((kind, job.namespace, job.name), now):
                state.writes.failed((kind, job.namespace, job.name), now, somebody_elses(kind, job))
            return
    wanted = replace(job, status=replace(job.status, target=job.minimum))
    pods = to_create(wanted, ())
    targets = {(role, index): (POD, job.namespace, pod_name(job.name, role, index)) for role, index in pods}
    for target in targets.values():
        other = state.named(target)
        if other is not None and other.job != job.uid:
            if state.writes.free(target, now):
                state.writes.failed(target, now, taken_name(other, job))
            return
    for role in sorted(seen.trial):
        target = targets[role, 0]
        if state.writes.free(target, now):
            yield state.writes.send(target, partial(_ask, state, job, role, 0))


def _ask(state: JobsState, job: TrainingJob, role: str, index: int, write: int) -> CreateObject:
    return replace(a_pod(state, job, role, index, "", write), dry_run=True)


def answered(state: JobsState, target: Target, write: CreateObject, outcome: WriteOutcome, message: str) -> bool:
    """Take in the answer of a dry run; whether that says anything: else it is a write that failed."""
    seen = state.jobs.get(f"{write.namespace}/{write.name.rpartition('-')[0].rpartition('-')[0]}")
    judged = outcome in (WriteOutcome.DONE, WriteOutcome.EXISTS)  # names are looked at after all else
    refused = outcome is WriteOutcome.REFUSED and QUOTA_USED_UP in message
    if not judged and not (refused and seen is not None and _others_hold(state, seen)):
        return False
    state.writes.over(target)
    labels = write.body["metadata"]["labels"]
    if seen is not None and labels[MADE_OF_LABEL] == made_of(seen.job, labels[ROLE_LABEL]):
        seen.trial.discard(labels[ROLE_LABEL])
        seen.passed = not seen.trial
    return True


def _others_hold(state: JobsState, seen: JobState) -> bool:
    """Whether other jobs of its namespace have workers."""
    return any(
        other is not seen and other.job.namespace == seen.job.namespace and other.job.status.target
        for other in state.jobs.values()
    )
