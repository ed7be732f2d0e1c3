"""DRF (Ghodsi et al., NSDI 2011): the job whose dominant share is smallest gets the next worker.

Workers ask for GPUs alone here, so the dominant share of a job is its part of all GPUs, and what comes out is max-min
fair over jobs, each between its minimum and its maximum. DL2 compares itself with it so (TPDS 2021, section 6).
"""

from __future__ import annotations

import heapq

from shared.jobs.observation import Decision, JobsObservation
from shared.jobs.policies.placing import place_kept


class Drf:
    """Progressive filling, worker by worker."""

    name = "drf"

    def reset(self, seed: int) -> None:
        """Nothing is remembered, nothing drawn."""

    def decide(self, seen: JobsObservation) -> Decision:
        """Fills until no GPU is left or every job has its maximum; of equal shares, who came first is first."""
        left = sum(node.gpus for node in seen.nodes)
        workers = {job.name: 0 for job in seen.jobs}
        line = [(0.0, at) for at in range(len(seen.jobs))]
        while line and left:
            _, at = heapq.heappop(line)
            job = seen.jobs[at]
            more = 1 if workers[job.name] else job.minimum
            if more > left:
                continue
            workers[job.name] += more
            left -= more
            if workers[job.name] < job.maximum:
                heapq.heappush(line, (workers[job.name] * max(job.gpus_per_worker, 0.0), at))
        return place_kept(seen.jobs, seen.nodes, workers)
