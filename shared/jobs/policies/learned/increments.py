"""DL2's way to a decision (Peng et al., TPDS 2021, section 4): from nothing, one worker or server at a time, until
void.

A window holds the jobs that came first. Action 3j gives job j a worker (its minimum at first), 3j + 1 a parameter
server, 3j + 2 both; the last one, *void*, ends the round. Several runs stand side by side, so that a learner asks its
network once for all of them. What a window's empty
places tell DL2's network, how many jobs there are, is an input of every job here. Two more are ours: the room that is
left, which decides what a further worker is worth, and the terms that a step's time is made of (a worker's part of the
batch, workers for each server), as a small network cannot divide.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from math import log1p

import numpy as np
from numpy.typing import NDArray

from shared.jobs.observation import Decision, JobsObservation
from shared.jobs.policies.placing import place_kept, room_of, servers_of

WORKER, SERVER, BOTH = 0, 1, 2
KINDS = 3
OF_JOB = ("slots run", "epochs left", "share", "workers", "servers", "part", "load", "GPUs left", "room left", "crowd")
"""After a job's type, one-hot: log(1 + slots) / 4; log(1 + epochs) / 6; the part of its dominant resource that it is
given, beside an equal part for each job, / 4; workers / 3; servers / 5; 1 / workers; workers for each server / 4 (both
0 where there is none); of all jobs the same: the part of the GPUs, and of the room for workers and servers, that is not
given yet (1 where servers take none); jobs for each GPU, which is above 0 where there is a job."""
SLOTS, EPOCHS, SHARE, WORKERS, SERVERS, PART, LOAD, GPUS_LEFT, ROOM_LEFT, CROWD = range(len(OF_JOB))
SLOT_S = 1200.0
UNEVEN = 10.0
"""So many times more of one than of the other is a poor state (section 4.4)."""

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


class Increments:
    """One round of several runs. ``types``: models that have an input of their own; of others all are 0."""

    def __init__(self, seen: Sequence[JobsObservation], *, window: int, types: Sequence[str]) -> None:
        shape = (len(seen), window)
        self.window, self.seen, self._types = window, tuple(seen), len(types)
        self.workers, self.servers = np.zeros(shape, int), np.zeros(shape, int)
        self._least, self._most, self._most_servers = (np.zeros(shape, int) for _ in range(3))
        self._gpus = np.array([float(sum(node.gpus for node in one.nodes)) for one in seen])
        self._places = np.array([room_of(one) for one in seen])
        self._free, self._room = self._gpus.copy(), self._places.copy()
        self._limited = np.isfinite(self._places)
        self._each = np.ones(shape)
        self._count = np.array([float(len(one.jobs)) for one in seen])
        self._rows = np.zeros((*shape, len(types) + len(OF_JOB)), np.float32)
        self.active = np.ones(len(seen), bool)
        """Runs whose round goes on."""
        at_of = {name: at for at, name in enumerate(types)}
        for run, one in enumerate(seen):
            here = self._rows[run, : len(one.jobs), len(types) :]
            here[:, CROWD] = len(one.jobs) / max(self._gpus[run], 1.0)
            here[:, (GPUS_LEFT, ROOM_LEFT)] = 1.0
            for at, job in enumerate(one.jobs[:window]):
                self._least[run, at], self._most[run, at] = job.minimum, job.maximum
                self._most_servers[run, at], self._each[run, at] = job.most_servers, job.gpus_per_worker
                if job.model in at_of:
                    self._rows[run, at, at_of[job.model]] = 1.0
                known = (log1p(job.ran_s / SLOT_S) / 4.0, log1p(job.epochs_left or 0.0) / 6.0)
                here[at, :SHARE] = known

    def inputs(self) -> Floats:
        """float32 [runs, window, types + len(OF_JOB)]; a copy. Rows without a job are 0."""
        return self._rows.copy()

    def mask(self) -> Bools:
        """bool [runs, 3 · window + 1]: which actions are allowed; void always is."""
        first = self.workers == 0
        step = np.where(first, np.maximum(self._least, 1), 1)
        free, room = self._free[:, None], self._room[:, None]
        worker = (self.workers + step <= self._most) & (step * self._each <= free) & (step <= room)
        server = (self.servers < self._most_servers) & (room >= 1)
        both = worker & server & (step + 1 <= room)
        shape = (*self.workers.shape, KINDS)
        by_kind = np.stack((worker, server, both), axis=-1).reshape(shape[0], -1)
        return np.concatenate((by_kind, np.ones((shape[0], 1), bool)), axis=1)

    def poor(self) -> Ints:
        """int64 [runs]: the action that mends the first job with workers and no servers, servers and no workers, or ten
        times more of one; -1: there is none."""
        w, u, served = self.workers, self.servers, self._most_servers > 0
        lacks_server = served & (w > 0) & ((u == 0) | (w > UNEVEN * u))
        lacks_worker = served & (u > 0) & ((w == 0) | (u > UNEVEN * w))
        poor = lacks_server | lacks_worker
        at = poor.argmax(axis=1)
        runs = np.arange(len(w))
        mending = KINDS * at + np.where(lacks_server[runs, at], SERVER, WORKER)
        found: Ints = np.where(poor[runs, at] & self.mask()[runs, mending], mending, -1)
        return found

    def give(self, actions: Ints) -> None:
        """Carry out one allowed action in each run that is active."""
        void = actions == KINDS * self.window
        runs = np.nonzero(self.active & ~void)[0]
        self.active &= ~void
        at, kind = actions[runs] // KINDS, actions[runs] % KINDS
        step = np.where(self.workers[runs, at] == 0, self._least[runs, at], 1) * (kind != SERVER)
        more = (kind != WORKER).astype(int)
        self.workers[runs, at] += step
        self.servers[runs, at] += more
        self._free[runs] -= step * self._each[runs, at]
        self._room[runs] -= step + more
        w, u = self.workers[runs, at], self.servers[runs, at]
        rows = self._rows[..., self._types :]
        rows[runs, at, SHARE] = (self._count[runs] / 4.0) * np.maximum(
            w * self._each[runs, at] / np.maximum(self._gpus[runs], 1.0), (w + u) / self._places[runs]
        )
        rows[runs, at, WORKERS], rows[runs, at, SERVERS] = w / 3.0, u / 5.0
        rows[runs, at, PART] = (w > 0) / np.maximum(w, 1)
        rows[runs, at, LOAD] = (u > 0) * w / np.maximum(u, 1) / 4.0
        present = rows[..., CROWD] > 0
        rows[..., GPUS_LEFT] = present * (self._free / np.maximum(self._gpus, 1.0))[:, None]
        left = np.where(self._limited, self._room, 1.0) / np.where(self._limited, self._places, 1.0)
        rows[..., ROOM_LEFT] = present * left[:, None]

    def decision(self, run: int) -> Decision:
        """What was given, for all jobs of a run; who has no worker, or lacks a server that it needs, waits."""
        one = self.seen[run]
        runs = (self.workers[run] > 0) & ((self.servers[run] > 0) | (self._most_servers[run] == 0))
        workers = {job.name: 0 for job in one.jobs}
        servers: dict[str, int] = {}
        for at, job in enumerate(one.jobs[: self.window]):
            workers[job.name] = int(self.workers[run, at]) if runs[at] else 0
            servers[job.name] = int(self.servers[run, at])
        return place_kept(one.jobs, one.nodes, workers, servers_of(one, servers))


Steps = Sequence[tuple[int, int]]
"""A decision as increments in order: which job of the observation, and ``WORKER``, ``SERVER`` or ``BOTH``. A job's
first worker stands for its minimum."""


def steps_of(seen: JobsObservation, wanted: Decision) -> Steps:
    """A decision that nobody told the order of: the job with the smallest share goes on first, as DRF gives."""
    counts: dict[int, tuple[int, int]] = {}
    for at, job in enumerate(seen.jobs):
        allocation = wanted.get(job.name)
        workers = allocation.workers if allocation is not None else job.workers
        servers = allocation.servers if allocation is not None else job.servers
        if workers:
            counts[at] = workers, min(workers if servers is None else servers, job.most_servers)
    line = [(0, at, 0, 0) for at in counts]
    found: list[tuple[int, int]] = []
    while line:
        _, at, workers, servers = heapq.heappop(line)
        more = workers < counts[at][0], servers < counts[at][1]
        if not any(more):
            continue
        found.append((at, BOTH if all(more) else WORKER if more[0] else SERVER))
        first = max(seen.jobs[at].minimum, 1)
        workers += more[0] * (1 if workers else first)
        heapq.heappush(line, (workers + more[1] + servers, at, workers, servers + more[1]))
    return found


class TeacherSteps:
    """What a teacher would do next, in whatever state its round is: the first of its steps that is still lacking."""

    def __init__(self, seen: JobsObservation, steps: Steps, window: int) -> None:
        kept = [(at, kind) for at, kind in steps if at < window]
        self._void = KINDS * window
        self._jobs = np.array([at for at, _ in kept], int)
        self._workers, self._servers = np.zeros(len(kept), int), np.zeros(len(kept), int)
        reached: dict[int, tuple[int, int]] = {}
        for number, (at, kind) in enumerate(kept):
            workers, servers = reached.get(at, (0, 0))
            if kind != SERVER:
                workers = workers + 1 if workers else max(seen.jobs[at].minimum, 1)
            reached[at] = workers, servers + (kind != WORKER)
            self._workers[number], self._servers[number] = reached[at]

    def next(self, increments: Increments, run: int, mask: Bools) -> int:
        """An allowed action; void, where nothing that is lacking is allowed. ``mask`` bool [actions], the run's."""
        lacks_worker = increments.workers[run, self._jobs] < self._workers
        lacks_server = increments.servers[run, self._jobs] < self._servers
        kinds = np.where(lacks_worker & lacks_server, BOTH, np.where(lacks_worker, WORKER, SERVER))
        actions = KINDS * self._jobs + kinds
        fits = (lacks_worker | lacks_server) & mask[actions]
        return int(actions[fits.argmax()]) if fits.any() else self._void
