"""Ours, without a network: GPUs go where they shorten waiting most, and nobody restarts for less than it costs.

For a job with work W (seconds on one GPU) that would be done after T(n) seconds on n GPUs, n are worth

    U(n) = W^size_weight · (1 + age_weight · hours since it came) / (T(n) + offset_s)
    T(n) = work left / goodput(n), and restart_weight · restart_s where n changes

``size_weight`` 0 is the rule of least expected remaining time (the c-mu rule of queueing: who is done soonest counts
most), 1 weighs throughput alone; age keeps large jobs from waiting for ever. The restart stands in T, so a short job is
not moved near its end. GPUs are dealt by the best gain for their cost over any number of further GPUs (the concave
envelope of U), in whole nodes beyond one and of one type; a GPU of a faster type costs as much more. Work left is
integrated over the efficiency that a job will have. One that reports nothing is taken to need as long again as it had.

Placement keeps who keeps its count; where whole nodes are missing, the nodes that hold least are cleared.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shared.jobs.observation import Allocation, Decision, JobObservation, NodeObservation, Observation, Speed
from shared.jobs.policies.goodput import MOST_KEPT, PROGRESS_STEPS, Floats, GoodputTables, Ints
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


@dataclass(frozen=True, slots=True)
class Options:
    """What a job may have, none first: GPUs int64 [options], of which type (its index), and what they cost: a GPU of a
    type costs as much as it is faster, over the jobs of the moment."""

    counts: Ints
    kinds: Ints
    costs: Floats


class Marginal:
    """Keeps nothing but tables of speeds."""

    name = "marginal"

    def __init__(self, settings: MarginalSettings | None = None) -> None:
        self._settings = settings if settings is not None else MarginalSettings()
        self._nodes: tuple[NodeObservation, ...] = ()
        self._types: dict[str, tuple[NodeObservation, ...]] = {}
        self._tables: dict[str, GoodputTables] = {}
        self._costs: dict[tuple[str, int, tuple[int, int] | None, int, int], tuple[Speed, Floats]] = {}

    def reset(self, seed: int) -> None:  # noqa: ARG002  nothing is drawn
        """Forget the tables."""
        self._nodes = ()

    def decide(self, seen: Observation) -> Decision:
        """GPUs by gain, then nodes, then each job's batch."""
        if seen.nodes != self._nodes:
            self._adopt(seen)
        stands = [_type_of(job, self._types) for job in seen.jobs]
        left_s = [self._seconds_left(job) for job in seen.jobs]
        options = options_of(self._tables, left_s)
        values = [
            self._values(job, options, seconds, list(self._types).index(kind) if kind is not None else -1, seen.now)
            for job, seconds, kind in zip(seen.jobs, left_s, stands, strict=True)
        ]
        chosen = deal(values, options, [tables.workers for tables in self._tables.values()])
        found: dict[str, Allocation] = {}
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
        return {job.name: found.get(job.name, Allocation(workers=0)) for job in seen.jobs}

    def _adopt(self, seen: Observation) -> None:
        """Take another cluster's nodes over."""
        types: dict[str, list[NodeObservation]] = {}
        for node in seen.nodes:
            types.setdefault(node.gpu_type, []).append(node)
        self._nodes, self._costs = seen.nodes, {}
        self._types = {kind: tuple(nodes) for kind, nodes in types.items()}
        self._tables = {
            kind: GoodputTables(Observation(now=seen.now, jobs=(), nodes=nodes), sizes_of(nodes))
            for kind, nodes in self._types.items()
        }

    def _values(self, job: JobObservation, options: Options, left_s: Floats, kind: int, now: float) -> Floats:
        """float64 [options]: U of each; 0 for none, and where the job cannot run so. ``kind``: what it stands on."""
        chosen = self._settings
        work_s = float(np.min(left_s[1:] * options.costs[1:]))
        if not np.isfinite(work_s):
            return np.zeros(len(left_s))
        same = (options.counts == job.workers) & (options.kinds == kind)
        restart_s = np.where(same, 0.0, chosen.restart_weight * job.restart_s)
        weight = work_s**chosen.size_weight * (1.0 + (now - job.submitted) * chosen.age_weight / 3600.0)
        values: Floats = weight / (left_s + restart_s + chosen.offset_s)
        return values

    def _seconds_left(self, job: JobObservation) -> Floats:
        """float64 [options]: until the job is done; infinite for none, and where it may not run or cannot."""
        found = [np.array([np.inf])]
        for kind, tables in self._tables.items():
            counts = np.array(tables.sizes)
            allowed = (counts >= job.minimum) & (counts <= job.maximum)
            if job.speed is None or job.remaining_samples is None:
                needed = max(job.attained_s, job.restart_s) / counts
            else:
                step = round((job.progress or 0.0) * PROGRESS_STEPS)
                key = (kind, id(job.speed), job.batch_range, job.batch, step)
                if key not in self._costs:
                    if len(self._costs) >= MOST_KEPT:
                        self._costs.clear()
                    self._costs[key] = (job.speed, seconds_per_sample(job, tables, kind))
                needed = job.remaining_samples * self._costs[key][1]
            found.append(np.where(allowed, needed, np.inf))
        return np.concatenate(found)

    def _allocation(self, job: JobObservation, placement: Mapping[str, int], kind: str) -> Allocation:
        table = self._tables[kind].of(job, kind)
        workers, sizes = sum(placement.values()), self._tables[kind].sizes or ()
        batch = int(table.batch[sizes.index(workers)]) if workers and table is not None and job.batch_range else None
        return Allocation(workers=workers, placement=placement, batch=batch)


def sizes_of(nodes: Sequence[NodeObservation]) -> tuple[int, ...]:
    """The counts that a job may have on nodes of one type: any within a node, whole nodes."""
    per_node = max(node.gpus for node in nodes)
    return (*range(1, per_node), *range(per_node, sum(node.gpus for node in nodes) + 1, per_node))


def options_of(tables: Mapping[str, GoodputTables], left_s: Sequence[Floats]) -> Options:
    """The options of a cluster; ``left_s`` of its jobs say what a GPU of each type is worth beside the first type."""
    counts, kinds = [0], [0]
    for at, table in enumerate(tables.values()):
        sizes = table.sizes or ()
        counts += sizes
        kinds += [at] * len(sizes)
    all_counts, all_kinds = np.array(counts), np.array(kinds)
    first = {at: int(np.nonzero((all_kinds == at) & (all_counts == 1))[0][-1]) for at in range(len(tables))}
    prices = np.array([_price(left_s, first[0], first[at]) for at in range(len(tables))])
    return Options(all_counts, all_kinds, all_counts * prices[all_kinds])


def _price(left_s: Sequence[Floats], base: int, option: int) -> float:
    """How much faster one GPU of an option is than one of the base, the mean over the jobs that could run on both."""
    beside = [
        float(seconds[base] / seconds[option]) for seconds in left_s if np.isfinite(seconds[[base, option]]).all()
    ]
    return sum(beside) / len(beside) if beside else 1.0


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


def deal(values: Sequence[Floats], options: Options, gpus: Sequence[int]) -> list[int]:
    """The option of each job: always the best gain for its cost among those for which there are GPUs left.

    A job may change its type on the way, which gives GPUs of the other type back. ``gpus`` by type.
    """
    counts, kinds, costs = options.counts, options.kinds, options.costs
    free = np.array(gpus)
    at = [0] * len(values)
    line: list[tuple[float, int, int, int]] = []

    def queue(job: int) -> None:
        """Puts the best step of a job in line, among those that fit what is left."""
        here = at[job]
        more = counts - np.where(kinds == kinds[here], counts[here], 0)
        steps = np.nonzero((costs > costs[here]) & (more <= free[kinds]))[0]
        if not len(steps):
            return
        gains = (values[job][steps] - values[job][here]) / (costs[steps] - costs[here])
        best = int(gains.argmax())
        if gains[best] > 0.0:
            heapq.heappush(line, (-float(gains[best]), job, int(steps[best]), here))

    for job in range(len(values)):
        queue(job)
    while line:
        _, job, to, here = heapq.heappop(line)
        if at[job] != here:
            continue
        same = kinds[to] == kinds[here] or not here
        if counts[to] - (counts[here] if same else 0) > free[kinds[to]]:
            queue(job)
            continue
        free[kinds[here]] += counts[here]
        free[kinds[to]] -= counts[to]
        at[job] = to
        for other in [job] if same else range(len(values)):
            queue(other)
    return at


def place(
    here: Sequence[JobObservation], nodes: Sequence[NodeObservation], wanted: Mapping[str, int]
) -> dict[str, dict[str, int]]:
    """Nodes for every count that is wanted. Who stands here and keeps its count keeps its nodes, unless these are
    cleared for a job of whole nodes."""
    kept = {job.name: dict(job.placement) for job in here if job.workers and wanted[job.name] == job.workers}
    moved = sorted((name for name in wanted if name not in kept), key=lambda one: -wanted[one])
    free = free_of(nodes, kept.values())
    sizes = {node.name: node.gpus for node in nodes}
    while moved:
        name = moved.pop(0)
        placement = _room(free, wanted[name], nodes)
        while placement is None:
            cleared = _clear(kept, free, sizes, wanted[name])
            if not cleared:
                break
            moved = sorted([*moved, *cleared], key=lambda one: -wanted[one])
            placement = _room(free, wanted[name], nodes)
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
