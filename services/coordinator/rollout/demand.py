"""What all pods ask for of GPUs, counted as they are offered and told to every agent alike.

Policies that judge a node by which pods to come could still use it (``Need.DEMAND``) must go by the same demand on
every agent, or their scores would not compare; and an agent that owns few nodes is asked about few pods. Nothing is
counted while no policy goes by it; a term begins with what stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from services.coordinator.agents.views import AgentView
from services.coordinator.core.state import CoordinatorState
from shared.model.constraints import PodClass
from shared.policy.demand import DemandCount
from shared.policy.observation import ToldDemand
from shared.wire.demand import Demand

MOST_STANDING = 4096
"""Pods of ours that a term begins with at most."""


class ClusterDemand:
    """One term's."""

    def __init__(self, state: CoordinatorState) -> None:
        self._state = state
        self._count = DemandCount()
        self._begun = False
        self._number = 0
        self.told = ToldDemand()

    def offered(self, pod_class: PodClass, units: int) -> None:
        """So many pods of a class are asked about."""
        state, count = self._state, self._count
        shares = state.settings.profile.gpu_shares
        if not self._begun:
            self._begun = True
            for standing in islice(self._ours(), MOST_STANDING):
                count.add(standing, 1, shares)
        count.add(pod_class, units, shares)
        if count.due(state.cache.table, shares):
            self.told.demand = count.take_over(state.cache.table, shares)
            self._number += 1

    def _ours(self) -> Iterator[PodClass]:
        """Classes of our pods that stand."""
        index, ours = self._state.cluster.index, self._state.ours
        for uid, account in self._state.cache.accounts.items():
            pod = index.get(uid)
            if pod is not None and pod.scheduler_name in ours:
                yield account.pod_class

    def news(self, view: AgentView) -> Demand | None:
        """What the next offer to the agent tells; None: it knows. Counts as told from here on."""
        if view.demand == self._number:
            return None
        view.demand = self._number
        return self.told.demand
