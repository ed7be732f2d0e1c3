"""PPO: advantages as published, masks respected, and a policy that moves towards what paid."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lab.algorithms.descent import TrainingDiverged
from lab.algorithms.ppo import PpoLearner, PpoSettings, advantages


class Table(nn.Module):
    """A logit per action, whatever the state."""

    def __init__(self, actions: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(actions))

    def forward(self, s: Tensor, mask: Tensor) -> Tensor:
        return self.logits.expand(len(s), -1)


class Level(nn.Module):
    """One value, whatever the state."""

    def __init__(self) -> None:
        super().__init__()
        self.level = nn.Parameter(torch.zeros(1))

    def forward(self, s: Tensor, mask: Tensor) -> Tensor:
        return self.level.expand(len(s)) * 1.0


def rolled(actions: np.ndarray, reward: np.ndarray, mask: np.ndarray) -> dict[str, np.ndarray]:
    count = len(actions)
    state = np.zeros((count, 1), np.float32)
    return {
        "s_tm1": state, "a_tm1": actions, "r_t": reward.astype(np.float32), "discount_t": np.zeros(count, np.float32),
        "s_t": state, "mask_tm1": np.tile(mask, (count, 1)), "mask_t": np.tile(mask, (count, 1)),
        "last": np.ones(count, np.bool_),
    }  # fmt: skip


def array(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_without_a_trace_an_advantage_is_one_step_error():
    found = advantages(array(1, 2), array(0.5, 0.5), array(1, 1), array(4, 6), np.array([False, True]), trace=0.0)
    assert found.tolist() == [2.0, 4.0]


def test_with_a_full_trace_errors_add_up_to_the_end_of_the_episode_and_not_beyond():
    last = np.array([False, True, True])
    found = advantages(array(1, 1, 9), array(0.5, 0, 0), array(0, 0, 0), array(0, 0, 0), last, trace=1.0)
    assert found.tolist() == [1.5, 1.0, 9.0]


def test_a_policy_learns_the_allowed_action_that_pays_and_never_draws_a_forbidden_one():
    mask, rng = np.array([True, True, False]), np.random.default_rng(1)
    learner = PpoLearner(Table(3), Level(), PpoSettings(learning_rate=0.05, entropy=0.0))
    for _ in range(20):
        actions = np.array([learner.act(np.zeros(1, np.float32), mask, rng) for _ in range(64)])
        assert actions.max() <= 1
        learner.update(rolled(actions, actions == 1, mask), rng)
    assert np.mean([learner.act(np.zeros(1, np.float32), mask, rng) for _ in range(100)]) > 0.9


def test_one_update_moves_no_chance_far_beyond_the_clip():
    mask, rng = np.array([True, True]), np.random.default_rng(1)
    actor = Table(2)
    learner = PpoLearner(actor, Level(), PpoSettings(learning_rate=0.02, epochs=50, entropy=0.0, clip=0.2))
    actions = np.arange(64) % 2
    learner.update(rolled(actions, actions, mask), rng)
    chance = torch.softmax(actor.logits.detach(), 0)[1]
    assert 0.55 < float(chance) < 0.7


def test_a_reward_that_is_not_finite_ends_the_run():
    learner = PpoLearner(Table(2), Level(), PpoSettings())
    actions = np.zeros(4, np.int64)
    with pytest.raises(TrainingDiverged, match="ppo"):
        learner.update(rolled(actions, np.full(4, np.nan), np.array([True, True])), np.random.default_rng(1))


def test_a_state_in_which_nothing_is_allowed_is_not_acted_in():
    learner = PpoLearner(Table(3), Level(), PpoSettings())
    with pytest.raises(ValueError, match="mask: a state without any allowed action"):
        learner.act(np.zeros(1, np.float32), np.zeros(3, np.bool_), np.random.default_rng(1))
