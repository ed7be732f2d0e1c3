"""Every head exports a plain network that ranks nodes as it does, and learns the same values where they are certain."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import torch

from lab.algorithms.dqn import DqnLearnerSettings
from lab.learner.deepsets.heads import Head, QuantileLearner, QuantileSetQ, learner_of
from shared.policy.networks import mlp

SIZES = (3, 8)
HEADS = get_args(Head)


def states(count: int = 6, nodes: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(2)
    present = rng.random((count, nodes)) < 0.7
    present[:, 0] = True
    return torch.from_numpy(rng.normal(size=(count, nodes, 3)).astype(np.float32)), torch.from_numpy(present)


@pytest.mark.parametrize("head", HEADS)
def test_numpy_ranks_the_nodes_as_the_head_does(head):
    _, network = learner_of(head, SIZES, DqnLearnerSettings(), seed=1)
    s, present = states()
    with torch.no_grad():
        q = network(s, present).numpy()
    for row, there in enumerate(present.numpy()):
        exported = mlp(network.export(), s[row].numpy()[there], len(network.layers))
        assert np.ravel(exported).argsort().tolist() == q[row][there].argsort().tolist()


@pytest.mark.parametrize("head", HEADS)
def test_absent_nodes_change_nothing(head):
    _, network = learner_of(head, SIZES, DqnLearnerSettings(), seed=1)
    s, present = states()
    other = torch.where(present[..., None], s, torch.full_like(s, 7.0))
    with torch.no_grad():
        torch.testing.assert_close(network(s, present)[present], network(other, present)[present])


def batch(reward: np.ndarray, *, mask: list[bool]) -> dict[str, np.ndarray]:
    count = len(reward)
    state = np.ones((count, 2, 3), np.float32) * np.array([[1.0], [-1.0]], np.float32)
    allowed, there = np.tile(mask, (count, 1)), np.ones((count, 2), np.bool_)
    return {
        "s_tm1": state, "a_tm1": np.zeros(count, np.int64), "r_t": reward.astype(np.float32), "s_t": state,
        "discount_t": np.full(count, 0.5, np.float32), "mask_tm1": there, "mask_t": allowed,
        "present_tm1": there, "present_t": there,
    }  # fmt: skip


@pytest.mark.parametrize("head", HEADS)
def test_with_no_allowed_action_next_a_head_learns_the_mean_reward(head):
    learner, network = learner_of(head, SIZES, DqnLearnerSettings(learning_rate=0.02), seed=1)
    given = batch(np.tile([0.2, 0.6], 16), mask=[False, False])
    for _ in range(200):
        learner.update(given)
    with torch.no_grad():
        q = network(torch.from_numpy(given["s_tm1"]), torch.from_numpy(given["present_tm1"]))
    assert float(q[0, 0]) == pytest.approx(0.4, abs=0.06)


def test_quantiles_spread_over_what_the_reward_may_be():
    network = QuantileSetQ((*SIZES, 5), seed=1)
    learner = QuantileLearner(network, DqnLearnerSettings(learning_rate=0.02, huber_delta=1.0))
    given = batch(np.tile([0.0, 4.0], 16), mask=[False, False])
    for _ in range(400):
        learner.update(given)
    with torch.no_grad():
        found = network.quantiles(torch.from_numpy(given["s_tm1"]))[0, 0].numpy()
    assert found[0] < 1.2
    assert found[-1] > 2.8
