"""Independent PPO for marl-dqn's experiment: every agent learns from its own reward, by a critic of its own inputs.

The joint action is drawn as in ``ppo.py``: of all agents one gets the pod, by the softmax of their gains. An agent's
own action is whether it got the pod, so its chance is its part of that softmax; what the others do is its surroundings.
One network for all agents. Not what ships. Source: de Witt et al. 2020 (IPPO).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lab.learner.marl.networks import LinearStack
from lab.learner.marl.ppo import REWARD_SCALE, MappoRun
from lab.learner.marl.rollout import Played
from lab.learner.marl.settings import MarlSettings
from lab.learner.training.dqn import UpdateStats
from lab.learner.training.ppo import PpoLearner, PpoSettings, advantages
from lab.workers import Workers
from lab.worlds.placement.captured_cluster import CapturedCluster
from shared.policy.marl.features import FEATURES

LEAST_CHANCE = 1e-6
"""Of not getting the pod, where its logarithm is taken."""


class OwnCritic(nn.Module):
    """Each agent's value, from its own inputs."""

    def __init__(self, features: int, hidden: tuple[int, ...], *, seed: int) -> None:
        super().__init__()
        self.stack = LinearStack((features, *hidden, 1), seed=seed)

    def forward(self, s: Tensor, mask: Tensor) -> Tensor:  # noqa: ARG002
        """``[batch, nodes]``."""
        value: Tensor = self.stack(s).squeeze(-1)
        return value


class IndependentPpo(PpoLearner):
    """``PpoLearner`` for agents: ``r_t`` is [steps, nodes], ``a_tm1`` [steps] the node that got the pod."""

    def update(self, rolled: Mapping[str, NDArray[Any]], rng: np.random.Generator) -> UpdateStats:
        """Learn from one roll-out. ``TrainingDiverged``."""
        settings = self.settings
        t = {name: torch.from_numpy(array) for name, array in rolled.items()}
        with torch.no_grad():
            before = self._own(t)
            value_tm1, value_t = self.critic(t["s_tm1"], t["mask_tm1"]), self.critic(t["s_t"], t["mask_t"])
        gain = np.stack(
            [
                advantages(
                    rolled["r_t"][:, node], rolled["discount_t"], value_tm1[:, node].numpy(), value_t[:, node].numpy(),
                    rolled["last"], trace=settings.trace,
                )
                for node in range(rolled["r_t"].shape[1])
            ],
            axis=1,
        )  # fmt: skip
        wanted = torch.from_numpy(gain) + value_tm1
        better = torch.from_numpy((gain - gain.mean()) / (gain.std() + 1e-8))
        return self._epochs(t, before, better, wanted, rng)

    def _chosen(self, t: Mapping[str, Tensor], log_chance: Tensor) -> Tensor:
        """``[steps, nodes]``: the logarithm of the chance of what each agent did."""
        got = torch.zeros_like(log_chance, dtype=torch.bool).scatter_(1, t["a_tm1"][:, None], True)
        stayed = torch.log((1 - log_chance.exp()).clamp_min(LEAST_CHANCE))
        return torch.where(got, log_chance, stayed)

    def _own(self, t: Mapping[str, Tensor]) -> Tensor:
        return self._chosen(t, self._log_chance(t["s_tm1"], t["mask_tm1"]))


class IppoRun(MappoRun):
    """One training run, in all else as ``MappoRun``."""

    def __init__(
        self, settings: MarlSettings, ppo: PpoSettings | None = None, workers: Workers | None = None,
        cluster: CapturedCluster | None = None,
    ) -> None:  # fmt: skip
        super().__init__(settings, ppo, workers, cluster)
        critic = OwnCritic(len(FEATURES), settings.hidden, seed=settings.seed + 1)
        self._learner = IndependentPpo(self._learner.actor, critic, ppo or PpoSettings())

    def _rolled(self, played: Played) -> dict[str, Any]:
        """The agents' transitions of an episode, each with its own reward."""
        found = dict(played.transitions)
        found["r_t"] = found["r_t"] * REWARD_SCALE
        found["last"] = np.arange(len(found["r_t"])) == len(found["r_t"]) - 1
        return found
