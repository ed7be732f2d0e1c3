"""Whom a cycle asks about a class: everybody, or one agent that decides alone on the nodes it owns.

    broadcast      every agent with nodes; the best of all answers wins
    partition      one agent for each class of the cycle, in turn
    least-loaded   one agent, that whose nodes are used least, what it was given in this cycle included
    auto           least-loaded while more units wait than one offer takes, else broadcast

One agent alone costs one ranking and one message, however many agents there are; better nodes of others are not seen.
So it is asked only about plain lone pods, and while no candidate policy is compared with the active one. By the
coordinator's own accounting it has plenty of nodes that take the class (``sole_nodes``), or all there are. A class for
which it had too few all the same goes to everybody, until a cycle has placed all its units.

Not its job: sending, and what becomes of units that nobody placed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from services.coordinator.agents.views import AgentView
from services.coordinator.core.state import State
from services.coordinator.cycle.classes import OfferedClass
from shared.model.constraints import PodClass
from shared.model.resources import CPU, MEMORY
from shared.scheduling.state.node_table import CPU_COLUMN, MEMORY_COLUMN, BoolArray, IntArray


class Dispatch(StrEnum):
    """The strategies, as settings name them."""

    BROADCAST = "broadcast"
    PARTITION = "partition"
    LEAST_LOADED = "least-loaded"
    AUTO = "auto"


class Dispatcher:
    """One term's."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._turn = 0
        self._signature: tuple[tuple[str, int, int], ...] = ()
        self._owner: IntArray = np.zeros(0, np.int64)

    def strategy(self, *, more: bool) -> Dispatch:
        """The one in force. ``more``: the queue holds more units than a cycle takes."""
        strategy = Dispatch(self._state.settings.dispatch)
        if strategy is Dispatch.AUTO:
            return Dispatch.LEAST_LOADED if more else Dispatch.BROADCAST
        return strategy

    def able(self, pod_class: PodClass, agents: Sequence[AgentView], idle: Collection[str]) -> BoolArray:
        """``[agents]``: which of the ``idle`` ones may decide about the class alone."""
        count, settings = len(agents), self._state.settings
        mask = self._state.feasibility.of(pod_class).mask
        takers = np.bincount(self._owners(agents)[mask], minlength=count + 1)[:count]
        able: BoolArray = (takers >= settings.sole_nodes) | ((takers > 0) & (takers == takers.sum()))
        if len(idle) < count:
            able &= np.fromiter((view.record.id in idle for view in agents), np.bool_, count)
        return able

    def deal(
        self, classes: dict[int, OfferedClass], agents: Sequence[AgentView], idle: Collection[str], *, more: bool
    ) -> None:
        """Name the one asked alone (``OfferedClass.sole``) about each class for which one is. ``agents``: all,
        of whom only the ``idle`` may be. ``more``: as of ``strategy``."""
        strategy = self.strategy(more=more)
        if strategy is Dispatch.BROADCAST or len(agents) < 2:
            return
        owner, count = self._owners(agents), len(agents)
        used, whole = self._use(owner, count) if strategy is Dispatch.LEAST_LOADED else (None, None)
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
                used[:, chosen] += len(offered.units) * _amounts(offered)
            offered.sole = agents[chosen].record.id

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
