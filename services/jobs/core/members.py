"""Which pods of a job stay, which go and which are made. Level by level: it looks at what is, never at what was done.

torchrun does not care what its workers are called, but one holds the rendezvous: it stays first, then those that run,
then those that wait. What is taken away is the rest, and one that runs only while at least the minimum runs without it
(J3). So a job that is reshaped never has fewer than its minimum because of us, unless its spec is another
(``outdated``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import count

from services.jobs.core.following import Goes, row
from services.jobs.core.instructions import CreateObject, DeleteObject, PatchMinimum, Write
from services.jobs.core.state import POD, JobsState, JobState
from shared.jobs.tokens import report_token
from shared.kube.pod_groups import PODGROUPS
from shared.kube.training.training_jobs import SERVICES
from shared.kube.training.training_pods import group_body, group_minimum, made_of, pod_body, pod_name, service_body
from shared.kube.training.worker_pods import JOB_PODS
from shared.model.controllers.training_job import PARAMETER_SERVER, WORKER, MadeObject, PodState, TrainingJob, WorkerPod

SERVICE, GROUP = SERVICES.kind, PODGROUPS.kind


def workers_of(pods: Iterable[WorkerPod]) -> list[WorkerPod]:
    """The workers among a job's pods."""
    return [pod for pod in pods if pod.role == WORKER]


def live(pods: Iterable[WorkerPod]) -> list[WorkerPod]:
    """Those that fill a place: their programs run, or are to."""
    return [pod for pod in pods if row(pod).fills]


def runs(pod: WorkerPod) -> bool:
    """Whether its program runs."""
    return pod.state is PodState.RUNNING


def has_succeeded(pods: Iterable[WorkerPod]) -> bool:
    """Whether a worker has come to the end of the training: the others follow, and nothing is reshaped any more."""
    return any(pod.state is PodState.SUCCEEDED for pod in workers_of(pods))


def kept(workers: Sequence[WorkerPod], target: int, meeting: int) -> list[WorkerPod]:
    """Which of the live ones stay: the one that all meet at, those that run, those that have a node, the others."""
    return sorted(live(workers), key=lambda pod: (pod.index != meeting, not runs(pod), not pod.node, pod.index))[
        :target
    ]


def staying(job: TrainingJob, pods: Sequence[WorkerPod]) -> list[WorkerPod]:
    """The workers that are there to stay, for what a policy sees."""
    return kept(workers_of(pods), job.status.target, job.status.rendezvous)


def may_leave(pod: WorkerPod, running: int, minimum: int) -> bool:
    """J3: whether this worker may be taken away while so many run."""
    return not runs(pod) or running > minimum


def lacking(job: TrainingJob, workers: Sequence[WorkerPod]) -> int:
    """How many workers there are too few of. A target above a maximum that was lowered is about to fall."""
    return max(0, min(job.status.target, job.maximum) - len(live(workers)))


def outdated(job: TrainingJob, pods: Sequence[WorkerPod]) -> list[WorkerPod]:
    """Pods whose spec is another by now. Workers of unlike bounds, port or processes never find each other, so all go
    at once: a restart. That waits where nothing needs it: other bounds until a worker is to be made beside those that
    stand; the rest, of a job that has no checkpoint to go on from, as long as enough of it runs."""
    workers, meant = workers_of(pods), made_of(job, WORKER)
    standing, lacks = live(workers), lacking(job, workers)
    anew = bool(job.checkpoint or lacks) or sum(map(runs, standing)) < job.least
    bound_anew = lacks or len({pod.bounds for pod in standing if pod.bounds}) > 1
    changed = [
        pod
        for pod in standing
        if (anew and pod.made_of not in ("", meant)) or (bound_anew and pod.bounds not in ("", job.bounds))
    ]
    servers = [pod for pod in live(pods) if pod.role == PARAMETER_SERVER]
    meant = made_of(job, PARAMETER_SERVER) if servers else ""
    if job.checkpoint or changed or not any(map(runs, standing)):
        changed += [pod for pod in servers if pod.made_of and pod.made_of != meant]
    return changed


def like_spec(job: TrainingJob, pod: WorkerPod) -> bool:
    """Whether the worker is as one that is made now, as far as it says."""
    return pod.made_of in ("", made_of(job, WORKER)) and pod.bounds in ("", job.bounds)


def waits_with_spec(job: TrainingJob, pods: Sequence[WorkerPod]) -> bool:
    """Whether its workers run on as a spec says that is another by now."""
    meant = made_of(job, WORKER)
    return any(pod.made_of and pod.made_of != meant for pod in live(workers_of(pods)))


def _goes(pod: WorkerPod, attempt: int) -> bool:
    goes = row(pod).goes
    return goes is Goes.AT_ONCE or (goes is Goes.NEXT_ATTEMPT and pod.attempt < attempt)


def to_delete(job: TrainingJob, pods: Sequence[WorkerPod]) -> list[WorkerPod]:
    """Pods that are to go, of a job that has not ended."""
    if has_succeeded(pods):
        return []
    target, standing = job.status.target, [pod for pod in pods if not pod.terminating]
    if target == 0:
        return standing
    gone = [pod for pod in standing if _goes(pod, job.status.attempt)]
    gone += outdated(job, pods)
    going = {pod.uid for pod in gone}
    workers = [pod for pod in workers_of(pods) if pod.uid not in going]
    staying = {pod.uid for pod in kept(workers, target, job.status.rendezvous)}
    running = sum(map(runs, workers))
    for pod in sorted(live(workers), key=lambda one: (runs(one), -one.index)):
        if pod.uid not in staying and may_leave(pod, running, job.minimum):
            gone.append(pod)
            running -= runs(pod)
    servers = [pod for pod in live(pods) if pod.role == PARAMETER_SERVER and pod.index >= job.ps]
    return [*gone, *(pod for pod in servers if pod.uid not in going)]


def to_create(job: TrainingJob, pods: Sequence[WorkerPod]) -> list[tuple[str, int]]:
    """(role, index) of pods that are missing. A name that is still taken is waited for, but for one that is lost: one
    more is made in its place. None are made beside those that are to go for their spec."""
    target = job.status.target
    if target == 0 or has_succeeded(pods) or outdated(job, pods):
        return []
    workers = workers_of(pods)
    taken, spare = {pod.index for pod in workers}, sum(row(pod).elsewhere for pod in workers)
    free = [index for index in range(target + spare) if index not in taken][: lacking(job, workers)]
    servers = {pod.index for pod in pods if pod.role == PARAMETER_SERVER}
    return [(PARAMETER_SERVER, index) for index in range(job.ps) if index not in servers] + [
        (WORKER, index) for index in free
    ]


def meeting(job: TrainingJob, pods: Sequence[WorkerPod]) -> int:
    """Index of the worker that all meet at: another one where the pod of the last cannot be made anew. A job that is to
    have none begins with the first again."""
    workers = workers_of(pods)
    lost = {pod.index for pod in workers if row(pod).elsewhere}
    if not (job.status.target or workers) or job.status.rendezvous in lost:
        return next(index for index in count() if index not in lost)
    return job.status.rendezvous


def has_frame(state: JobsState, job: TrainingJob) -> bool:
    """Whether its PodGroup and its Service are there, and its own: pods that were made before would wait in somebody
    else's group, or hold GPUs and never find each other, since the Service is what gives them names."""
    made = (state.made.get((kind, job.namespace, job.name)) for kind in (GROUP, SERVICE))
    return all(one is not None and one.job == job.uid for one in made)


def plan(state: JobsState, seen: JobState, now: float) -> Iterator[Write]:
    """The writes that the job needs now. Those of an object that is being written, or waits after a failure, are left
    out; a job that is wrong is left as it is."""
    job = seen.job
    if job.deleting or (job.problem and not job.ended):
        return
    pods = state.pods_of(job)
    if job.ended:
        yield from _clear(state, job, pods, now)
        return
    if job.status.target:
        yield from _frame(state, job, now)
    for pod in to_delete(job, pods):
        yield from _delete_pod(state, pod, now)
    if state.wall(now) < max(job.status.retry_at, seen.not_before) or not has_frame(state, job):
        return
    nodes = iter(_wished_nodes(seen, pods))
    for role, index in to_create(job, pods):
        target = (POD, job.namespace, pod_name(job.name, role, index))
        node = next(nodes, "") if role == WORKER else ""
        other = state.named(target)
        if other is not None:
            if state.writes.free(target, now):
                state.writes.failed(target, now, taken_name(other, job))
        elif state.writes.free(target, now):
            yield state.writes.send(target, partial(a_pod, state, job, role, index, node))


def taken_name(pod: WorkerPod, job: TrainingJob) -> str:
    """Somebody else's pod has the name of one of the job's: as of a job of that name whose pods were left behind."""
    what = f"Pod {pod.namespace}/{pod.name} is there and not this job's"
    return f"{what}; delete it, or give TrainingJob {job.name} another name"


def somebody_elses(kind: str, job: TrainingJob) -> str:
    """A group or Service of the job's name is there, of somebody else."""
    return f"{kind} {job.namespace}/{job.name} is there and not the job's; rename one"


def a_pod(state: JobsState, job: TrainingJob, role: str, index: int, node: str, write: int) -> CreateObject:
    """The write that makes this pod of the job."""
    token = report_token(state.report_key, job.key, job.uid) if state.report_key else ""
    body = pod_body(job, role, index, rules=state.rules, group=state.group, token=token, node=node)
    return CreateObject(write, JOB_PODS, job.namespace, body["metadata"]["name"], body)


def _wished_nodes(seen: JobState, pods: Sequence[WorkerPod]) -> list[str]:
    """A node for each worker that is to be made: where the policy's placement wants more of them than stand there. Who
    waits for its node was made for one of the first of these."""
    if seen.wish is None or not seen.wish.placement:
        return []
    workers = live(workers_of(pods))
    standing = Counter(pod.node for pod in workers)
    lacking = (Counter(seen.wish.placement) - standing).items()
    return [node for node, count in sorted(lacking) for _ in range(count)][standing[""] :]


def _frame(state: JobsState, job: TrainingJob, now: float) -> Iterator[Write]:
    """The Service and the PodGroup."""
    for kind, resource, body in ((SERVICE, SERVICES, service_body), (GROUP, state.group, None)):
        target = (kind, job.namespace, job.name)
        made, free = state.made.get(target), state.writes.free(target, now)
        if made is None and free:
            content = body(job) if body is not None else group_body(job, state.group)
            yield state.writes.send(
                target,
                lambda write, r=resource, c=content: CreateObject(write, r, job.namespace, job.name, c),  # type: ignore[misc]
            )
        elif made is not None and made.job != job.uid and free:
            state.writes.failed(target, now, somebody_elses(kind, job))
        elif made is not None and kind == GROUP and made.minimum != group_minimum(job) and free and not made.deleting:
            if any(pod.holds for pod in state.pods_of(job)):
                yield state.writes.send(target, partial(_minimum, state, job, made))
            else:  # Kubernetes 1.36 changes none: with none of its pods there it is made anew
                yield state.writes.send(target, partial(_drop_group, state, job, made))


def _minimum(state: JobsState, job: TrainingJob, made: MadeObject, write: int) -> PatchMinimum:
    return PatchMinimum(write, state.group, job.namespace, job.name, made.uid, group_minimum(job))


def _drop_group(state: JobsState, job: TrainingJob, made: MadeObject, write: int) -> DeleteObject:
    return DeleteObject(write, state.group, job.namespace, job.name, made.uid)


def _delete_pod(state: JobsState, pod: WorkerPod, now: float) -> Iterator[Write]:
    target = (POD, pod.namespace, pod.name)
    if state.writes.free(target, now):
        yield state.writes.send(target, lambda write: DeleteObject(write, JOB_PODS, pod.namespace, pod.name, pod.uid))


def _clear(state: JobsState, job: TrainingJob, pods: Sequence[WorkerPod], now: float) -> Iterator[Write]:
    """After the end: what still runs goes, and the group; what has ended stays for its log."""
    for pod in pods:
        if pod.holds and not pod.terminating:
            yield from _delete_pod(state, pod, now)
    target = (GROUP, job.namespace, job.name)
    made = state.made.get(target)
    if made is not None and made.job == job.uid and not made.deleting and state.writes.free(target, now):
        yield state.writes.send(target, partial(_drop_group, state, job, made))
