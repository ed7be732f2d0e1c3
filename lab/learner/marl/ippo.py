"""Independent PPO for marl-dqn's experiment: every agent learns from its own reward, by a critic of its own inputs.

One actor for all agents: an agent's logit is its gain, as in ``networks.py``; of all agents one gets the pod, so the
joint action is a draw of the softmax over the feasible nodes' gains. An agent's own action is whether it got the pod,
so its chance is its part of that softmax; what the others do is its surroundings. Episodes, rewards and validation are
those of ``training.py``. Not what ships. Source: de Witt et al. 2020 (IPPO).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lab.algorithms.ppo import PpoLearner, PpoSettings
from lab.learner.marl.networks import AgentsNetwork, Arrays, LinearStack
from lab.learner.marl.rollout import PlayedTransitions
from lab.learner.marl.settings import MarlSettings
from lab.learner.marl.training import Ground, play_one
from lab.learner.training.runner import TrainingReport
from lab.workers import Workers
from lab.worlds.placement.captured_cluster import CapturedCluster
from shared.policy.marl.features import FEATURES
from shared.policy.marl.policy import ACCEPT, REJECT
from shared.policy.weights import Card, WeightsFile, shipped

REWARD_SCALE = np.float32(0.02)
"""Returns are some -50 at first; the critic's error would rule the actor's step."""
LEAST_CHANCE = 1e-6
"""Of not getting the pod, where its logarithm is taken."""


class SharedActor(nn.Module):
    """Every agent's gain, by one network."""

    def __init__(self, agents: AgentsNetwork) -> None:
        super().__init__()
        self.agents = agents

    def forward(self, s: Tensor, mask: Tensor) -> Tensor:  # noqa: ARG002
        """``[batch, nodes, features]`` to ``[batch, nodes]``."""
        q = self.agents.per_agent(s)
        return q[..., ACCEPT] - q[..., REJECT]


class OwnCritic(nn.Module):
    """Each agent's value, from its own inputs."""

    def __init__(self, features: int, hidden: tuple[int, ...], *, seed: int) -> None:
        super().__init__()
        self.stack = LinearStack((features, *hidden, 1), seed=seed)

    def forward(self, s: Tensor, mask: Tensor) -> Tensor:  # noqa: ARG002
        """``[batch, nodes]``."""
        value: Tensor = self.stack(s).squeeze(-1)
        return value


def done(log_all: Tensor, got: Tensor) -> Tensor:
    """``[steps, nodes]``: the log probability of what each agent did, where ``got`` names the node that got the pod."""
    mine = torch.zeros_like(log_all, dtype=torch.bool).scatter_(1, got[:, None], True)
    stayed = torch.log((1 - log_all.exp()).clamp_min(LEAST_CHANCE))
    return torch.where(mine, log_all, stayed)


class IppoRun:
    """One training run: ``settings`` as of ``MarlRun`` of the kind ``shared``, its rounds without replay."""

    unit = "rounds"

    def __init__(
        self, settings: MarlSettings, ppo: PpoSettings | None = None, workers: Workers | None = None,
        cluster: CapturedCluster | None = None,
    ) -> None:  # fmt: skip
        self.settings = settings
        agents = AgentsNetwork((len(FEATURES), *settings.hidden, 2), seed=settings.seed)
        critic = OwnCritic(len(FEATURES), settings.hidden, seed=settings.seed + 1)
        self._stack = agents.stack
        self._learner = PpoLearner(SharedActor(agents), critic, ppo or PpoSettings(), done)
        self._rng = np.random.default_rng((settings.seed, 3))
        self._workers = workers or Workers()
        self.ground = Ground(settings, cluster)
        self.rounds = 0
        self.best_imbalance = float("inf")
        self.best: Arrays = self._stack.arrays()

    @property
    def done(self) -> int:
        """Rounds so far."""
        return self.rounds

    @property
    def length(self) -> int:
        """Rounds of the whole run."""
        return self.settings.rounds

    @property
    def finished(self) -> bool:
        """Whether all rounds are done."""
        return self.rounds >= self.settings.rounds

    def run(self) -> Iterator[TrainingReport]:
        """Round by round to the end; stop at any report and go on later."""
        if self.ground.cluster is not None and not self.rounds:
            self.best = {name: np.array(array) for name, array in shipped(self.settings.policy).arrays.items()}
            self.best_imbalance = self.ground.imbalance(self.best, self._workers)
            yield TrainingReport(0, {}, f"validation imbalance {self.best_imbalance:.5f}, as shipped")
        while not self.finished:
            arrays = self._stack.arrays()
            episodes = [replace(one, sampled=True) for one in self.ground.episodes(self.rounds, 0.0, self._rng)]
            parts = [
                self._rolled(played) for played in self._workers.map(play_one, [(one, arrays) for one in episodes])
            ]
            rolled = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            scalars = self._learner.update(rolled, self._rng).scalars()
            self.rounds += 1
            if self.rounds % self.settings.validate_every and not self.finished:
                yield TrainingReport(self.rounds, scalars)
                continue
            arrays = self._stack.arrays()
            imbalance = scalars["validation/imbalance"] = self.ground.imbalance(arrays, self._workers)
            if imbalance < self.best_imbalance:
                self.best_imbalance, self.best = imbalance, arrays
            yield TrainingReport(self.rounds, scalars, f"validation imbalance {imbalance:.5f}")

    def get_state(self) -> dict[str, Any]:
        """Everything but the settings."""
        kept = {"rounds": self.rounds, "best_imbalance": self.best_imbalance, "best": dict(self.best)}
        return {"learner": self._learner.get_state(), "rng": self._rng.bit_generator.state, **kept}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from ``get_state``'s answer."""
        self._learner.set_state(state["learner"])
        self._rng.bit_generator.state = state["rng"]
        self.rounds, self.best_imbalance, self.best = state["rounds"], state["best_imbalance"], state["best"]

    def weights(self, **card: Any) -> WeightsFile:
        """The best validated weights, with what the caller adds to their card."""
        return WeightsFile(self.best, Card(policy=self.settings.policy, features=list(FEATURES), **card))

    def _rolled(self, played: PlayedTransitions) -> dict[str, Any]:
        """The agents' transitions of an episode, each with its own reward."""
        found = dict(played.transitions)
        found["r_t"] = found["r_t"] * REWARD_SCALE
        found["last"] = np.arange(len(found["r_t"])) == len(found["r_t"]) - 1
        return found
