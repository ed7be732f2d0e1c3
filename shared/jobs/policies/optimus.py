"""Optimus (Peng et al., EuroSys 2018) with oracle speed, as Pollux' simulator runs it.

Every job gets one worker in the order in which they came; then the worker that shortens a job's remaining time most, in
seconds, goes to that job, until no GPU is left or no worker would shorten anything. Speeds are those of packed
placements. Who keeps its count keeps its place.

A job with parameter servers begins with one of them, and its next step is a worker or a server: whichever saves more
for what it takes of its dominant resource (Optimus, section 4.1): a GPU of all GPUs, or a place of all places.
"""

from __future__ import annotations

import heapq
from math import inf

from shared.jobs.observation import Decision, JobObservation, JobsObservation, ServedSpeed
from shared.jobs.policies.placing import place_kept, room_of, servers_of

WORKER, SERVER = (1, 0), (0, 1)
Pair = tuple[int, int]
"""Workers and parameter servers."""


class Optimus:
    """Greedy by marginal gain."""

    name = "optimus"

    def __init__(self) -> None:
        self._step_s: dict[tuple[int, int, Pair], tuple[object, float]] = {}

    def reset(self, seed: int) -> None:  # noqa: ARG002  nothing is drawn
        """Speeds are asked for anew; nothing is drawn."""
        self._step_s = {}

    def decide(self, seen: JobsObservation) -> Decision:
        """One worker each, then by gain."""
        has: dict[int, Pair] = {}
        for at, step in self.steps(seen):
            stood = has.get(at, (0, 0))
            has[at] = (stood[0] + step[0], stood[1] + step[1])
        pairs = {job.name: has.get(at, (0, 0)) for at, job in enumerate(seen.jobs)}
        servers = servers_of(seen, {name: pair[1] for name, pair in pairs.items()})
        return place_kept(seen.jobs, seen.nodes, {name: pair[0] for name, pair in pairs.items()}, servers)

    def steps(self, seen: JobsObservation) -> list[tuple[int, Pair]]:
        """In the order in which they are given: which job, and workers and servers more."""
        per_node = max((node.gpus for node in seen.nodes), default=1)
        left = gpus = sum(node.gpus for node in seen.nodes)
        places = room_of(seen)
        costs = {WORKER: 1.0, SERVER: gpus / places if places < inf else 1.0}
        has: list[Pair] = [(0, 0)] * len(seen.jobs)
        line: list[tuple[float, int, Pair, Pair]] = []
        found: list[tuple[int, Pair]] = []

        def queue(at: int) -> None:
            """Puts a job's next worker, and its next server, in line, where they save anything."""
            for step, cost in costs.items():
                gain = self._gain(seen.jobs[at], has[at], step, per_node) / cost
                if gain > 0.0:
                    heapq.heappush(line, (-gain, at, has[at], step))

        for at, job in enumerate(seen.jobs):
            first = (job.minimum, min(job.most_servers, 1))
            if first[0] > left or sum(first) > places:
                continue
            has[at] = first
            left, places = left - first[0], places - sum(first)
            found.append((at, first))
            queue(at)
        while line:
            _, at, stood, step = heapq.heappop(line)
            if stood != has[at] or step[0] > left or places < 1:
                continue
            has[at] = (stood[0] + step[0], stood[1] + step[1])
            left, places = left - step[0], places - 1
            found.append((at, step))
            queue(at)
        return found

    def _gain(self, job: JobObservation, has: Pair, step: Pair, per_node: int) -> float:
        """Seconds that one step saves a job; 0.0: it may not take it, or its work is unknown."""
        after = (has[0] + step[0], has[1] + step[1])
        if after[0] > job.maximum or after[1] > job.most_servers or job.remaining_samples is None:
            return 0.0
        saved = self._seconds(job, has, per_node) - self._seconds(job, after, per_node)
        return saved * max(job.remaining_samples / job.batch, 1.0)

    def _seconds(self, job: JobObservation, has: Pair, per_node: int) -> float:
        """Of one step at the job's batch, packed; infinite where it is unknown."""
        key = (id(job.speed), job.batch, has)
        if key not in self._step_s:
            if job.most_servers and isinstance(job.speed, ServedSpeed):
                per_s = job.speed.served(*has, job.batch)
            else:
                full, rest = divmod(has[0], per_node)
                placement = (per_node,) * full + (rest,) * (rest > 0)
                per_s = job.speed.samples_per_s(placement, job.batch, "") if job.speed is not None else 0.0
            # the speed is kept beside its figure, so that no other can get its id
            self._step_s[key] = (job.speed, job.batch / per_s if per_s > 0.0 else float("inf"))
        return self._step_s[key][1]
