"""Ours, without a network: GPUs go where they shorten waiting most, and nobody restarts for less than it costs.

For a job with work W (seconds on one GPU) that would be done after T(n) seconds on n GPUs, n are worth

    U(n) = W^size_weight · (1 + age_weight · hours since it came) / (T(n) + offset_s)
    T(n) = work left / goodput(n), and restart_weight · restart_s where n changes

``size_weight`` 0 is the rule of least expected remaining time (the c-mu rule of queueing: who is done soonest counts
most), 1 weighs throughput alone; age keeps large jobs from waiting for ever. The restart stands in T, so a short job is
not moved near its end. GPUs, and parameter servers where their number may be chosen, are dealt by the best gain for
their cost (``dealing``). Work left is integrated over the efficiency that a job will have. One that reports nothing is
taken to need as long again as it had. Another rule for these numbers overrides ``worth``: ``jobs-sets`` learns it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shared.jobs.observation import (
    Decision,
    JobAllocation,
    JobObservation,
    JobsObservation,
    NodeObservation,
    ServedSpeed,
    Speed,
)
from shared.jobs.policies.dealing import JobOptions, deal, options_of, pairs_of, place, sizes_of
from shared.jobs.policies.goodput import MOST_KEPT, PROGRESS_STEPS, Floats, GoodputTables
from shared.jobs.policies.placing import place_kept, room_of, servers_of

UNKNOWN_S = 30.0
"""Of one GPU, at least, a job is taken to need that reports nothing, however little it has had."""
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


@dataclass(frozen=True, slots=True)
class JobWorth:
    """What time is worth to each job, float64 [jobs] each: n workers are worth ``weights / (T(n) + offsets_s)``, and
    where n is another number T(n) has so many ``restarts`` in it. An infinite weight: it cannot run."""

    weights: Floats
    offsets_s: Floats
    restarts: Floats


class Marginal:
    """Keeps nothing but tables of speeds."""

    name = "marginal"

    def __init__(self, settings: MarginalSettings | None = None) -> None:
        self._settings = settings if settings is not None else MarginalSettings()
        self._nodes: tuple[NodeObservation, ...] = ()
        self._types: dict[str, tuple[NodeObservation, ...]] = {}
        self._tables: dict[str, GoodputTables] = {}
        self._costs: dict[tuple[str, int, tuple[int, int] | None, int, int], tuple[Speed, Floats]] = {}
        self._served: dict[tuple[int, int, tuple[int, int]], tuple[ServedSpeed, Floats]] = {}

    def reset(self, seed: int) -> None:  # noqa: ARG002  nothing is drawn
        """Forget the tables."""
        self._nodes = ()

    def decide(self, seen: JobsObservation) -> Decision:
        """GPUs by gain, then nodes, then each job's batch."""
        if seen.nodes != self._nodes:
            self._adopt(seen)
        if not self._tables:
            return {job.name: JobAllocation(workers=0) for job in seen.jobs}
        served = [job for job in seen.jobs if job.most_servers]
        most = tuple(max((getattr(job, name) for job in served), default=0) for name in ("maximum", "most_servers"))
        pair, places = (most[0], most[1]), room_of(seen)
        stands = [_type_of(job, self._types) for job in seen.jobs]
        left_s = [np.concatenate((self._seconds_left(job), self._served_left(job, pair))) for job in seen.jobs]
        options = options_of(self._tables, left_s, pair, places)
        work_s = np.array([float(np.min(seconds[1:] * options.costs[1:])) for seconds in left_s])
        soonest_s = np.array([float(np.min(seconds)) for seconds in left_s])
        at_of = {kind: at for at, kind in enumerate(self._types)}
        kinds = [at_of[kind] if kind is not None else -1 for kind in stands]
        values = _values(seen, options, left_s, kinds, self.worth(seen, work_s, soonest_s))
        chosen = deal(values, options, [tables.workers for tables in self._tables.values()], places)
        if served:
            counts = {job.name: int(options.counts[at]) for job, at in zip(seen.jobs, chosen, strict=True)}
            servers = {job.name: int(options.servers[at]) for job, at in zip(seen.jobs, chosen, strict=True)}
            return place_kept(seen.jobs, seen.nodes, counts, servers_of(seen, servers))
        return self._placed(seen, options, chosen, stands)

    def worth(self, seen: JobsObservation, work_s: Floats, soonest_s: Floats) -> JobWorth:  # noqa: ARG002  for those that learn
        """By the formula. ``work_s``: work left, seconds on one GPU; ``soonest_s``: until it could be done, with all
        that it could use; float64 [jobs] both, infinite where it cannot run.
        """
        settings = self._settings
        age_h = np.maximum(seen.now - np.array([job.submitted for job in seen.jobs]), 0.0) / 3600.0  # clocks differ
        weights = work_s**settings.size_weight * (1.0 + age_h * settings.age_weight)
        count = len(weights)
        return JobWorth(weights, np.full(count, settings.offset_s), np.full(count, settings.restart_weight))

    def _placed(
        self, seen: JobsObservation, options: JobOptions, chosen: Sequence[int], stands: Sequence[str | None]
    ) -> dict[str, JobAllocation]:
        found: dict[str, JobAllocation] = {}
        for at, (kind, nodes) in enumerate(self._types.items()):
            wanted = {
                job.name: int(options.counts[option])
                for job, option in zip(seen.jobs, chosen, strict=True)
                if option and options.kinds[option] == at
            }
            here = [job for job, stood in zip(seen.jobs, stands, strict=True) if stood == kind and job.name in wanted]
            placements = place(here, nodes, wanted)
            for job in seen.jobs:
                if job.name in wanted:
                    found[job.name] = self._allocation(job, placements[job.name], kind)
        return {job.name: found.get(job.name, JobAllocation(workers=0)) for job in seen.jobs}

    def _adopt(self, seen: JobsObservation) -> None:
        """Take another cluster's nodes over."""
        types: dict[str, list[NodeObservation]] = {}
        for node in seen.nodes:
            if node.gpus:
                types.setdefault(node.gpu_type, []).append(node)
        self._nodes, self._costs, self._served = seen.nodes, {}, {}
        self._types = {kind: tuple(nodes) for kind, nodes in types.items()}
        self._tables = {
            kind: GoodputTables(JobsObservation(now=seen.now, jobs=(), nodes=nodes), sizes_of(nodes))
            for kind, nodes in self._types.items()
        }

    def _seconds_left(self, job: JobObservation) -> Floats:
        """float64 [options]: until the job is done; infinite for none, and where it may not run or cannot."""
        found = [np.array([np.inf])]
        for kind, tables in self._tables.items():
            counts = np.array(tables.sizes)
            allowed = (counts >= job.minimum) & (counts <= job.maximum) & (job.most_servers == 0)
            if job.speed is None or job.remaining_samples is None:
                needed = max(job.attained_s, job.restart_s, UNKNOWN_S) / counts
            else:
                step = round((job.progress or 0.0) * PROGRESS_STEPS)
                key = (kind, id(job.speed), job.batch_range, job.batch, step)
                if key not in self._costs:
                    if len(self._costs) >= MOST_KEPT:
                        self._costs.clear()
                    self._costs[key] = (job.speed, seconds_per_sample(job, tables, kind))
                needed = max(job.remaining_samples, 1.0) * self._costs[key][1]
            found.append(np.where(allowed, needed, np.inf))
        return np.concatenate(found)

    def _served_left(self, job: JobObservation, most: tuple[int, int]) -> Floats:
        """float64 [pairs of ``dealing.pairs_of(most)``]: until the job is done; infinite where it may not run or
        cannot."""
        workers, servers = pairs_of(most)
        if not job.most_servers:
            return np.full(len(workers), np.inf)
        allowed = (workers >= job.minimum) & (workers <= job.maximum) & (servers <= job.most_servers)
        if job.remaining_samples is None or not isinstance(job.speed, ServedSpeed):
            needed = max(job.attained_s, job.restart_s, UNKNOWN_S) / workers
        else:
            key = (id(job.speed), job.batch, most)
            if key not in self._served:
                if len(self._served) >= MOST_KEPT:
                    self._served.clear()
                rates = [
                    job.speed.served(*pair, job.batch) for pair in zip(workers.tolist(), servers.tolist(), strict=True)
                ]
                self._served[key] = (job.speed, np.array(rates))
            with np.errstate(divide="ignore"):
                needed = max(job.remaining_samples, 1.0) / self._served[key][1]
        return np.where(allowed, needed, np.inf)

    def _allocation(self, job: JobObservation, placement: Mapping[str, int], kind: str) -> JobAllocation:
        table = self._tables[kind].of(job, kind)
        workers, sizes = sum(placement.values()), self._tables[kind].sizes or ()
        batch = int(table.batch[sizes.index(workers)]) if workers and table is not None and job.batch_range else None
        return JobAllocation(workers=workers, placement=placement, batch=batch)


def _values(
    seen: JobsObservation, options: JobOptions, left_s: Sequence[Floats], kinds: Sequence[int], worth: JobWorth
) -> list[Floats]:
    """float64 [options] of each job: U; 0 for none, and where it cannot run so. ``kinds``: the types they stand on."""
    found: list[Floats] = []
    for at, (job, seconds) in enumerate(zip(seen.jobs, left_s, strict=True)):
        if not np.isfinite(worth.weights[at]):
            found.append(np.zeros(len(seconds)))
            continue
        same = (options.counts == job.workers) & (options.kinds == kinds[at]) & (options.servers == job.servers)
        restart_s = np.where(same, 0.0, worth.restarts[at] * job.restart_s)
        found.append(worth.weights[at] / (seconds + restart_s + worth.offsets_s[at]))
    return found


def _type_of(job: JobObservation, types: Mapping[str, Sequence[NodeObservation]]) -> str | None:
    """The GPU type that all of its workers stand on; None: it waits, or they stand on several."""
    if not job.placement:
        return None
    found = {kind for kind, nodes in types.items() if any(node.name in job.placement for node in nodes)}
    return found.pop() if len(found) == 1 else None


def seconds_per_sample(job: JobObservation, tables: GoodputTables, gpu_type: str) -> Floats:
    """float64 [sizes]: from the job's progress to its end, by workers, packed; infinite: it cannot run so."""
    progress = job.progress or 0.0
    found: Floats = np.zeros(len(tables.sizes or ()))
    for point in range(POINTS):
        table = tables.of(job, gpu_type, progress=progress + (1.0 - progress) * (point + 0.5) / POINTS)
        with np.errstate(divide="ignore"):
            found += np.inf if table is None else 1.0 / table.rate / POINTS
    return found
