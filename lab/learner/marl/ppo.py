"""Multi-agent PPO for marl-dqn's experiment: one actor shared by all agents, one critic that sees the whole cluster.

An agent's logit is its gain, as in ``networks.py``; of all agents one gets the pod, so the joint action is a draw of
the softmax over the feasible nodes' gains. Episodes, rewards and validation are those of ``training.py``, so that the
two can be compared. Not what ships. Source: Yu et al. 2022 (MAPPO).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lab.learner.marl.networks import AgentsNetwork, Arrays, LinearStack
from lab.learner.marl.rollout import Played, play
from lab.learner.marl.settings import MarlSettings
from lab.learner.marl.training import episodes_of, mean_imbalance
from lab.learner.training.ppo import PpoLearner, PpoSettings
from lab.learner.training.runner import Report
from lab.workers import Workers
from shared.policy.marl.features import FEATURES
from shared.policy.marl.policy import ACCEPT, REJECT
from shared.policy.weights import Card, WeightsFile

REWARD_SCALE = np.float32(0.02)
"""Returns are some -50 at first; the critic's error would rule the actor's step."""


class SharedActor(nn.Module):
    """Every agent's gain, by one network."""

    def __init__(self, agents: AgentsNetwork) -> None:
        super().__init__()
        self.agents = agents

    def forward(self, s: Tensor, mask: Tensor) -> Tensor:  # noqa: ARG002
        """``[batch, nodes, features]`` to ``[batch, nodes]``."""
        q = self.agents.per_agent(s)
        return q[..., ACCEPT] - q[..., REJECT]


class CentralCritic(nn.Module):
    """The team's value from mean and greatest of all agents' inputs."""

    def __init__(self, features: int, hidden: tuple[int, ...], *, seed: int) -> None:
        super().__init__()
        self.stack = LinearStack((2 * features, *hidden, 1), seed=seed)

    def forward(self, s: Tensor, mask: Tensor) -> Tensor:  # noqa: ARG002
        """``[batch]``."""
        value: Tensor = self.stack(torch.cat([s.mean(dim=1), s.amax(dim=1)], dim=1)).squeeze(1)
        return value


class MappoRun:
    """One training run: ``settings`` as of ``MarlRun`` of the kind ``shared``, its rounds without replay."""

    def __init__(self, settings: MarlSettings, ppo: PpoSettings | None = None) -> None:
        self.settings = settings
        agents = AgentsNetwork((len(FEATURES), *settings.hidden, 2), seed=settings.seed)
        critic = CentralCritic(len(FEATURES), settings.hidden, seed=settings.seed + 1)
        self._stack = agents.stack
        self._learner = PpoLearner(SharedActor(agents), critic, ppo or PpoSettings())
        self._rng = np.random.default_rng((settings.seed, 3))
        self._workers = Workers()
        self.rounds = 0
        self.best_imbalance = float("inf")
        self.best: Arrays = self._stack.arrays()

    def run(self) -> Iterator[Report]:
        """Round by round to the end."""
        while self.rounds < self.settings.rounds:
            arrays = self._stack.arrays()
            episodes = episodes_of(self.settings, self.rounds, 0.0, self._rng)
            parts = [self._rolled(play(replace(one, sampled=True), arrays)) for one in episodes]
            rolled = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            scalars = self._learner.update(rolled, self._rng).scalars()
            self.rounds += 1
            found = ""
            if self.rounds % self.settings.validate_every == 0 or self.rounds == self.settings.rounds:
                arrays = self._stack.arrays()
                imbalance = mean_imbalance(self.settings, arrays, self._workers)
                found = f"validation imbalance {imbalance:.5f}"
                if imbalance < self.best_imbalance:
                    self.best_imbalance, self.best = imbalance, arrays
            yield Report(self.rounds, scalars, found, saveable=False)

    def weights(self, **card: Any) -> WeightsFile:
        """The best validated weights, with what the caller adds to their card."""
        return WeightsFile(self.best, Card(policy=self.settings.policy, features=list(FEATURES), **card))

    def _rolled(self, played: Played) -> dict[str, Any]:
        """The team's transitions of an episode: its reward is the mean of the agents'."""
        found = dict(played.transitions)
        found["r_t"] = found["r_t"].mean(axis=1) * REWARD_SCALE
        found["last"] = np.arange(len(found["r_t"])) == len(found["r_t"]) - 1
        return found
