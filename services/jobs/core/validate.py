"""What must hold between two turns of the jobs core; one line per invariant that does not, its name first."""

from __future__ import annotations

from collections.abc import Mapping

from services.jobs.core.instructions import DeleteObject, WriteStatus
from services.jobs.core.members import GROUP, SERVICE, has_frame, like_spec, runs, to_create, to_delete, workers_of
from services.jobs.core.state import POD, JobsState, Target
from shared.kube.training.training_pods import pod_name


def broken(state: JobsState, due: Mapping[str, float], *, ready: bool, since: int) -> list[str]:
    """See ``phases.py`` for J1 to J5. ``since``: number of the turn's first write."""
    lines = []
    for key, seen in state.jobs.items():
        job = seen.job
        target = job.status.target
        current = job.status.observed_generation == job.generation
        if target > job.maximum and current and not job.problem and not job.ended:
            lines.append(f"J1 {key}: target {target} is more than {job.maximum}")
        if key != job.key:
            lines.append(f"J2 {key}: holds the job {job.key}")
        if ready and not job.problem and not job.ended and not job.deleting:
            lines += _forgotten(state, due, key)
    for place, pending in state.writes.pending.items():
        if pending.number > state.writes.number:
            lines.append(f"J2 {'/'.join(place)}: write {pending.number} was never numbered")
        if isinstance(pending.write, WriteStatus) and pending.number >= since:
            job, target = pending.write.job, pending.write.status.target
            decided = not job.problem and target != min(job.status.target, job.maximum)
            if decided and 0 < target < job.minimum:
                lines.append(f"J1 {job.key}: {target} is decided, and its minimum is {job.minimum}")
    lines += _below_minimum(state, since)
    for uid, pods in state.of_job.items():
        lines += [f"J2 {pod.name}: held for {uid}, owned by {pod.job}" for pod in pods.values() if pod.job != uid]
    return lines


def _below_minimum(state: JobsState, since: int) -> list[str]:
    """J3: what is taken away in this turn, beside what is on its way out, leaves each job at least its minimum, unless
    it is to stop. (A turn later a minimum may have been raised, and a worker lost.)"""
    lines = []
    pending = [one for one in state.writes.pending.values() if isinstance(one.write, DeleteObject)]
    leaving = {one.write.uid for one in pending}  # type: ignore[union-attr]
    new = {one.write.uid for one in pending if one.number >= since}  # type: ignore[union-attr]
    for key, seen in state.jobs.items():
        job = seen.job
        workers = workers_of(state.of_job.get(job.uid, {}).values())
        running = [pod for pod in workers if runs(pod)]
        going = [pod for pod in running if pod.uid in leaving and like_spec(job, pod)]
        if job.ended or job.status.target == 0 or not any(pod.uid in new for pod in going):
            continue
        if len(running) - len(going) < job.minimum:
            lines.append(
                f"J3 {key}: {len(running)} workers run, {len(going)} are taken away, {job.minimum} is its minimum"
            )
    return lines


def _forgotten(state: JobsState, due: Mapping[str, float], key: str) -> list[str]:
    """J4: whatever is to be made or taken away has a write out, or a time."""
    job = state.jobs[key].job
    pods = state.pods_of(job)
    names = [pod.name for pod in to_delete(job, pods)]
    frame = [(kind, job.namespace, job.name) for kind in (GROUP, SERVICE)]
    if has_frame(state, job):
        names += [pod_name(job.name, role, index) for role, index in to_create(job, pods)]
    elif job.status.target and key not in due and not any(_written(state, one) for one in frame):
        return [f"J4 {key}: it has no group or no Service, and nobody will make one"]
    return [
        f"J4 {key}: {name} is to change, and nobody will look"
        for name in names
        if key not in due and not _written(state, (POD, job.namespace, name))
    ]


def _written(state: JobsState, target: Target) -> bool:
    """Whether a write of it is out, or waits to be made again."""
    return target in state.writes.pending or target in state.writes.waits
