"""Ours, without a network: GPUs go where they shorten waiting most, and nobody restarts for less than it costs.

For a job with work W (seconds on one GPU) that would be done after T(n) seconds on n GPUs, n are worth

    U(n) = W^size_weight · (1 + age_weight · hours since it came) / (T(n) + offset_s)
    T(n) = work left / goodput(n), and restart_weight · restart_s where n changes

``size_weight`` 0 is the rule of least expected remaining time (the c-mu rule of queueing: who is done soonest counts
most), 1 weighs throughput alone; age keeps large jobs from waiting for ever. The restart stands in T, so a short job is
not moved near its end. GPUs are dealt by the best gain per GPU over any number of further GPUs (the concave envelope of
U), in whole nodes beyond one. Work left is integrated over the efficiency that a job will have. A job that reports
nothing is taken to need as long again as it has had.

Placement keeps who keeps its count; where whole nodes are missing, the nodes that hold least are cleared.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shared.jobs.observation import Allocation, Decision, JobObservation, NodeObservation, Observation, Speed
from shared.jobs.policies.goodput import MOST_KEPT, PROGRESS_STEPS, Floats, GoodputTables, Ints, best_batch
from shared.jobs.policies.placing import Free, free_of

POINTS = 4
"""Of a job's remaining progress, at which its goodput is looked up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginalSettings:
    """Found by a search on drawn workloads: docs/policies/jobs.md."""

    size_weight: float = 0.5
    offset_s: float = 60.0
    """Seconds; a job that needs much less counts no more than one that needs as many."""
    restart_weight: float = 8.0
    """Restarts that one is counted as: others are moved by it too, and what comes next moves them again."""
    age_weight: float = 0.3
    """Per hour."""


class Marginal:
    """Keeps nothing but tables of speeds."""

    name = "marginal"

    def __init__(self, settings: MarginalSettings | None = None) -> None:
        self._settings = settings if settings is not None else MarginalSettings()
        self._tables: GoodputTables | None = None
        self._costs: dict[tuple[int, tuple[int, int] | None, int, int], tuple[Speed, Floats]] = {}

    def reset(self, seed: int) -> None:  # noqa: ARG002  nothing is drawn
        """Forget the tables."""
        self._tables, self._costs = None, {}

    def decide(self, seen: Observation) -> Decision:
        """GPUs by gain, then nodes, then each job's batch."""
        if self._tables is None or not self._tables.fits(seen):
            self._tables, self._costs = GoodputTables(seen), {}
        sizes = sizes_of(self._tables.per_node, self._tables.workers)
        values = [self._values(job, self._tables, sizes, seen.now) for job in seen.jobs]
        workers = deal(values, sizes, self._tables.workers)
        wanted = {job.name: count for job, count in zip(seen.jobs, workers, strict=True)}
        placements = place(seen, wanted)
        return {job.name: self._allocation(job, placements[job.name], self._tables) for job in seen.jobs}

    def _values(self, job: JobObservation, tables: GoodputTables, sizes: Sequence[int], now: float) -> Floats:
        """float64 [sizes]: U of each count; 0 for none, and where the job cannot run so."""
        counts, chosen = np.array(sizes), self._settings
        left_s = self._seconds_left(job, tables, counts)
        alone_s = float(np.min(left_s * np.maximum(counts, 1)))
        if not np.isfinite(alone_s):
            return np.zeros(len(sizes))
        restart_s = np.where(counts == job.workers, 0.0, chosen.restart_weight * job.restart_s)
        weight = alone_s**chosen.size_weight * (1.0 + (now - job.submitted) * chosen.age_weight / 3600.0)
        values: Floats = weight / (left_s + restart_s + chosen.offset_s)
        return values

    def _seconds_left(self, job: JobObservation, tables: GoodputTables, counts: Ints) -> Floats:
        """float64 [counts]: until the job is done with so many workers; infinite where it may not, or cannot."""
        allowed = (counts >= job.minimum) & (counts <= job.maximum)
        if job.speed is None or job.remaining_samples is None:
            needed = max(job.attained_s, job.restart_s) / np.maximum(counts, 1)
        else:
            key = (id(job.speed), job.batch_range, job.batch, round((job.progress or 0.0) * PROGRESS_STEPS))
            if key not in self._costs:
                if len(self._costs) >= MOST_KEPT:
                    self._costs.clear()
                self._costs[key] = (job.speed, seconds_per_sample(job, tables, counts))
            needed = job.remaining_samples * self._costs[key][1]
        return np.where(allowed, needed, np.inf)

    @staticmethod
    def _allocation(job: JobObservation, placement: Mapping[str, int], tables: GoodputTables) -> Allocation:
        table = tables.of(job)
        batch = best_batch(table, dict(placement)) if placement and table is not None and job.batch_range else None
        return Allocation(workers=sum(placement.values()), placement=placement, batch=batch)


def sizes_of(per_node: int, gpus: int) -> tuple[int, ...]:
    """The counts that a job may have: none, any within a node, whole nodes."""
    return (*range(min(per_node, gpus)), *range(per_node, gpus + 1, per_node))


def seconds_per_sample(job: JobObservation, tables: GoodputTables, counts: Ints) -> Floats:
    """float64 [counts]: from the job's progress to its end, by workers, packed; infinite: it cannot run so."""
    nodes = np.minimum(-(-counts // tables.per_node), tables.nodes)
    progress = job.progress or 0.0
    found: Floats = np.zeros(len(counts))
    for point in range(POINTS):
        table = tables.of(job, progress=progress + (1.0 - progress) * (point + 0.5) / POINTS)
        rate = np.zeros(len(counts)) if table is None else table.rate[nodes, counts]
        with np.errstate(divide="ignore"):
            found += 1.0 / rate / POINTS
    return found


def deal(values: Sequence[Floats], sizes: Sequence[int], gpus: int) -> list[int]:
    """The count of each job: always the best gain per GPU over any number of further ones that are left."""
    counts = np.array(sizes)
    at = [0] * len(values)
    line: list[tuple[float, int, int]] = []

    def queue(job: int) -> None:
        """Puts the best step of a job in line, among those that fit what is left."""
        here = at[job]
        ahead = int(np.searchsorted(counts, counts[here] + gpus, side="right"))
        if ahead <= here + 1:
            return
        gains = (values[job][here + 1 : ahead] - values[job][here]) / (counts[here + 1 : ahead] - counts[here])
        best = int(gains.argmax())
        if gains[best] > 0.0:
            heapq.heappush(line, (-float(gains[best]), job, here + 1 + best))

    for job in range(len(values)):
        queue(job)
    while line and gpus:
        _, job, to = heapq.heappop(line)
        more = int(counts[to] - counts[at[job]])
        if more > gpus:
            queue(job)
            continue
        at[job], gpus = to, gpus - more
        queue(job)
    return [int(counts[one]) for one in at]


def place(seen: Observation, wanted: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Nodes for every job. Who keeps its count keeps its nodes unless these are cleared for a job of whole nodes."""
    kept = {job.name: dict(job.placement) for job in seen.jobs if job.workers and wanted[job.name] == job.workers}
    moved = sorted((name for name in wanted if wanted[name] and name not in kept), key=lambda one: -wanted[one])
    free = free_of(seen.nodes, kept.values())
    sizes = {node.name: node.gpus for node in seen.nodes}
    while moved:
        name = moved.pop(0)
        placement = _room(free, wanted[name], seen.nodes)
        while placement is None:
            cleared = _clear(kept, free, sizes, wanted[name])
            if not cleared:
                break
            moved = sorted([*moved, *cleared], key=lambda one: -wanted[one])
            placement = _room(free, wanted[name], seen.nodes)
        if placement is not None:
            kept[name] = placement
            for node, count in placement.items():
                free[node] -= count
    return {name: kept.get(name, {}) for name in wanted}


def _room(free: Free, workers: int, nodes: Sequence[NodeObservation]) -> dict[str, int] | None:
    """The node with least to spare that holds all of them, or empty nodes; None: neither is there."""
    fitting = [node for node in free if free[node] >= workers]
    if fitting:
        return {min(fitting, key=lambda one: free[one]): workers}
    empty = [node.name for node in nodes if free[node.name] == node.gpus]
    placement: dict[str, int] = {}
    for node in empty:
        count = min(free[node], workers)
        if count:
            placement[node] = count
            workers -= count
    return None if workers else placement


def _clear(kept: dict[str, dict[str, int]], free: Free, sizes: Mapping[str, int], workers: int) -> list[str]:
    """Takes the jobs off the node that holds least of smaller jobs. Returns who was taken off; []: there is no such."""
    held: dict[str, list[str]] = {}
    for name, placement in kept.items():
        for node in placement:
            held.setdefault(node, []).append(name)
    smaller = {
        node: names
        for node, names in held.items()
        if sizes[node] > free[node] and all(sum(kept[name].values()) < workers for name in names)
    }
    if not smaller:
        return []
    node = min(smaller, key=lambda one: (sizes[one] - free[one], len(smaller[one])))
    for name in smaller[node]:
        for other, count in kept.pop(name).items():
            free[other] += count
    return smaller[node]
