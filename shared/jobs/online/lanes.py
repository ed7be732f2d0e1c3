"""Two policies on one cluster: which GPUs the candidate may deal to its jobs while its teacher decides for the others.

The teacher decides for all jobs. What it gives those of its own lane is theirs; the candidate sees its own jobs and the
rest of the GPUs. So it can be wrong about its own jobs alone. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from math import ceil

from msgspec.structs import replace

from shared.jobs.bounds import Allowed
from shared.jobs.observation import JobsObservation


def of_lane(seen: JobsObservation, teacher: Allowed, lane: Collection[str]) -> JobsObservation:
    """What the candidate is shown. Workers of others that have no node yet are counted where there is most room."""
    held: dict[str, float] = defaultdict(float)
    more = 0.0
    for job in seen.jobs:
        if job.name in lane:
            continue
        wish = teacher.changes.get(job.name)
        workers = job.workers if wish is None else wish.workers
        placed = min(workers, sum(job.placement.values()))
        left = placed
        for node, count in job.placement.items():
            held[node] += min(left, count) * job.gpus_per_worker
            left -= min(left, count)
        more += (workers - placed) * job.gpus_per_worker + (job.server_gpus if workers else 0.0)
    free = {node.name: node.gpus - held[node.name] for node in seen.nodes}
    for one in sorted(seen.nodes, key=lambda one: (not one.open, -free[one.name], one.name)):
        taken = min(more, max(0.0, free[one.name]))
        free[one.name] -= taken
        more -= taken
    nodes = tuple(replace(node, gpus=max(0, node.gpus - ceil(node.gpus - free[node.name]))) for node in seen.nodes)
    return replace(seen, jobs=tuple(job for job in seen.jobs if job.name in lane), nodes=nodes)


def joined(teacher: Allowed, candidate: Allowed, lane: Collection[str]) -> Allowed:
    """The candidate's of its lane, the teacher's of the others."""
    mine = {name: wish for name, wish in teacher.changes.items() if name not in lane}
    refused = {name: why for name, why in teacher.refused.items() if name not in lane}
    theirs = {name: wish for name, wish in candidate.changes.items() if name in lane}
    return Allowed({**mine, **theirs}, {**refused, **{k: v for k, v in candidate.refused.items() if k in lane}})
