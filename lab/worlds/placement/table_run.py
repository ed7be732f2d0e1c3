"""Pods that come and go on a table of nodes, placed one by one: the smallest world in which a policy can be watched.

The same filters, accounting and ranking as in the mesh: a decision is ``Ranker.slots`` for one pod, so ties, refusals
and fallbacks are the mesh's own. A pod that fits nowhere waits and is tried again, in the order of arrival, whenever
one ends. Rules that look at other pods or at volumes (affinity between pods, spread, claims) are not among these
filters, nor are limits of latency to targets, which nobody measures here. Pure: the order of events and the random
draws depend on nothing but what comes in.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from shared.model.constraints import PodClass
from shared.model.node import Node
from shared.policy.observation import Observation, Policy, Rng
from shared.policy.ranking import Ranker
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.profile import UNMEASURED
from shared.scheduling.state.cache import ClusterCache


@dataclass(frozen=True, slots=True)
class TablePod:
    """A pod that comes ``at_s`` and runs ``duration_s`` from its placement (None: for ever).

    ``node``: it stands there and is not decided about; it still holds what it requests. ``was_on``: where history put
    it; for choosers that repeat history.
    """

    uid: str
    at_s: float
    pod_class: PodClass
    duration_s: float | None = None
    node: str = ""
    was_on: str = ""


@dataclass(frozen=True, slots=True)
class TableStep:
    """One decision, before it counts: ``observation.table`` is as the policy saw it until the next step is asked for.

    ``chosen``: index into ``observation.rows``.
    """

    job: TablePod
    at_s: float
    observation: Observation
    chosen: int

    @property
    def node(self) -> str:
        """The name of the chosen node."""
        return self.observation.table.names[int(self.observation.rows[self.chosen])]


Chooser = Callable[[TablePod, Observation], "int | None"]
"""Which of ``observation.rows`` takes the job, as an index; None leaves it out for good. There is at least one row."""


class TableRun:
    """Iterate it once. ``unplaced``: jobs that never found a node; ``left_out``: those the chooser refused.

    ``now_s``: the moment of the decision that is being made, for choosers that must know it.
    """

    def __init__(self, nodes: Sequence[Node], jobs: Sequence[TablePod], choose: Chooser) -> None:
        self.cache = ClusterCache()
        for node in nodes:
            self.cache.upsert_node(node)
        self.feasibility = FeasibilityCache(self.cache.table, profile=UNMEASURED)
        self.unplaced: list[TablePod] = []
        self.left_out: list[TablePod] = []
        self.now_s = 0.0
        self._choose = choose
        self._arrivals = sorted(jobs, key=lambda job: (job.at_s, job.uid))
        self._ends: list[tuple[float, str]] = []

    def __iter__(self) -> Iterator[TableStep]:
        waiting: list[TablePod] = []
        for job in self._arrivals:
            while self._ends and self._ends[0][0] <= job.at_s:
                waiting = yield from self._end_next(waiting)
            waiting += yield from self._place(job, job.at_s)
        while self._ends:
            waiting = yield from self._end_next(waiting)
        self.unplaced = waiting

    def _end_next(self, waiting: list[TablePod]) -> Generator[TableStep, None, list[TablePod]]:
        """The next pod ends; who waits is tried again. Returns who still waits."""
        now_s, uid = heapq.heappop(self._ends)
        self.cache.forget(uid)
        still: list[TablePod] = []
        for job in waiting:
            still += yield from self._place(job, now_s)
        return still

    def _place(self, job: TablePod, now_s: float) -> Generator[TableStep, None, list[TablePod]]:
        """Decide and count. Returns the job when no node takes it, else nothing."""
        node = job.node
        if not node:
            rows = np.flatnonzero(self.feasibility.of(job.pod_class).mask)
            if not len(rows):
                return [job]
            self.now_s = now_s
            observation = Observation(self.cache.table, job.pod_class, rows)
            chosen = self._choose(job, observation)
            if chosen is None:
                self.left_out.append(job)
                return []
            step = TableStep(job, now_s, observation, chosen)
            node = step.node
            yield step
        self.cache.assume(job.uid, node, job.pod_class, now_s)
        if job.duration_s is not None:
            heapq.heappush(self._ends, (now_s + job.duration_s, job.uid))
        return []


class PolicyChooser:
    """Chooses as an agent does: the policy's best accepted node, ties at random, the fallback where it fails."""

    def __init__(self, policy: Policy, rng: Rng) -> None:
        self.policy = policy
        self._rng = rng
        self._ranker: Ranker | None = None

    def __call__(self, job: TablePod, observation: Observation) -> int:
        """See ``Chooser``."""
        if self._ranker is None or self._ranker.table is not observation.table:
            table = observation.table
            self._ranker = Ranker(table, FeasibilityCache(table, profile=UNMEASURED), self.policy, self._rng)
        slot = self._ranker.slots(job.pod_class, 1, extra=0)[0]
        return int(np.searchsorted(observation.rows, slot.row))


def repeat_history(job: TablePod, observation: Observation) -> int | None:
    """The node that history chose; None where the filters would not have let it."""
    row = observation.table.row_of.get(job.was_on)
    if row is None:
        return None
    at = int(np.searchsorted(observation.rows, row))
    return at if at < len(observation.rows) and observation.rows[at] == row else None
