"""Whom a cycle asks about a class: everybody, or one agent that decides alone on the nodes it owns.

    broadcast      every agent with nodes, of many the most promising (``promising.py``); the best of all answers wins
    partition      one agent for each class of the cycle, in turn
    least-loaded   one agent, that whose nodes are used least, what it was given in this cycle included
    best-nodes     one agent, that which owns most of the nodes that are best for the next units of the cycle, by the
                   policy, asked about the mean of the cycle's pods; least-loaded where it cannot be asked here
    auto           best-nodes while more units wait than one offer takes or several classes compete, else broadcast

One agent alone costs one ranking and one message, however many agents there are; better nodes of others are not seen.
So it is asked only about plain lone pods, and while no candidate policy is compared with the active one. By the
coordinator's own accounting it has plenty of nodes that take the class (``sole_nodes``), or all there are. A class for
which it had too few all the same goes to everybody, until a cycle has placed all its units.

Not its job: sending, and what becomes of units that nobody placed.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from services.coordinator.agents.views import AgentView
from services.coordinator.core.state import CoordinatorState
from services.coordinator.cycle.candidates import asked_here
from services.coordinator.cycle.classes import OfferedClass
from shared.model.constraints import PodClass
from shared.model.resources import CPU, MEMORY
from shared.policy.observation import Observation, Policy
from shared.scheduling.state.node_table import CPU_COLUMN, MEMORY_COLUMN, BoolArray, IntArray

COPIES = 8
"""So many units of a cycle one node may be best for, as far as is looked ahead."""


class Dispatch(StrEnum):
    """The strategies, as settings name them."""

    BROADCAST = "broadcast"
    PARTITION = "partition"
    LEAST_LOADED = "least-loaded"
    BEST_NODES = "best-nodes"
    AUTO = "auto"


class Dispatcher:
    """Says whom to ask about a class, in one term."""

    def __init__(self, state: CoordinatorState) -> None:
        self._state = state
        self._turn = 0
        self._signature: tuple[tuple[str, int, int], ...] = ()
        self._owner: IntArray = np.zeros(0, np.int64)

    def strategy(self, *, more: bool) -> Dispatch:
        """The one in force. ``more``: the queue holds more units than a cycle takes, or a cycle several classes."""
        strategy = Dispatch(self._state.settings.dispatch)
        if strategy is Dispatch.AUTO:
            return Dispatch.BEST_NODES if more else Dispatch.BROADCAST
        return strategy

    def able(self, pod_class: PodClass, agents: Sequence[AgentView], idle: Sequence[AgentView]) -> BoolArray:
        """``[agents]``: which of the ``idle`` ones may decide about the class alone."""
        count, settings = len(agents), self._state.settings
        mask = self._state.feasibility.of(pod_class).mask
        takers = np.bincount(self._owners(agents)[mask], minlength=count + 1)[:count]
        able: BoolArray = (takers >= settings.sole_nodes) | ((takers > 0) & (takers == takers.sum()))
        if len(idle) < count:
            names = {view.record.id for view in idle}
            able &= np.fromiter((view.record.id in names for view in agents), np.bool_, count)
        return able

    def deal(
        self, classes: dict[int, OfferedClass], agents: Sequence[AgentView], idle: Sequence[AgentView], *, more: bool,
        policy: str,
    ) -> None:  # fmt: skip
        """Name the one asked alone (``OfferedClass.sole``) about each class for which one is. ``agents``: all,
        of whom only the ``idle`` may be. ``more``: as of ``strategy``; ``policy``: the name of the one that decides."""
        strategy = self.strategy(more=more)
        if strategy is Dispatch.BROADCAST or len(agents) < 2:
            return
        owner, count = self._owners(agents), len(agents)
        by_use = strategy is not Dispatch.PARTITION
        used, whole = self._use(owner, count) if by_use else (None, None)
        best, dealt = None, 0
        asked = asked_here(policy, self._state.settings.profile.scores) if strategy is Dispatch.BEST_NODES else None
        if asked is not None:
            best = self._owners_of_best(classes, owner, asked)
        for offered in classes.values():
            if offered.guidance is not None or offered.known.for_all:
                continue
            able = self.able(offered.pod_class, agents, idle)
            if not able.any():
                continue
            self._turn += 1
            if used is None or whole is None:
                order = (np.arange(count) + self._turn) % count
                chosen = int(order[able[order]][0])
            else:
                chosen = int(np.where(able, (used / whole).max(axis=0), np.inf).argmin())
                if best is not None:
                    units = len(offered.units)
                    theirs = np.bincount(best[dealt : dealt + units], minlength=count + 1)[:count] * able
                    chosen, dealt = int(theirs.argmax()) if theirs.any() else chosen, dealt + units
                used[:, chosen] += len(offered.units) * _amounts(offered)
            offered.sole = agents[chosen].record.id

    def _owners_of_best(self, classes: dict[int, OfferedClass], owner: IntArray, policy: Policy) -> IntArray:
        """Who owns the nodes that the policy likes best for the mean of the cycle's plain pods: one a unit, best
        first."""
        state = self._state
        plain = [offered for offered in classes.values() if offered.guidance is None]
        units = sum(len(offered.units) for offered in plain)
        mask: BoolArray = np.zeros(len(owner), np.bool_)
        cpu = memory = 0
        for offered in plain:
            mask |= state.feasibility.of(offered.pod_class).mask
            cpu += len(offered.units) * offered.pod_class.score_cpu_millis // units
            memory += len(offered.units) * offered.pod_class.score_memory_bytes // units
        mean = PodClass(requests=((CPU, cpu), (MEMORY, memory)), score_cpu_millis=cpu, score_memory_bytes=memory)
        rows = np.flatnonzero(mask)
        score = policy.decide(Observation(state.cache.table, mean, rows), state.rng).score
        # Stable: equals stay in the order of rows, the same on every machine (I11).
        leading = np.repeat(rows[np.argsort(-score, kind="stable")[:units]], COPIES)
        # what each of them is worth once it has been given some
        table = state.cache.table.with_copies(leading, np.arange(len(leading)) % COPIES, mean)
        score = policy.decide(Observation(table, mean, np.arange(len(leading))), state.rng).score
        best: IntArray = owner[leading[np.argsort(-score, kind="stable")[:units]]]
        return best

    def _owners(self, agents: Sequence[AgentView]) -> IntArray:
        """``[rows]``: which of the agents has the row in its view; their number where none has."""
        rows = self._state.cache.table.rows
        signature = tuple((view.record.id, view.epoch, view.moves) for view in agents)
        if signature != self._signature or len(self._owner) != rows:
            self._signature, self._owner = signature, np.full(rows, len(agents), np.int64)
            for number, view in enumerate(agents):
                self._owner[list(view.slots)] = number
        return self._owner

    def _use(self, owner: IntArray, count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """``[2, agents]``: cpu and memory requested on each one's nodes, and what they have."""
        table = self._state.cache.table

        def per_agent(amounts: IntArray) -> NDArray[np.float64]:
            both = (np.bincount(owner, amounts[c, : table.rows], count + 1) for c in (CPU_COLUMN, MEMORY_COLUMN))
            return np.array([sums[:count] for sums in both])

        return per_agent(table.requested), np.maximum(per_agent(table.allocatable), 1.0)


def _amounts(offered: OfferedClass) -> NDArray[np.float64]:
    asked = dict(offered.pod_class.requests)
    return np.array([asked.get(CPU, 0), asked.get(MEMORY, 0)], np.float64)
