"""The Q-network judges each node by itself, whatever the others, and numpy gives what torch gave."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lab.learner.deepsets.network import DeepSetsQ
from shared.policy.deepsets.features import FEATURE_COUNT, FEATURES
from shared.policy.deepsets.policy import DeepSetsPolicy
from shared.policy.weights import Card, WeightsFile

torch.set_num_threads(1)
SIZES = (FEATURE_COUNT, 32, 32, 1)


def network(seed: int = 1) -> DeepSetsQ:
    return DeepSetsQ(SIZES, seed=seed)


def exported(net: DeepSetsQ) -> DeepSetsPolicy:
    return DeepSetsPolicy(WeightsFile(net.export(), Card(policy="lb", version=1, features=list(FEATURES))))


def features(nodes: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).random((nodes, FEATURE_COUNT), np.float32)


@pytest.mark.parametrize("nodes", [1, 3, 10, 100, 1000])
def test_a_nodes_value_is_its_own_whatever_the_others_and_their_order(nodes):
    net = exported(network())
    x = features(nodes)
    q = net.scores(x)
    rng = np.random.default_rng(2)
    for count in {1, nodes // 2 or 1, nodes}:
        some = rng.permutation(nodes)[:count]
        assert np.abs(net.scores(x[some]) - q[some]).max() < 1e-12


def test_a_network_that_pools_the_nodes_at_hand_is_no_such_network():
    """The check above can fail: the greatest of the features added, and it does."""
    net, x = exported(network()), features(10)

    def pooled(rows: np.ndarray) -> np.ndarray:
        return net.scores(rows + rows.max(axis=0))

    assert np.abs(pooled(x[:5]) - pooled(x)[:5]).max() > 1e-3


@pytest.mark.parametrize("nodes", [1, 2, 3, 10, 100, 1000])
def test_numpy_equals_torch(nodes):
    net = network(seed=nodes)
    x = features(nodes)
    with torch.no_grad():
        expected = net(torch.from_numpy(x)[None])[0].numpy()
    assert np.abs(exported(net).scores(x) - expected).max() < 1e-5


def test_padding_and_infeasible_nodes_change_nothing():
    net, x = network(), torch.from_numpy(features(5))
    padded = torch.cat((x, torch.full((3, FEATURE_COUNT), 7.0)))[None]
    present = torch.tensor([[True] * 5 + [False] * 3])
    with torch.no_grad():
        assert torch.allclose(net(padded, present)[0, :5], net(x[None])[0], atol=1e-6)


def test_the_same_seed_gives_the_same_network_and_leaves_the_global_generator_alone():
    state = torch.get_rng_state()
    left, right = network(5).export(), network(5).export()
    assert torch.equal(state, torch.get_rng_state())
    assert all((left[name] == right[name]).all() for name in left)
    assert any((left[name] != value).any() for name, value in network(6).export().items())
