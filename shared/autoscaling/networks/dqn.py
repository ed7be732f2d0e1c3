"""``dqn``: deep Q-learning on a whole service graph, in Gym-HPA's manner; a baseline, own code. numpy only.

After Santos et al., "gym-hpa: efficient auto-scaling via reinforcement learning for complex microservice-based
applications in Kubernetes" (NOMS 2023): one agent sees the plain metrics of all deployments side by side and changes
the replicas of one of them. What differs: five steps instead of fifteen, so that all policies of the suite move alike;
what is seen of latency and of answers, which the paper has in the reward alone; the reward, which is the one that all
learned policies here are trained on. For exactly the number of services that it was trained on.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from shared.autoscaling.networks.agents import KarmaAgents, check_size
from shared.autoscaling.networks.features import STEPS
from shared.autoscaling.networks.raw import READINGS, RawEyes, held
from shared.autoscaling.observation import LOAD, Decision, ScalingObservation
from shared.errors import ConfigError
from shared.policy.networks import layer_count, mlp, mlp_fault
from shared.policy.weights import WeightsFile, shipped_beside

NAME = "dqn"
AGENTS = KarmaAgents.SINGLE


class DqnPolicySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing can be chosen without training anew."""


class DqnPolicy:
    """See the module. ``weights`` None: those that are shipped."""

    name = NAME
    Settings = DqnPolicySettings
    LEARNED = True

    def __init__(
        self,
        settings: DqnPolicySettings = DqnPolicySettings(),  # noqa: ARG002, B008 - frozen
        *,
        weights: WeightsFile | None = None,
    ) -> None:
        self.weights = weights or shipped_beside(__file__, NAME)
        self._params = self.weights.arrays
        self._layers = layer_count(self._params)
        fault = mlp_fault(self._params)
        if fault:
            raise ConfigError(f"weights of {NAME}: {fault}; train again")
        inputs, actions = self._params["l0.w"].shape[0], self._params[f"l{self._layers - 1}.w"].shape[-1]
        self.services = AGENTS.services(inputs, len(READINGS))
        """For how many services the weights are."""
        if (inputs, actions) != (self.services * len(READINGS), self.services * len(STEPS)):
            raise ConfigError(
                f"weights of {NAME}: {inputs} inputs and {actions} actions are not {len(READINGS)} and {len(STEPS)} a"
                " service; train again"
            )
        self._eyes = RawEyes()

    def reset(self, seed: int) -> None:  # noqa: ARG002
        """Forget everything; it draws nothing."""
        self._eyes.reset()

    def needs(self, service: str) -> frozenset[str]:  # noqa: ARG002 - the protocol's
        """Without these it knows neither the load nor what a replica can answer."""
        return LOAD

    def decide(self, seen: ScalingObservation) -> Decision:
        """The best service and step; all others keep what they have, and a service without readings loses nothing."""
        check_size(NAME, self.services, len(seen.services))
        rows, masks = self._eyes.look(seen)
        values = np.where(AGENTS.joined(masks), mlp(self._params, AGENTS.joined(rows), self._layers), -np.inf)
        return held(self._eyes.wanted(AGENTS.steps(values.argmax(axis=1), self.services)), seen)
