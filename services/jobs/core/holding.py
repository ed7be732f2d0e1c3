"""What holds a job back, in a word and a sentence: the pod of it that tells most, or what the API server refuses."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from services.jobs.core.members import live, waits_with_spec, workers_of
from services.jobs.core.state import JobsState, JobState, job_of_target
from shared.kube.training.training_status import rfc3339
from shared.kube.training.worker_pods import INITIALIZING
from shared.model.controllers.training_job import PodState, TrainingJob, WorkerPod
from shared.scheduling.reasons import GATED, QUOTA, UNUSABLE

DOES_NOT_FIT = "DoesNotFit"
HELD_BACK = frozenset({QUOTA, UNUSABLE, GATED})
"""What is told of a pod without a node that no node would help."""


class HeldJob(Struct, frozen=True):
    """``reason`` "": as the job's phase is called."""

    reason: str
    message: str


def refusal_of(state: JobsState, job: TrainingJob) -> str:
    """What the API server last said to a write of the job's; "" where all went well."""
    waits = state.writes.waits.items()
    return next((wait.message for target, wait in waits if wait.message and job_of_target(target) == job.key), "")


def what_holds(state: JobsState, seen: JobState, pods: Sequence[WorkerPod]) -> HeldJob | None:
    """The pod of the job that tells most of why not all of it runs; None: none tells anything."""
    wall = state.wall(state.now)
    if seen.not_before > wall and seen.refusals:
        name, times = seen.refusals.most_common(1)[0]
        text = f"kubelets refused {name} {times} times in a row; it is made again at {rfc3339(seen.not_before)}"
        return HeldJob("PodRefused", text + (f"; the last said {seen.refusal}" if seen.refusal else ""))
    for wanted in (PodState.STUCK, PodState.LOST, PodState.WAITING, PodState.STARTING):
        found = [pod for pod in pods if pod.state is wanted and (pod.cause or wanted is PodState.LOST)]
        # of those that wait, one that is held back by a rule tells more than one that waits for the others
        found.sort(key=lambda pod: (pod.cause not in HELD_BACK, pod.role, pod.index))
        if found:
            return _told(found[0], len(found))
    return None


def _told(pod: WorkerPod, count: int) -> HeldJob:
    more = f" (and {count - 1} more)" if count > 1 else ""
    if pod.state is PodState.LOST:
        what = (
            f"{pod.name} should have been gone since {rfc3339(pod.leave_by)}; node {pod.node or 'none'} does not say so"
        )
        remedy = f"delete Node {pod.node} if it is no more, or taint it node.kubernetes.io/out-of-service"
        return HeldJob("PodLost", f"{what}{more}: {remedy}")
    if pod.state is PodState.WAITING:
        told = f"{pod.name}{more} has no node: {pod.cause}{': ' if pod.message else ''}{pod.message}"
        return HeldJob(pod.cause if pod.cause in HELD_BACK else "", told)
    told = f"{pod.name}{more} on {pod.node}: {pod.cause}{': ' if pod.message else ''}{pod.message}"
    return HeldJob(pod.cause if pod.state is PodState.STUCK else "", told)


def unlike_spec(job: TrainingJob, pods: Sequence[WorkerPod]) -> str:
    """What is told of a job that runs on as a spec says that is another by now."""
    if not waits_with_spec(job, pods):
        return ""
    return (
        "; its spec has changed, and holds once it is made again: without spec.checkpoint that is not done by itself. "
        f"conclave jobs pause {job.name} -n {job.namespace}, then resume, begins from the start"
    )


def dark_nodes(state: JobsState, pods: Sequence[WorkerPod]) -> str:
    """What is told of workers whose node is not heard of, or was taken away: nobody knows whether they run."""
    workers = [pod for pod in live(workers_of(pods)) if pod.node]
    dark = [pod for pod in workers if (node := state.nodes.get(pod.node)) is None or not node.ready]
    if not dark:
        return ""
    more = f" (and {len(dark) - 1} more)" if len(dark) > 1 else ""
    which = f"; node {dark[0].node} of {dark[0].name}{more}"
    if dark[0].node not in state.nodes:
        return f"{which} is no more: Kubernetes deletes its pods within a minute, then it is made elsewhere"
    return f"{which} is not ready: it is evicted from there if that lasts"


def begun(pod: WorkerPod) -> bool:
    """Whether a program of its user's runs in it: the training, or what is to come before it."""
    return pod.state is PodState.RUNNING or (pod.state is PodState.STARTING and pod.cause == INITIALIZING)
