"""GPUs dealt to jobs by what they are worth to each, and nodes for what was dealt: the part of ``marginal`` that any
rule may use which says what a job's options are worth.

GPUs go by the best gain for their cost over any number of further GPUs (the concave envelope of the worth), in whole
nodes beyond one and of one type; a GPU of a faster type costs as much more. A job with parameter servers has an option
for each pair of workers and servers, which costs the sum of the parts it takes of all GPUs and of all places.

Placement keeps who keeps its count; where whole nodes are missing, the nodes that hold least are cleared.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import inf

import numpy as np

from shared.jobs.observation import JobObservation, NodeObservation
from shared.jobs.policies.goodput import Floats, GoodputTables, Ints
from shared.jobs.policies.placing import Free, free_of


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What a job may have, none first: GPUs int64 [options], of which type (its index), parameter servers, and what
    they cost: a GPU of a type costs as much as it is faster, over the jobs of the moment."""

    counts: Ints
    kinds: Ints
    costs: Floats
    servers: Ints


def sizes_of(nodes: Sequence[NodeObservation]) -> tuple[int, ...]:
    """The counts that a job may have on nodes of one type: any within a node, whole nodes."""
    per_node = max(node.gpus for node in nodes)
    return (*range(1, per_node), *range(per_node, sum(node.gpus for node in nodes) + 1, per_node))


@lru_cache(maxsize=64)
def pairs_of(most: tuple[int, int]) -> tuple[Ints, Ints]:
    """(workers, servers) of every pair up to ``most`` of each; int64 [pairs]."""
    pairs = np.array(list(product(range(1, most[0] + 1), range(1, most[1] + 1))), int).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def options_of(
    tables: Mapping[str, GoodputTables], left_s: Sequence[Floats], most: tuple[int, int] = (0, 0), places: float = inf
) -> JobOptions:
    """The options of a cluster; ``left_s`` of its jobs say what a GPU of each type is worth beside the first type.

    ``most``: workers and servers that a job with parameter servers may have; their options come last, on the first
    type.
    """
    counts, kinds = [0], [0]
    for at, table in enumerate(tables.values()):
        sizes = table.sizes or ()
        counts += sizes
        kinds += [at] * len(sizes)
    all_counts, all_kinds = np.array(counts), np.array(kinds)
    first = {at: int(np.nonzero((all_kinds == at) & (all_counts == 1))[0][-1]) for at in range(len(tables))}
    prices = np.array([_price(left_s, first[0], first[at]) for at in range(len(tables))])
    workers, servers = pairs_of(most)
    gpus = sum(table.workers for table in tables.values())
    return JobOptions(
        np.concatenate((all_counts, workers)),
        np.concatenate((all_kinds, np.zeros(len(workers), int))),
        np.concatenate((all_counts * prices[all_kinds], workers + (workers + servers) * gpus / places)),
        np.concatenate((np.zeros(len(all_counts), int), servers)),
    )


def _price(left_s: Sequence[Floats], base: int, option: int) -> float:
    """How much faster one GPU of an option is than one of the base, the mean over the jobs that could run on both."""
    beside = [
        float(seconds[base] / seconds[option]) for seconds in left_s if np.isfinite(seconds[[base, option]]).all()
    ]
    return sum(beside) / len(beside) if beside else 1.0


def deal(values: Sequence[Floats], options: JobOptions, gpus: Sequence[int], places: float = inf) -> list[int]:
    """The option of each job: always the best gain for its cost among those for which there is room left.

    A job may change its type on the way, which gives GPUs of the other type back. ``gpus`` by type; ``places``: for
    workers and servers together.
    """
    counts, kinds, costs = options.counts, options.kinds, options.costs
    free, together = np.array(gpus), counts + options.servers
    at = [0] * len(values)
    line: list[tuple[float, int, int, int]] = []

    def queue(job: int) -> None:
        """Puts the best step of a job in line, among those that fit what is left."""
        here = at[job]
        more = counts - np.where(kinds == kinds[here], counts[here], 0)
        fits = (more <= free[kinds]) & (together - together[here] <= places)
        steps = np.nonzero((costs > costs[here]) & fits)[0]
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
        crammed = together[to] - together[here] > places
        if crammed or counts[to] - (counts[here] if same else 0) > free[kinds[to]]:
            queue(job)
            continue
        free[kinds[here]] += counts[here]
        free[kinds[to]] -= counts[to]
        places -= together[to] - together[here]
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
