"""Tetris (Grandl et al., SIGCOMM 2014): what fits best and has least left to do goes first.

The score of a job on the cluster is alignment + share · (1 - work left beside the most work left). Alignment is the dot
product of what it asks for and what is free, each as a part of the whole (section 3.2); the second term is the paper's
combination with shortest remaining time (section 3.3), both normalised to [0, 1]. Jobs that run keep running, as the
paper's tasks do.
"""

from __future__ import annotations

from shared.jobs.observation import Decision, JobAllocation, JobObservation, JobsObservation
from shared.jobs.policies.orders import remaining_s
from shared.jobs.policies.placing import free_of, pack

SHORT_SHARE = 1.0
"""Weight of the work left beside alignment: section 3.3 takes means of equal size."""


class Tetris:
    """Packing and remaining work, in one score."""

    name = "tetris"

    def reset(self, seed: int) -> None:
        """Nothing is remembered, nothing drawn."""

    def decide(self, seen: JobsObservation) -> Decision:
        """Starts the waiting job of the highest score that fits, until none does."""
        free = free_of(seen.nodes, (job.placement for job in seen.jobs))
        total, per_node = sum(node.gpus for node in seen.nodes), max((node.gpus for node in seen.nodes), default=1)
        left = {job.name: remaining_s(job, per_node) for job in seen.jobs}
        most = max((time for time in left.values() if time < float("inf")), default=0.0)
        waiting = [job for job in seen.jobs if not job.workers]
        found: dict[str, JobAllocation] = {}

        def score(job: JobObservation) -> float:
            alignment = (job.requested / total) * (sum(free.values()) / total)
            shortness = 1.0 - min(left[job.name] / most, 1.0) if most else 0.0
            return alignment + SHORT_SHARE * shortness

        while fitting := [job for job in waiting if job.requested <= sum(free.values())]:
            job = max(fitting, key=score)
            waiting.remove(job)
            found[job.name] = JobAllocation(workers=job.requested, placement=pack(free, job.requested))
        return found
