"""Independent PPO: each agent learns from its own reward alone, and whole runs are functions of their seeds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lab.algorithms.ppo import PpoLearner, PpoSettings
from lab.learner.marl import training as marl_training
from lab.learner.marl.ippo import IppoRun, done
from lab.learner.marl.settings import MarlSettings

NODES = 3


class Gains(nn.Module):
    """A gain per agent, whatever the state."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.zeros(NODES))

    def forward(self, s: Tensor, mask: Tensor) -> Tensor:
        return self.gain.expand(len(s), -1) * 1.0


class Levels(nn.Module):
    """A value per agent, whatever the state."""

    def __init__(self) -> None:
        super().__init__()
        self.level = nn.Parameter(torch.zeros(NODES))

    def forward(self, s: Tensor, mask: Tensor) -> Tensor:
        return self.level.expand(len(s), -1) * 1.0


def rolled(actions: np.ndarray, reward: np.ndarray) -> dict[str, np.ndarray]:
    """``reward`` [steps, nodes]; every step is an episode."""
    count = len(actions)
    state, mask = np.zeros((count, NODES, 1), np.float32), np.ones((count, NODES), np.bool_)
    return {
        "s_tm1": state, "a_tm1": actions, "r_t": reward.astype(np.float32), "discount_t": np.zeros(count, np.float32),
        "s_t": state, "mask_tm1": mask, "mask_t": mask, "last": np.ones(count, np.bool_),
    }  # fmt: skip


def test_an_agent_that_is_paid_for_pods_takes_more_and_one_that_pays_for_them_fewer():
    learner = PpoLearner(Gains(), Levels(), PpoSettings(entropy=0.0, learning_rate=0.02), done)
    rng = np.random.default_rng(0)
    for _ in range(20):
        actions = rng.integers(0, NODES, 120)
        got = np.arange(NODES) == actions[:, None]
        learner.update(rolled(actions, got * np.array([1.0, 0.0, -1.0])), rng)
    gain = learner.actor.gain.detach().numpy()
    assert gain[0] > gain[1] > gain[2]


def test_an_agent_learns_from_its_own_reward_and_not_from_the_teams():
    learner = PpoLearner(Gains(), Levels(), PpoSettings(entropy=0.0, learning_rate=0.02), done)
    rng = np.random.default_rng(0)
    actions = rng.integers(0, NODES, 1200)
    paid = np.zeros((1200, NODES))
    paid[:, 0] = actions == 2  # the first one is paid when the third gets the pod
    learner.update(rolled(actions, paid), rng)
    gain = learner.actor.gain.detach().tolist()
    assert gain[0] < min(gain[1], gain[2])
    assert gain[1] == pytest.approx(gain[2], abs=0.5 * (gain[1] - gain[0]))


def test_ippo_is_a_function_of_its_seed_and_judged_like_the_others(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(marl_training, "VALIDATION_SEEDS", range(500, 501))

    def trained(seed: int) -> IppoRun:
        run = IppoRun(MarlSettings("marl-dqn", seed, rounds=1, episodes_per_round=1, hidden=(8,), validate_every=1))
        assert [report.validated.split()[0] for report in run.run()] == ["validation"]
        return run

    once, again, other = trained(1000), trained(1000), trained(1001)
    assert once.best_imbalance == again.best_imbalance != other.best_imbalance
    assert once.weights(version=1).card.policy == "marl-dqn"
