"""One gradient step of the agents: each learns what accepting and rejecting is worth to it, or all learn one sum.

``independent``: every agent has its own target from its own reward (Tan 1993). ``sum``: value decomposition, the
agents' values add up to the team's and only the sum has a target (Sunehag et al. 2018). ``monotonic``: QMIX, where
weights that the cluster's state gives mix them (Rashid et al. 2018). Of all agents exactly one gets
the pod, so in all the next state is valued at the joint action that will be taken, the feasible node of the highest
gain, not at each agent's own best wish, which not all can have. ``own`` bootstraps as the thesis writes it: each
agent's best of accept (where feasible) and reject.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from numpy.typing import NDArray
from torch import Tensor

from lab.algorithms.descent import UpdateStats
from lab.algorithms.dqn import DqnLearner, DqnLearnerSettings, quantile_loss
from lab.learner.marl.networks import AgentsNetwork, QuantileStack
from shared.policy.marl.policy import ACCEPT, REJECT


@dataclass(frozen=True, slots=True)
class AgentsSettings:
    """How the agents' targets are made."""

    mixing: Literal["independent", "sum", "monotonic"] = "independent"
    """Whose error is reduced: every agent's, that of their mean, or that of their mixture."""
    bootstrap: Literal["joint", "own"] = "joint"
    """What the next state is worth: under the joint action that follows, or under each agent's own best."""


class AgentsLearner(DqnLearner):
    """``DqnLearner`` for agents: ``r_t`` is [batch, nodes], ``a_tm1`` [batch] the node that got the pod."""

    name = "marl-dqn"
    online: AgentsNetwork
    target: AgentsNetwork

    def __init__(self, network: AgentsNetwork, settings: DqnLearnerSettings, agents: AgentsSettings) -> None:
        super().__init__(network, settings)
        self.agents = agents

    def update(self, batch: Mapping[str, NDArray[Any]]) -> UpdateStats:
        """One gradient step on a replay batch. Raises ``TrainingDiverged`` when it is not finite."""
        t = {name: torch.from_numpy(array) for name, array in batch.items()}
        chosen = _taken(self.online.per_agent(t["s_tm1"]), t["a_tm1"])
        with torch.no_grad():
            value = self._next_value(t["s_t"], t["mask_t"] if self.settings.mask_bootstrap else None)
            wanted = t["r_t"] + t["discount_t"][:, None] * value
            if self.agents.mixing == "monotonic":
                wanted = t["r_t"].mean(dim=1) + t["discount_t"] * self.target.mixed(value, t["s_t"])
        if self.agents.mixing == "monotonic":
            chosen = self.online.mixed(chosen, t["s_tm1"])
        if self.agents.mixing == "sum":
            chosen, wanted = chosen.mean(dim=1), wanted.mean(dim=1)
        return self._step(chosen, wanted)

    def _next_value(self, s_t: Tensor, mask_t: Tensor | None) -> Tensor:
        """[batch, nodes]: what each agent's part of the next state is worth."""
        q_target = self.target.per_agent(s_t)
        chooser = self.online.per_agent(s_t) if self.settings.double else q_target
        gain = chooser[..., ACCEPT] - chooser[..., REJECT]
        if mask_t is not None:
            gain = gain.masked_fill(~mask_t, -torch.inf)
        if self.agents.bootstrap == "own":
            return torch.where(gain > 0, q_target[..., ACCEPT], q_target[..., REJECT])
        value = _taken(q_target, gain.argmax(dim=1))
        if mask_t is None:
            return value
        return torch.where(mask_t.any(dim=1, keepdim=True), value, q_target[..., REJECT])


class QuantileAgentsLearner(AgentsLearner):
    """Independent agents by quantile regression: every quantile of what each did moves towards every one of its target.
    Source: Dabney et al. 2018."""

    name = "marl-dqn by quantiles"

    def update(self, batch: Mapping[str, NDArray[Any]]) -> UpdateStats:
        """One gradient step on a replay batch. Raises ``TrainingDiverged`` when it is not finite."""
        t = {name: torch.from_numpy(array) for name, array in batch.items()}
        online, target = self.online.stack, self.target.stack
        assert isinstance(online, QuantileStack)
        assert isinstance(target, QuantileStack)
        chosen = _taken(online.quantiles(t["s_tm1"]), t["a_tm1"])
        with torch.no_grad():
            following = target.quantiles(t["s_t"])
            chooser = online(t["s_t"]) if self.settings.double else following.mean(-1)
            gain = (chooser[..., ACCEPT] - chooser[..., REJECT]).masked_fill(~t["mask_t"], -torch.inf)
            any_takes = t["mask_t"].any(dim=1)[:, None, None]
            value = torch.where(any_takes, _taken(following, gain.argmax(dim=1)), following[..., REJECT, :])
            wanted = t["r_t"][..., None] + t["discount_t"][:, None, None] * value
        return self._step(chosen.flatten(0, 1), wanted.flatten(0, 1))

    def _loss_of(self, chosen: Tensor, wanted: Tensor) -> Tensor:
        return quantile_loss(chosen, wanted)


def _taken(q: Tensor, node: Tensor) -> Tensor:
    """``q`` [batch, nodes, 2, ...], ``node`` [batch] that got the pod: the value of what each agent did [batch, nodes,
    ...]."""
    action = torch.zeros(q.shape[:2], dtype=torch.int64)
    action.scatter_(1, node[:, None], ACCEPT)
    index = action.reshape(*q.shape[:2], *(1 for _ in q.shape[2:])).expand(*q.shape[:2], 1, *q.shape[3:])
    return q.gather(2, index).squeeze(2)
