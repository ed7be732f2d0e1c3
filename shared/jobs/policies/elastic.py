"""``elastic``: every job its minimum by priority and age, then room that is left to those that can use it. Pure.

    who is below its minimum, the most important and oldest first: free room, else what others have above theirs
    while somebody waits, nobody grows; when nobody does, one worker at a time to who has the least of what it asked

It needs no speed model and no reports: what a cluster runs with until a better policy is chosen. A change makes a job
start again from its checkpoint, so one that grew rests for ``hold_s``, and longer the more its restart costs; it is
shrunk only for somebody below its minimum. Sources: the order is kube-scheduler's (priority, then age), the shares are
max-min.
"""

from __future__ import annotations

from collections.abc import Sequence

from shared.jobs.observation import JobAllocation, JobObservation, JobsObservation, NodeObservation

HOLD_S = 300.0
RESTARTS_PAID = 10.0
"""A growth must be able to last so many times what it costs."""
PATIENCE_S = 600.0
"""A job that found no room for so long lets nobody behind it start: small ones would take every place for ever."""
EPSILON = 1e-9


class Elastic:
    """See the module. It remembers nothing between calls: whoever leads next decides the same."""

    name = "elastic"

    def __init__(self, *, hold_s: float = HOLD_S, patience_s: float = PATIENCE_S) -> None:
        self._hold_s = hold_s
        self._patience_s = patience_s

    def reset(self, seed: int) -> None:
        """Nothing is remembered and nothing drawn."""

    def decide(self, seen: JobsObservation) -> dict[str, JobAllocation]:
        """Only what changes is named."""
        room = _Room(seen.nodes)
        order = sorted(seen.jobs, key=lambda job: (-job.priority, job.submitted, job.name))
        wants = {job.name: min(job.workers, job.maximum) for job in order}
        for job in order:
            room.stand(job, wants[job.name])
        waiting = self._minima(order, wants, room, seen.now)
        if not waiting:
            self._growth(order, wants, room)
        return {job.name: JobAllocation(workers=wants[job.name]) for job in order if wants[job.name] != job.workers}

    def _minima(self, order: Sequence[JobObservation], wants: dict[str, int], room: _Room, now: float) -> bool:
        """Whether somebody stays below its minimum."""
        waiting = False
        for job in order:
            lacks = job.minimum - wants[job.name]
            if lacks <= 0:
                continue
            if waiting and job.workers == 0:
                continue
            if room.fits(job, lacks) or self._make_room(job, lacks, order, wants, room):
                room.take(job, lacks)
                wants[job.name] = job.minimum
            elif now - job.submitted >= self._patience_s or job.workers:
                waiting = True
        return waiting or any(wants[job.name] < job.minimum for job in order)

    def _make_room(
        self, job: JobObservation, lacks: int, order: Sequence[JobObservation], wants: dict[str, int], room: _Room
    ) -> bool:
        """Take from others what they have above their minimum, the least important and youngest first; nothing where
        that is not enough."""
        tried, taken = room.copy(), dict(wants)
        for other in reversed(order):
            while other is not job and taken[other.name] > other.minimum and other.gpus_per_worker > 0:
                tried.give_back(other)
                taken[other.name] -= 1
                if tried.fits(job, lacks):
                    room.become(tried)
                    wants.update(taken)
                    return True
        return False

    def _growth(self, order: Sequence[JobObservation], wants: dict[str, int], room: _Room) -> None:
        growing = []
        for job in order:
            if job.gpus_per_worker <= 0:
                wants[job.name] = min(max(job.requested, job.minimum), job.maximum)
            elif job.workers == 0 or job.since_change_s >= max(self._hold_s, RESTARTS_PAID * job.restart_s):
                growing.append(job)
        for most in ("requested", "maximum"):
            can = [job for job in growing if wants[job.name] < min(getattr(job, most), job.maximum)]
            while can:
                # the smallest part of what it asked for; of equals the most important and oldest: the order is kept
                job = min(can, key=lambda one: wants[one.name] / one.requested)
                if room.fits(job, 1):
                    room.take(job, 1)
                    wants[job.name] += 1
                    if wants[job.name] < min(getattr(job, most), job.maximum):
                        continue
                can.remove(job)


class _Room:
    """Free GPUs by node. Workers without a node yet are counted where they would go: on the fullest that takes them."""

    def __init__(self, nodes: Sequence[NodeObservation] = ()) -> None:
        # what leaves a closed node makes no room there
        self._free = {node.name: float(node.gpus) for node in nodes if node.open}
        self._of: dict[str, list[str]] = {}
        """Nodes of each job's workers, one entry per worker."""

    def copy(self) -> _Room:
        other = _Room()
        other._free, other._of = dict(self._free), {name: list(nodes) for name, nodes in self._of.items()}
        return other

    def become(self, other: _Room) -> None:
        self._free, self._of = other._free, other._of

    def stand(self, job: JobObservation, workers: int) -> None:
        """Count what the job holds."""
        nodes = sorted(job.placement.items(), key=lambda held: (held[0] in self._free, held[0]))
        if workers:
            self._reserve(job.server_gpus)
        placed = [node for node, count in nodes for _ in range(count)][:workers]
        self._of[job.name] = placed
        for node in placed:
            if node in self._free:
                self._free[node] -= job.gpus_per_worker
        if job.gpus_per_worker > 0:
            for _ in range(workers - len(placed)):
                self._put(job, force=True)

    def fits(self, job: JobObservation, count: int) -> bool:
        """Whether so many more workers find a node each."""
        size, beside = job.gpus_per_worker, 0.0 if self._of[job.name] or job.workers else job.server_gpus
        if beside and sum(free for free in self._free.values() if free > 0) + EPSILON < count * size + beside:
            return False
        return size <= 0 or sum(int((free + EPSILON) // size) for free in self._free.values() if free > 0) >= count

    def take(self, job: JobObservation, count: int) -> None:
        for _ in range(count if job.gpus_per_worker > 0 else 0):
            self._put(job)
        if not job.workers:
            self._reserve(job.server_gpus)

    def give_back(self, job: JobObservation) -> None:
        """One worker of the job leaves."""
        nodes = self._of[job.name]
        node = nodes.pop() if nodes else ""
        if node in self._free:
            self._free[node] += job.gpus_per_worker

    def _reserve(self, gpus: float) -> None:
        """For parameter servers, on the fullest nodes."""
        for node in sorted(self._free, key=lambda name: (self._free[name], name)):
            taken = min(gpus, max(0.0, self._free[node]))
            self._free[node] -= taken
            gpus -= taken

    def _put(self, job: JobObservation, *, force: bool = False) -> None:
        size = job.gpus_per_worker
        node = min(
            (name for name, free in self._free.items() if free + EPSILON >= size),
            key=lambda name: (self._free[name], name),
            default=max(self._free, key=lambda name: (self._free[name], name), default="") if force else "",
        )
        if node:
            self._free[node] -= size
            self._of[job.name].append(node)
