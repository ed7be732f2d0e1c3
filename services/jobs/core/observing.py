"""What a policy is shown of the live cluster: our jobs, those of others as jobs of fixed size, and nodes with their
GPUs."""

from __future__ import annotations

from collections import Counter, defaultdict

from msgspec import Struct

from services.jobs.core.following import row
from services.jobs.core.members import has_succeeded, live, staying
from services.jobs.core.state import JobsState, JobState
from services.jobs.core.trial import gpus_may_move
from services.jobs.core.unplaced import waits_for_room
from shared.jobs.observation import JobObservation, JobsObservation, NodeObservation
from shared.jobs.quotas import ShownJobs
from shared.kube.training.worker_pods import as_of
from shared.model.controllers.training_job import PARAMETER_SERVER, WorkerPod
from shared.model.resources import MILLI_PER_DEVICE

OTHERS = "group:"
"""Before the name of somebody else's job (a batch Job, JobSet or TrainJob with a PodGroup): no wish changes it."""


class ObservedJobs(Struct, frozen=True):
    """``observation`` for the policy; ``ours``: jobs that it may decide about; ``may_stop``: those it may take to 0.
    ``untried``: jobs that wait and are not shown before the API server has said that it would make their pods."""

    observation: JobsObservation
    ours: frozenset[str]
    may_stop: frozenset[str]
    untried: frozenset[str] = frozenset()


def without(seen: ObservedJobs, view: ShownJobs) -> ObservedJobs:
    """What a policy is shown where queues hold jobs back."""
    there = {job.name for job in view.seen.jobs}
    return ObservedJobs(view.seen, seen.ours & there, seen.may_stop & there, seen.untried)


def observe(state: JobsState, now: float) -> ObservedJobs:
    """Everything at this moment; times are seconds since 1970."""
    wall = state.wall(now)
    foreign, groups = _others(state)
    jobs: list[JobObservation] = list(groups)
    ours: set[str] = set()
    may_stop: set[str] = set()
    untried: set[str] = set()
    taking = gpus_may_move(state)
    for key, seen in state.jobs.items():
        job = seen.job
        if job.ended or job.deleting:
            continue
        pods = state.pods_of(job)
        fixed = bool(job.problem) or has_succeeded(pods)
        if not job.status.target and (job.paused or fixed or waits_for_room(job, wall)):
            continue
        if taking and job.gpu_milli and not (job.status.target or seen.wish or seen.passed):
            untried.add(key)
            continue
        jobs.append(_observed(seen, pods, wall, fixed=fixed or job.paused))
        if not fixed and not job.paused:
            ours.add(key)
            if job.checkpoint and not _saves_nothing(seen):
                may_stop.add(key)
    jobs.sort(key=lambda one: (one.submitted, one.name))
    nodes = _nodes(state, foreign, {node for job in jobs for node in job.placement})
    observation = JobsObservation(now=wall, jobs=tuple(jobs), nodes=nodes)
    return ObservedJobs(observation, frozenset(ours), frozenset(may_stop), frozenset(untried))


def _saves_nothing(seen: JobState) -> bool:
    return any(c.type == "Checkpointing" and c.status == "False" for c in seen.job.status.conditions)


def _observed(seen: JobState, pods: list[WorkerPod], wall: float, *, fixed: bool) -> JobObservation:
    job, status = seen.job, seen.job.status
    report = seen.report or status.report
    stay = staying(job, pods)
    placement = Counter(pod.node for pod in stay if pod.node)
    least, most, requested, gpu_milli = job.minimum, job.maximum, job.requested, job.gpu_milli
    # what was decided last counts as given, also while the API server has not taken it: else it is given twice
    workers = status.target if fixed or seen.wish is None else min(seen.wish.workers, most)
    if fixed:
        least = most = requested = status.target
        # a spec that became invalid may not say what its workers hold
        gpu_milli = max((pod.gpu_milli for pod in stay), default=gpu_milli)
    remaining = report.remaining_samples
    return JobObservation(
        name=job.key,
        queue=job.queue,
        priority=job.priority,
        submitted=job.created,
        model=job.model,
        minimum=least,
        maximum=most,
        requested=requested,
        gpus_per_worker=gpu_milli / MILLI_PER_DEVICE,
        server_gpus=max(0, job.ps - _servers_placed(pods)) * job.ps_gpu_milli / MILLI_PER_DEVICE,
        batch=job.batch or 1,
        batch_range=job.batch_range,
        restart_s=seen.restart_s or status.restart_s or job.restart_s,
        workers=workers,
        placement=dict(placement),
        batch_now=status.batch or job.batch or 1,
        progress=report.progress,
        attained_s=status.gpu_s + seen.gpu_s,
        ran_s=status.ran_s + seen.ran_s,
        restarts=status.restarts + seen.restarts,
        since_change_s=max(0.0, wall - (status.changed or job.created)),
        remaining_samples=remaining,
        epochs_left=report.epochs_left,
        speed=seen.speeds.speed(job.batch or 1),
    )


def _servers_placed(pods: list[WorkerPod]) -> int:
    return sum(pod.role == PARAMETER_SERVER and bool(pod.node) for pod in live(pods))


def _others(state: JobsState) -> tuple[Counter[str], list[JobObservation]]:
    """(thousandths of GPUs by node that no worker of a job holds, jobs of others)."""
    foreign: Counter[str] = Counter()
    members: defaultdict[str, list[WorkerPod]] = defaultdict(list)
    wall = state.wall(state.now)
    for pod in state.pods.values():
        if not pod.holds or not pod.gpu_milli:
            continue
        if pod.job and pod.role != PARAMETER_SERVER and not row(as_of(pod, wall)).elsewhere:
            continue  # counted as its job's, but for one that another stands in for and that may still hold what it had
        if pod.group and not pod.job:
            members[f"{OTHERS}{pod.namespace}/{pod.group}"].append(pod)
        elif pod.node:
            foreign[pod.node] += pod.gpu_milli
    jobs = []
    for name, pods in members.items():
        placement = Counter(pod.node for pod in pods if pod.node)
        count = len(pods)
        jobs.append(
            JobObservation(
                name=name,
                submitted=min(pod.created for pod in pods),
                minimum=count,
                maximum=count,
                requested=count,
                gpus_per_worker=max(pod.gpu_milli for pod in pods) / MILLI_PER_DEVICE,
                batch=1,
                workers=count if placement else 0,
                placement=dict(placement),
                batch_now=1,
            )
        )
    return foreign, jobs


def _nodes(state: JobsState, foreign: Counter[str], used: set[str]) -> tuple[NodeObservation, ...]:
    """Nodes that take workers, and those that hold some: a closed one has room for what stands on it and no more."""
    found = []
    held: Counter[str] = Counter()
    for pod in state.pods.values():
        worker = pod.job and pod.role != PARAMETER_SERVER
        if (worker or (pod.group and not pod.job)) and pod.node and pod.holds:
            held[pod.node] += pod.gpu_milli
    for name in sorted(used | state.nodes.keys()):
        node = state.nodes.get(name)
        if node is None or not node.open:
            if name in used:
                gpus = -(-held[name] // MILLI_PER_DEVICE)
                kind = node.gpu_type if node is not None else ""
                found.append(NodeObservation(name=name, gpus=gpus, gpu_type=kind, open=False))
        elif node.gpu_milli or name in used:
            gpus = max(0, node.gpu_milli - foreign[name]) // MILLI_PER_DEVICE
            found.append(NodeObservation(name=name, gpus=gpus, gpu_type=node.gpu_type))
    return tuple(found)


def why_waiting(seen: JobsObservation, name: str, held_back: str) -> str:
    """In words, for people: what a job that got nothing needs, and what there is."""
    job = next((one for one in seen.jobs if one.name == name), None)
    if job is None:
        return ""
    if held_back:
        return f"the policy's wish was refused: {held_back}"
    before = sum(
        1 for one in seen.jobs if not one.workers and (-one.priority, one.submitted) < (-job.priority, job.submitted)
    )
    total = sum(node.gpus for node in seen.nodes)
    free = total - sum(one.workers * one.gpus_per_worker for one in seen.jobs)
    needs = f"{job.minimum} workers" + (f" of {job.gpus_per_worker:g} GPUs" if job.gpus_per_worker else "")
    needs += f" and {job.server_gpus:g} GPUs for parameter servers" if job.server_gpus else ""
    return f"it needs {needs}; {max(0.0, free):g} of {total} GPUs are free, {before} jobs that wait come before it"
