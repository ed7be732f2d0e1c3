"""The Q-network treats nodes alike, whatever their order and number, and numpy gives what torch gave."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lab.learner.deepsets.network import DeepSetsQ
from shared.policy.deepsets.features import FEATURE_COUNT, FEATURES
from shared.policy.deepsets.policy import DeepSetsNetwork
from shared.policy.weights import Card, WeightsFile
from tests.deep_sets import deep_sets

torch.set_num_threads(1)
SIZES = (FEATURE_COUNT, 32, 32, 1)


def network(seed: int = 1) -> DeepSetsQ:
    return DeepSetsQ(SIZES, seed=seed)


def exported(net: DeepSetsQ) -> DeepSetsNetwork:
    return DeepSetsNetwork(WeightsFile(net.export(), Card(policy="lb", version=1, features=list(FEATURES))))


def features(nodes: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).random((nodes, FEATURE_COUNT), np.float32)


@pytest.mark.parametrize("nodes", [1, 3, 10, 100, 1000])
def test_reordering_the_nodes_reorders_the_values_and_keeps_the_choice(nodes):
    net = exported(network())
    x = features(nodes)
    q = net.q_values(x).copy()
    rng = np.random.default_rng(2)
    for _ in range(50):
        order = rng.permutation(nodes)
        moved = net.q_values(np.ascontiguousarray(x[order]))
        assert np.abs(moved - q[order]).max() < 1e-5
        assert order[moved.argmax()] == q.argmax()


def test_the_order_of_nodes_matters_to_a_network_that_is_not_equivariant():
    """The check above can fail: one more weight per position, and it does."""
    net, x = exported(network()), features(10)
    position = np.linspace(0, 1, 10, dtype=np.float32)
    q = net.q_values(x) + position
    order = np.random.default_rng(2).permutation(10)
    moved = net.q_values(np.ascontiguousarray(x[order])) + position
    assert np.abs(moved - q[order]).max() > 1e-2


@pytest.mark.parametrize("nodes", [1, 2, 3, 10, 100, 1000])
def test_numpy_equals_torch(nodes):
    net = network(seed=nodes)
    x = features(nodes)
    with torch.no_grad():
        expected = net(torch.from_numpy(x)[None])[0].numpy()
    assert np.abs(exported(net).q_values(x) - expected).max() < 1e-5
    reference = deep_sets(net.export(), x, len(SIZES) - 1)[:, 0]
    assert np.abs(reference - expected).max() < 1e-5


def test_padding_and_infeasible_nodes_change_nothing():
    net, x = network(), torch.from_numpy(features(5))
    padded = torch.cat((x, torch.full((3, FEATURE_COUNT), 7.0)))[None]
    present = torch.tensor([[True] * 5 + [False] * 3])
    with torch.no_grad():
        assert torch.allclose(net(padded, present)[0, :5], net(x[None])[0], atol=1e-6)


def test_buffers_that_are_kept_do_not_leak_between_calls_of_different_size():
    net = exported(network())
    small, large = features(3, seed=3), features(200, seed=4)
    first = net.q_values(small).copy()
    net.q_values(large)
    assert (net.q_values(small) == first).all()


def test_the_same_seed_gives_the_same_network_and_leaves_the_global_generator_alone():
    state = torch.get_rng_state()
    left, right = network(5).export(), network(5).export()
    assert torch.equal(state, torch.get_rng_state())
    assert all((left[name] == right[name]).all() for name in left)
    assert any((left[name] != value).any() for name, value in network(6).export().items())
