"""Evolution strategies: weights move towards what cost less, whatever an episode costs in itself."""

from __future__ import annotations

import numpy as np

from lab.algorithms.es import arrays_of, ascend, flat_of, gradient_of, population


def learned(scale: np.ndarray) -> np.ndarray:
    """Where it gets from (3, -2), when the cost is the distance from (1, 1) times ``scale`` of each episode."""
    rng, theta, moments = np.random.default_rng(1), np.array([3.0, -2.0]), np.zeros((2, 2))
    for step in range(1, 200):
        noise = rng.standard_normal((8, 2))
        tried = population(theta, noise, 0.1)
        costs = np.array([np.linalg.norm(one - 1.0) * scale for one in tried]).reshape(8, 2, len(scale))
        theta = ascend(theta, moments, gradient_of(costs, noise, 0.1), step, 0.05)
    return theta


def test_the_weights_get_where_the_cost_is_least():
    assert np.linalg.norm(learned(np.array([1.0])) - 1.0) < 0.2


def test_a_heavy_episode_counts_no_more_than_a_light_one():
    np.testing.assert_allclose(learned(np.array([1.0, 1.0])), learned(np.array([1.0, 1000.0])), atol=1e-6)


def test_weights_survive_the_way_through_one_row():
    arrays = {"b": np.arange(3, dtype=np.float32), "a": np.ones((2, 2), np.float32)}
    found = arrays_of(flat_of(arrays), {name: array.shape for name, array in arrays.items()})
    assert all((found[name] == array).all() for name, array in arrays.items())
