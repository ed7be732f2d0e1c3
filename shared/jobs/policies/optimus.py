"""Optimus (Peng et al., EuroSys 2018) with oracle speed, as Pollux' simulator runs it.

Every job gets one worker in the order in which they came; then the worker that shortens a job's remaining time most, in
seconds, goes to that job, until no GPU is left or no worker would shorten anything. Speeds are those of packed
placements. Who keeps its count keeps its place.
"""

from __future__ import annotations

import heapq

from shared.jobs.observation import Decision, JobObservation, Observation
from shared.jobs.policies.placing import place_kept


class Optimus:
    """Greedy by marginal gain."""

    name = "optimus"

    def __init__(self) -> None:
        self._step_s: dict[tuple[int, int, int], tuple[object, float]] = {}

    def reset(self, seed: int) -> None:  # noqa: ARG002  nothing is drawn
        """Speeds are asked for anew; nothing is drawn."""
        self._step_s = {}

    def decide(self, seen: Observation) -> Decision:
        """One worker each, then by gain."""
        per_node = max((node.gpus for node in seen.nodes), default=1)
        left = sum(node.gpus for node in seen.nodes)
        workers = {job.name: 0 for job in seen.jobs}
        line: list[tuple[float, int]] = []
        for at, job in enumerate(seen.jobs):
            if job.minimum > left:
                continue
            workers[job.name] = job.minimum
            left -= job.minimum
            self._queue(line, at, job, workers[job.name], per_node)
        while left and line:
            _, at = heapq.heappop(line)
            job = seen.jobs[at]
            workers[job.name] += 1
            left -= 1
            self._queue(line, at, job, workers[job.name], per_node)
        return place_kept(seen.jobs, seen.nodes, workers)

    def _queue(self, line: list[tuple[float, int]], at: int, job: JobObservation, has: int, per_node: int) -> None:
        """Puts the gain of one worker more in line, where there is one."""
        if has >= job.maximum or job.remaining_samples is None:
            return
        saved = self._seconds(job, has, per_node) - self._seconds(job, has + 1, per_node)
        gain = saved * max(job.remaining_samples / job.batch, 1.0)
        if gain > 0.0:
            heapq.heappush(line, (-gain, at))

    def _seconds(self, job: JobObservation, workers: int, per_node: int) -> float:
        """Of one step at the job's batch, packed; infinite where it is unknown."""
        key = (id(job.speed), job.batch, workers)
        if key not in self._step_s:
            full, rest = divmod(workers, per_node)
            placement = (per_node,) * full + (rest,) * (rest > 0)
            per_s = job.speed.samples_per_s(placement, job.batch, "") if job.speed is not None else 0.0
            # the speed is kept beside its figure, so that no other can get its id
            self._step_s[key] = (job.speed, job.batch / per_s if per_s > 0.0 else float("inf"))
        return self._step_s[key][1]
