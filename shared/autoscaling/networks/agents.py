"""Who decides for a service graph: an agent for each service, or one for all of them that changes one at a time.

What a policy and its trainer compute has a row per agent. ``multi``: a row per service, one network for all of them.
``single``: one row, the services' inputs side by side in the graph's order; an action is a service and its step, and
all others hold. That is KARMA's single agent, whose action is (service, change of replicas) (learning.md a).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from shared.autoscaling.networks.features import HOLD, STEPS
from shared.errors import ConfigError

Item = TypeVar("Item", bound=np.generic)


class KarmaAgents(StrEnum):
    """See the module."""

    MULTI = "multi"
    SINGLE = "single"

    def joined(self, of_services: NDArray[Item]) -> NDArray[Item]:
        """[services, n] as the agents see it: [agents, n], or [1, services * n]."""
        return of_services if self is KarmaAgents.MULTI else of_services.reshape(1, -1)

    def shared(self, rewards: NDArray[np.float64]) -> NDArray[np.float64]:
        """[services] as what each agent earns, [agents]: one agent gets the mean."""
        return rewards if self is KarmaAgents.MULTI else rewards.mean(keepdims=True)

    def steps(self, chosen: NDArray[np.int64], services: int) -> NDArray[np.int64]:
        """The index of each service's step, [services], for the agents' actions [agents]."""
        if self is KarmaAgents.MULTI:
            return chosen
        found = np.full(services, HOLD)
        service, step = divmod(int(chosen[0]), len(STEPS))
        found[service] = step
        return found

    def services(self, inputs: int, each: int) -> int:
        """How many services a network of so many inputs is for, ``each`` of them per service; 0: any number."""
        return 0 if self is KarmaAgents.MULTI else inputs // each


def check_size(name: str, services: int, found: int) -> None:
    """Raises ``ConfigError`` where a policy for so many services (0: any number) meets a graph of another size."""
    if services and found != services:
        raise ConfigError(f"policy {name}: its weights are for {services} services, the graph has {found}; train again")
