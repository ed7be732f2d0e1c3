"""The thesis' bands, and the balance that its experiment is judged by."""

from __future__ import annotations

import numpy as np
import pytest

from shared.policy.marl.reward import balance_potential, balance_reward, band, band_reward


@pytest.mark.parametrize(
    ("share", "reward"),
    [
        pytest.param(0.0, -50.0, id="idle: by the distance to 50 %"),
        pytest.param(0.4, -10.0, id="below the band"),
        pytest.param(0.5, 0.0, id="lower edge"),
        pytest.param(0.8, 10.0, id="upper edge"),
        pytest.param(0.85, -5.0, id="above the band"),
        pytest.param(0.9, -60.0, id="danger"),
        pytest.param(1.0, -60.0, id="full"),
    ],
)
def test_band_rewards_as_the_thesis_says(share: float, reward: float) -> None:
    assert band(np.array([share]))[0] == pytest.approx(reward)


def test_band_reward_averages_the_nodes_and_the_clusters() -> None:
    utilisation = np.array([[0.6, 0.6, 0.6, 0.0], [0.2, 0.2, 0.2, 0.0]])
    together = band(np.array([0.4]))[0]
    wanted = [(band(np.array([own]))[0] + together) / 2 for own in (0.6, 0.2)]
    np.testing.assert_allclose(band_reward(utilisation), wanted)


def test_balance_is_minus_the_variance_of_the_imbalance() -> None:
    rng = np.random.default_rng(3)
    utilisation = rng.uniform(0.3, 0.4, (6, 4))
    highest = utilisation.max(axis=1)
    assert balance_potential(utilisation).mean() == pytest.approx(-highest.var() / 0.05**2)
    assert balance_reward(utilisation).mean() == pytest.approx(-highest.var() / 0.05**2)


def test_balance_is_best_where_all_are_alike() -> None:
    assert balance_reward(np.full((3, 4), 0.7)).tolist() == pytest.approx([0.0, 0.0, 0.0])


def test_a_dead_node_is_not_waited_for() -> None:
    utilisation = np.array([[0.6] * 4, [0.6] * 4, [0.0] * 4])
    counted = np.array([True, True, False])
    np.testing.assert_allclose(balance_potential(utilisation, counted)[:2], 0.0)
