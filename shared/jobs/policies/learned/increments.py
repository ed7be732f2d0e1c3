"""DL2's way to a decision (Peng et al., TPDS 2021, section 4): from nothing, one worker or server at a time, until
void.

A window holds the jobs that came first. Action 3j gives job j a worker (its minimum at first), 3j + 1 a parameter
server, 3j + 2 both; the last one, *void*, ends the round. Several runs stand side by side, so that a learner asks its
network once for all of them. DL2's state has no free room in it, nor has this; masks know it. What a window's empty
places tell DL2's network, how many jobs there are, is an input of every job here.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log1p

import numpy as np
from numpy.typing import NDArray

from shared.jobs.observation import Decision, Observation
from shared.jobs.policies.placing import place_kept, room_of, servers_of

WORKER, SERVER, BOTH = 0, 1, 2
KINDS = 3
OF_JOB = ("slots run", "epochs left", "share", "workers", "servers", "crowd")
"""After a job's type, one-hot: log(1 + slots) / 4; log(1 + epochs) / 6; the part of its dominant resource that it is
given, times 8; workers / 3; servers / 5; jobs for each GPU, which is above 0 where there is a job."""
SLOT_S = 1200.0
UNEVEN = 10.0
"""So many times more of one than of the other is a poor state (section 4.4)."""

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


class Increments:
    """One round of several runs. ``types``: models that have an input of their own; of others all are 0."""

    def __init__(self, seen: Sequence[Observation], *, window: int, types: Sequence[str]) -> None:
        shape = (len(seen), window)
        self.window, self.seen, self._types = window, tuple(seen), len(types)
        self.workers, self.servers = np.zeros(shape, int), np.zeros(shape, int)
        self._least, self._most, self._most_servers = (np.zeros(shape, int) for _ in range(3))
        self._gpus = np.array([float(sum(node.gpus for node in one.nodes)) for one in seen])
        self._places = np.array([room_of(one) for one in seen])
        self._free, self._room = self._gpus.copy(), self._places.copy()
        self._rows = np.zeros((*shape, len(types) + len(OF_JOB)), np.float32)
        self.active = np.ones(len(seen), bool)
        """Runs whose round goes on."""
        at_of = {name: at for at, name in enumerate(types)}
        for run, one in enumerate(seen):
            self._rows[run, : len(one.jobs), -1] = len(one.jobs) / max(self._gpus[run], 1.0)
            for at, job in enumerate(one.jobs[:window]):
                self._least[run, at], self._most[run, at] = job.minimum, job.maximum
                self._most_servers[run, at] = job.most_servers
                if job.model in at_of:
                    self._rows[run, at, at_of[job.model]] = 1.0
                known = (log1p(job.ran_s / SLOT_S) / 4.0, log1p(job.epochs_left or 0.0) / 6.0)
                self._rows[run, at, len(types) : len(types) + 2] = known

    def inputs(self) -> Floats:
        """float32 [runs, window, types + 6]; a copy. Rows without a job are 0."""
        return self._rows.copy()

    def mask(self) -> Bools:
        """bool [runs, 3 · window + 1]: which actions are allowed; void always is."""
        first = self.workers == 0
        step = np.where(first, np.maximum(self._least, 1), 1)
        free, room = self._free[:, None], self._room[:, None]
        worker = (self.workers + step <= self._most) & (step <= free) & (step <= room)
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
        self._free[runs] -= step
        self._room[runs] -= step + more
        w, u = self.workers[runs, at], self.servers[runs, at]
        share = np.maximum(w / self._gpus[runs], (w + u) / self._places[runs])
        self._rows[runs, at, self._types + 2] = 8.0 * share
        self._rows[runs, at, self._types + 3] = w / 3.0
        self._rows[runs, at, self._types + 4] = u / 5.0

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


def towards(increments: Increments, run: int, wanted: Decision) -> Bools:
    """bool [3 · window + 1]: the actions that are on the way to a teacher's decision, one for each job that lacks
    something; void alone, where none does."""
    one, window = increments.seen[run], increments.window
    mask = increments.mask()[run]
    found: Bools = np.zeros(len(mask), bool)
    for at, job in enumerate(one.jobs[:window]):
        allocation = wanted.get(job.name)
        workers = allocation.workers if allocation is not None else job.workers
        servers = allocation.servers if allocation is not None else job.servers
        if not workers:
            continue
        servers = min(workers, job.most_servers) if servers is None else servers
        lacks_worker = increments.workers[run, at] < workers
        lacks_server = increments.servers[run, at] < servers and job.most_servers > 0
        if lacks_worker or lacks_server:
            kind = BOTH if lacks_worker and lacks_server else WORKER if lacks_worker else SERVER
            found[KINDS * at + kind] = mask[KINDS * at + kind]
    found[-1] = not found.any()
    return found
