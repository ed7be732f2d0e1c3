"""FIFO and SRTF: each job gets the workers that its user asked for, or waits."""

from __future__ import annotations

from shared.jobs.observation import Decision, JobAllocation, JobObservation, JobsObservation
from shared.jobs.policies.placing import free_of, pack, place_kept


class Fifo:
    """In the order in which they came; what runs keeps running, and nobody overtakes the first that does not fit."""

    name = "fifo"

    def reset(self, seed: int) -> None:
        """Nothing is remembered, nothing drawn."""

    def decide(self, seen: JobsObservation) -> Decision:
        """Starts those at the head of the line for which there is room."""
        free = free_of(seen.nodes, (job.placement for job in seen.jobs))
        found: dict[str, JobAllocation] = {}
        for job in seen.jobs:
            if job.workers:
                continue
            placement = pack(free, job.requested)
            if placement is None:
                break
            found[job.name] = JobAllocation(workers=job.requested, placement=placement)
        return found


def remaining_s(job: JobObservation, per_node: int, gpu_type: str = "") -> float:
    """Seconds of work left with the workers asked for, packed; infinite where work or speed is unknown."""
    if job.speed is None or job.remaining_samples is None:
        return float("inf")
    full, rest = divmod(job.requested, per_node)
    placement = (per_node,) * full + (rest,) * (rest > 0)
    samples_per_s = job.speed.samples_per_s(placement, job.batch, gpu_type)
    return job.remaining_samples / samples_per_s if samples_per_s > 0.0 else float("inf")


class Srtf:
    """Shortest remaining time first, preempting: who has least work left at the workers asked for gets them."""

    name = "srtf"

    def reset(self, seed: int) -> None:
        """Nothing is remembered, nothing drawn."""

    def decide(self, seen: JobsObservation) -> Decision:
        """The shortest that fit, one after the other; a longer one may fill what a shorter one cannot use."""
        per_node = max((node.gpus for node in seen.nodes), default=1)
        left = sum(node.gpus for node in seen.nodes)
        workers: dict[str, int] = {}
        for job in sorted(seen.jobs, key=lambda one: (remaining_s(one, per_node), one.submitted)):
            workers[job.name] = job.requested if job.requested <= left else 0
            left -= workers[job.name]
        return place_kept(seen.jobs, seen.nodes, workers)
