"""Which nodes a job's workers go to: packed, the emptiest node first, as the papers' simulators place.

A job that takes the emptiest nodes spans as few of them as can be. Ties go to the node that was named first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

from shared.jobs.observation import JobAllocation, JobObservation, JobsObservation, NodeObservation

Free = dict[str, int]
"""Free GPUs by node, in the order of the nodes."""


def free_of(nodes: Iterable[NodeObservation], placements: Iterable[Mapping[str, int]] = ()) -> Free:
    """What is free beside these placements."""
    free = {node.name: node.gpus for node in nodes}
    for placement in placements:
        for node, count in placement.items():
            free[node] -= count
    return free


def room_of(seen: JobsObservation) -> float:
    """Places for workers and parameter servers together; infinite where servers take no room that counts."""
    return sum(node.places for node in seen.nodes) or inf


def servers_of(seen: JobsObservation, servers: Mapping[str, int]) -> dict[str, int]:
    """Of these, those of jobs whose number of parameter servers is chosen."""
    return {job.name: servers[job.name] for job in seen.jobs if job.most_servers and job.name in servers}


def pack(free: Free, workers: int) -> dict[str, int] | None:
    """Takes room for ``workers`` out of ``free``; None, and nothing taken: there is not so much."""
    if workers > sum(free.values()):
        return None
    placement: dict[str, int] = {}
    while workers:
        node = max(free, key=lambda name: free[name])
        count = min(free[node], workers)
        placement[node] = count
        free[node] -= count
        workers -= count
    return placement


def place_kept(
    jobs: Iterable[JobObservation],
    nodes: Iterable[NodeObservation],
    workers: Mapping[str, int],
    servers: Mapping[str, int] | None = None,
) -> dict[str, JobAllocation]:
    """Allocations of ``workers`` by job: who keeps its count keeps its place, the rest are packed, smallest first.

    Jobs that ``workers`` does not name get none. The counts must fit together. ``servers``: parameter servers, by job
    whose number is chosen.
    """
    chosen = servers or {}
    here = list(jobs)
    kept = {job.name: job.placement for job in here if job.workers and workers.get(job.name, 0) == job.workers}
    free = free_of(nodes, kept.values())
    found: dict[str, JobAllocation] = {}
    for job in sorted(here, key=lambda one: workers.get(one.name, 0)):
        count = workers.get(job.name, 0)
        if job.name in kept:
            found[job.name] = JobAllocation(workers=count, placement=kept[job.name], servers=chosen.get(job.name))
        else:
            found[job.name] = JobAllocation(
                workers=count, placement=pack(free, count) or {}, servers=chosen.get(job.name)
            )
    return found
