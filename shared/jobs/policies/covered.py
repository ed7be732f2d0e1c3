"""A policy that needs speeds, for a cluster where not every job's is known: the others are left to ``elastic``. Pure.

Without it a job that reports nothing would never start, or be stopped for being unknown.
"""

from __future__ import annotations

from msgspec.structs import replace

from shared.jobs.observation import Decision, JobAllocation, JobObservation, JobsObservation, Policy
from shared.jobs.policies.elastic import Elastic


class Covered:
    """``inner`` decides about jobs whose speed is known. Others hold what they have; those that wait get their minimum
    before ``inner`` deals, and what they may grow to of the room that it leaves. (Every job's speed is unknown until it
    has run: without that none would start while ``inner`` has a use for all GPUs.)"""

    def __init__(self, inner: Policy) -> None:
        self.name = inner.name
        self._inner = inner
        self._rest = Elastic()

    def reset(self, seed: int) -> None:
        """Both begin anew."""
        self._inner.reset(seed)
        self._rest.reset(seed)

    def decide(self, seen: JobsObservation) -> Decision:
        """``inner`` sees the nodes without what jobs of unknown speed hold."""
        unknown = tuple(job for job in seen.jobs if job.speed is None)
        if not unknown:
            return self._inner.decide(seen)
        known = tuple(job for job in seen.jobs if job.speed is not None)
        decided = dict(self._inner.decide(_without(seen, known, unknown))) if known else {}
        after = tuple(_as_decided(job, decided) for job in known)
        jobs = tuple(sorted((*after, *unknown), key=lambda job: (job.submitted, job.name)))
        rest = self._rest.decide(JobsObservation(now=seen.now, jobs=jobs, nodes=seen.nodes))
        names = {job.name for job in unknown}
        return {**decided, **{name: wish for name, wish in rest.items() if name in names}}


def _without(
    seen: JobsObservation, known: tuple[JobObservation, ...], unknown: tuple[JobObservation, ...]
) -> JobsObservation:
    held = dict.fromkeys((node.name for node in seen.nodes), 0.0)
    for job in unknown:
        for node, count in job.placement.items():
            held[node] = held.get(node, 0.0) + count * job.gpus_per_worker
    left = {node.name: node.gpus - held[node.name] for node in seen.nodes}
    kept = _minima(known, unknown, sum(left.values()))
    idle = dict(left)
    for job in known:
        for name, count in job.placement.items():
            idle[name] = idle.get(name, 0.0) - count * job.gpus_per_worker
    for one in sorted(seen.nodes, key=lambda one: (not one.open, -idle[one.name], one.name)):
        taken = min(kept, max(0.0, left[one.name]))
        left[one.name] -= taken
        kept -= taken
    nodes = tuple(replace(one, gpus=max(0, int(left[one.name]))) for one in seen.nodes)
    return JobsObservation(now=seen.now, jobs=known, nodes=nodes)


def _minima(known: tuple[JobObservation, ...], unknown: tuple[JobObservation, ...], gpus: float) -> float:
    """GPUs for the minima of those that wait, the most important and oldest first, as far as the others' minima leave
    room: nobody who runs is stopped for one that is not known."""
    free = gpus - sum(min(job.workers, job.minimum) * job.gpus_per_worker for job in known)
    kept = 0.0
    for job in sorted(unknown, key=lambda one: (-one.priority, one.submitted, one.name)):
        needs = job.minimum * job.gpus_per_worker + job.server_gpus
        if not job.workers and needs <= free - kept:
            kept += needs
    return kept


def _as_decided(job: JobObservation, decided: dict[str, JobAllocation]) -> JobObservation:
    """Fixed at what it was given: nothing is taken from it for the others. One that waits is not there."""
    wish = decided.get(job.name)
    workers = job.workers if wish is None else wish.workers
    placement = job.placement if wish is None or wish.placement is None else wish.placement
    return replace(job, workers=workers, minimum=workers, maximum=workers, requested=workers, placement=placement)
