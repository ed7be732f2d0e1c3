"""The published rewards, number by number, and the gaps of the published code closed."""

from __future__ import annotations

import numpy as np
import pytest

from lab.environments.placement import NodeSize, PlacementEnv, Scenario
from lab.environments.placement_rewards import (
    INFEASIBLE,
    RewardedPlacement,
    RewardWorth,
    ee_reward,
    el_bounded_reward,
    el_reward,
    lb_reward,
    place_and_judge,
)


def placement(load: list[float], chosen: int, pods: list[int], *latency: int) -> RewardedPlacement:
    return RewardedPlacement(np.array(load), chosen, np.array(pods), *latency)


@pytest.mark.parametrize(
    ("load", "chosen", "pods", "worth"),
    [
        pytest.param([0.5, 0.0, 0.0], 0, [5, 0, 0], RewardWorth(6.0, False), id="two-of-three-unused"),
        pytest.param([0.5, 0.1, 0.0], 0, [5, 1, 0], RewardWorth(3.0, False), id="one-of-three-unused"),
        pytest.param([0.5, 0.1, 0.1], 0, [5, 1, 1], RewardWorth(1.0, False), id="none-unused-is-worth-the-least"),
        pytest.param([0.5, 0.1, 0.1], 1, [4, 2, 1], RewardWorth(0.0, True), id="none-unused-and-not-the-fullest-ends"),
        pytest.param([0.5, 0.1, 0.0], 1, [4, 2, 0], RewardWorth(0.0, True), id="not-the-fullest-ends"),
        pytest.param([0.5, 0.5, 0.0], 1, [4, 5, 0], RewardWorth(3.0, False), id="equally-full"),
        pytest.param([0.0, 0.0, 0.0], 2, [0, 0, 1], RewardWorth(6.0, False), id="empty-cluster"),
    ],
)
def test_energy(load, chosen, pods, worth):
    assert ee_reward(placement(load, chosen, pods)) == worth


@pytest.mark.parametrize(
    ("load", "chosen", "worth"),
    [
        pytest.param([0.1, 0.2, 0.3], 0, RewardWorth(10.0, False), id="least"),
        pytest.param([0.1, 0.2, 0.3], 1, RewardWorth(0.0, False), id="middle"),
        pytest.param([0.1, 0.2, 0.3], 2, RewardWorth(-1.0, True), id="most-ends"),
        pytest.param([0.2, 0.2, 0.2], 1, RewardWorth(10.0, False), id="all-alike"),
        pytest.param([0.2], 0, RewardWorth(10.0, False), id="only-one-feasible"),
    ],
)
def test_load_balance(load, chosen, worth):
    assert lb_reward(placement(load, chosen, [1, 1, 1])) == worth


@pytest.mark.parametrize(
    ("latency_us", "r3", "ends"),
    [
        pytest.param(20_000, 1.0, False, id="at-the-soft-limit"),
        pytest.param(20_001, 0.5, False, id="between"),
        pytest.param(30_000, 0.5, False, id="at-the-hard-limit"),
        pytest.param(30_001, 0.0, True, id="beyond-ends"),
        pytest.param(-1, 0.0, True, id="unknown-ends"),
    ],
)
def test_energy_and_latency(latency_us, r3, ends):
    found = el_reward(placement([0.4, 0.1, 0.0], 0, [12, 6, 2], latency_us, 20_000, 30_000))
    assert found.reward == pytest.approx((4 - 2) / 4 + 20 / 2 / 50 + r3)
    assert found.terminated == ends


def test_bounded_energy_never_outweighs_a_latency_limit():
    for nodes in (1, 2, 3, 10):
        pods = np.zeros(nodes, np.int64)
        best_kept = RewardedPlacement(np.zeros(nodes), 0, pods, 25_000, 20_000, 30_000, total_load=float(nodes))
        worst_soft = RewardedPlacement(np.zeros(nodes), 0, pods + 1, 20_000, 20_000, 30_000, total_load=0.0)
        assert el_bounded_reward(worst_soft).reward > el_bounded_reward(best_kept).reward + 0.05
    assert el_bounded_reward(placement([0.0], 0, [1], 40_000, 20_000, 30_000)).terminated


def test_bounded_energy_counts_every_node_with_a_pod_and_their_mean_load():
    found = el_bounded_reward(
        RewardedPlacement(np.array([0.5, 0.1, 0.0]), 0, np.array([6, 1, 0]), 5_000, 20_000, 30_000, total_load=0.7)
    )
    assert found.reward == pytest.approx(1 + 0.2 * ((4 - 2) / 4 + 0.7 / 2))


def test_the_total_load_is_that_of_all_nodes_with_the_pod():
    sizes = (NodeSize(cpu_millis=250), NodeSize(), NodeSize())
    env = PlacementEnv(Scenario(sizes, pods=9, decisions=20, latency_soft_us=20_000), 1)
    env.place(0)
    told = []
    place_and_judge(env, 1, lambda judged: told.append(judged.total_load) or RewardWorth(0.0, False))
    after = env.table.requested[:2, :3] / env.table.allocatable[:2, :3]
    assert told == [pytest.approx(after.mean(axis=0).sum())]


def test_nodes_on_are_never_divided_by_when_there_are_none():
    found = el_reward(placement([0.0, 0.0, 0.0], 0, [1, 0, 0], 5_000, 20_000, 30_000))
    assert found.reward == pytest.approx(1.0 + 1 / 50 + 1.0)


def test_a_placement_is_judged_on_the_state_that_holds_it():
    """Defect 5 of the published code: the reward was read before the pod was there."""
    env = PlacementEnv(Scenario(pods=30, decisions=60), 1)
    _, first = place_and_judge(env, 1, ee_reward)
    assert first == RewardWorth(6.0, False)
    _, second = place_and_judge(env, 0, ee_reward)
    assert second == RewardWorth(0.0, True)
    assert env.pods.tolist() == [1, 1, 0]


def test_what_does_not_fit_is_worth_nothing_and_ends():
    env = PlacementEnv(Scenario((NodeSize(cpu_millis=250),) * 2, pods=2, decisions=9), 1)
    place_and_judge(env, 0, lb_reward)
    placed, worth = place_and_judge(env, 0, lb_reward)
    assert (placed.placed, worth) == (False, INFEASIBLE)


def test_rank_is_judged_among_feasible_nodes_only():
    env = PlacementEnv(Scenario((NodeSize(cpu_millis=250), NodeSize(), NodeSize()), pods=20, decisions=40), 1)
    env.place(0)
    env.place(1)
    _, worth = place_and_judge(env, 1, ee_reward)  # node 0 is fuller but full
    assert worth == RewardWorth(3.0, False)
