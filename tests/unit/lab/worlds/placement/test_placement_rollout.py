"""Roll-outs count the truth, oracles take the greatest reward, and every figure can go bad."""

from __future__ import annotations

import numpy as np
import pytest

from lab.environments.placement import NodeSize, PlacementEnv, Scenario
from lab.environments.placement_rewards import REWARDS, place_and_judge
from lab.environments.placement_scenarios import moving_latency, replacing, training_scenario, waves
from lab.evaluation.deciders.placement_oracles import ORACLES, GreedyLatency
from lab.worlds.placement.placement_rollout import choose, policy_decider, roll_out
from shared.policy.observation import Verdicts

RNG = np.random.default_rng(1)


def always(row: int):
    """A decider that wants one node whenever it is feasible."""
    return lambda env, rows: Verdicts((rows == row).astype(float))


def everywhere(env: PlacementEnv, rows: np.ndarray) -> Verdicts:
    """A decider that takes the nodes in turn."""
    return Verdicts(-((rows - env.decided) % len(env.pods)).astype(float))


def test_accepted_nodes_come_before_better_scored_rejected_ones():
    assert choose(Verdicts(np.array([9.0, 1.0, 2.0]), np.array([False, True, True])), RNG) == 2


def test_when_all_are_rejected_the_best_score_is_taken():
    assert choose(Verdicts(np.array([3.0, 9.0]), np.array([False, False])), RNG) == 1


def test_ties_fall_on_each_alike():
    counts = np.bincount([choose(Verdicts(np.array([1.0, 1.0, 0.0])), RNG) for _ in range(2000)], minlength=3)
    assert counts[2] == 0
    assert abs(counts[0] - 1000) < 150


@pytest.mark.parametrize("objective", ["ee", "lb", "el"])
def test_an_oracle_takes_the_greatest_reward(objective):
    """Against trying every node on a copy of the run, in 200 states that nobody arranged."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        scenario = training_scenario(rng, latency=objective == "el")
        env = PlacementEnv(scenario, seed)
        history: list[int] = []
        for _ in range(20):
            rows = env.rows()
            rewards = []
            for row in rows:
                trial = PlacementEnv(scenario, seed)
                for past in history:
                    trial.place(past)
                rewards.append(place_and_judge(trial, int(row), REWARDS[objective])[1].reward)
            score = ORACLES[objective](env, rows).score
            assert rewards[int(score.argmax())] == pytest.approx(max(rewards))
            history.append(int(rng.choice(rows)))
            env.place(history[-1])


def test_one_node_for_all_is_one_active_node():
    found = roll_out(waves(3, 60), 42, always(1), REWARDS["ee"])
    assert (found.active_nodes, found.active_ratio) == (1.0, 1.0)
    assert found.worst_spread == 30
    assert found.balanced < 0.2


def test_nodes_in_turn_are_balanced_and_all_active():
    found = roll_out(replacing(3, 90), 42, everywhere, REWARDS["lb"])
    assert (found.balanced, found.worst_spread) == (1.0, 1)
    assert found.active_ratio > 2.8
    assert found.reward == 10.0


def test_the_fewest_nodes_count_what_a_node_holds():
    found = roll_out(waves(10, 100), 42, ORACLES["ee"], REWARDS["ee"])
    assert found.active_ratio == 1.0
    assert found.active_nodes > 2.4  # 100 pods need four nodes; deletions empty them one by one


def test_latency_is_counted_against_what_was_offered():
    scenario = moving_latency(3, 120)
    best = roll_out(scenario, 42, policy_decider(GreedyLatency(), RNG), REWARDS["el"])
    assert (best.within_soft, best.hard_avoidable, best.decisions_to_move) == (1.0, 0, 1)
    stuck = roll_out(scenario, 42, always(0), REWARDS["el"])
    assert stuck.within_soft < 0.7
    assert stuck.hard_avoidable > 0
    assert stuck.decisions_to_move > 30
    assert stuck.latency_ms > best.latency_ms


def test_what_is_seen_late_is_moved_to_late():
    scenario = moving_latency(3, 120).seen_late(7, 0.0)
    found = roll_out(scenario, 42, policy_decider(GreedyLatency(), RNG), REWARDS["el"])
    assert found.decisions_to_move == 8
    assert found.within_soft < 0.95


def test_pods_that_no_node_takes_are_counted_and_nothing_infeasible_is_tried():
    scenario = Scenario((NodeSize(cpu_millis=1_000),) * 2, pods=10, decisions=40)
    found = roll_out(scenario, 42, ORACLES["lb"], REWARDS["lb"])
    assert (found.unplaceable, found.infeasible, found.decisions) == (8, 0, 40)


def test_the_same_seed_gives_the_same_figures():
    runs = [roll_out(moving_latency(5, 60), 43, ORACLES["el"], REWARDS["el"]) for _ in range(2)]
    assert runs[0] == runs[1]
    assert runs[0] != roll_out(moving_latency(5, 60), 44, ORACLES["el"], REWARDS["el"])


def packed(env: PlacementEnv, rows: np.ndarray) -> Verdicts:
    return Verdicts(-rows.astype(float))


def spread(env: PlacementEnv, rows: np.ndarray) -> Verdicts:
    return Verdicts(-env.pods[rows].astype(float))


def test_joules_are_the_published_watts_of_the_nodes_in_use_for_the_time_of_a_placement():
    size = NodeSize(cpu_millis=1000)
    scenario = Scenario((size, size), pod_cpu_millis=500, pods=2, decisions=2)
    found = {decider: roll_out(scenario, 1, decider, REWARDS["ee"]) for decider in (packed, spread)}
    half, full = 140, 222
    assert found[packed].joules == pytest.approx((half + full) / 2 * 4)
    assert found[spread].joules == pytest.approx((half + 2 * half) / 2 * 4)
    assert found[packed].joules_flat == pytest.approx((116 + 135) / 2 * 4)


def test_joules_follow_every_wave_back_to_nothing():
    scenario = Scenario((NodeSize(cpu_millis=1000),) * 2, pod_cpu_millis=500, pods=2, decisions=6)
    assert roll_out(scenario, 1, packed, REWARDS["ee"]).joules == pytest.approx((140 + 222) / 2 * 4)


def test_the_spread_of_loads_is_their_standard_deviation_after_each_creation():
    sizes = (NodeSize(cpu_millis=1000, memory_bytes=1 << 30), NodeSize(cpu_millis=4000, memory_bytes=1 << 30))
    scenario = Scenario(sizes, pod_cpu_millis=500, pod_memory_bytes=1 << 27, pods=3, turnover="replace", decisions=5)
    found = roll_out(scenario, 1, packed, REWARDS["lb"])
    env = PlacementEnv(scenario, 1)
    after = []
    for rows in env.offers():
        row = int(rows[0])
        pods = env.pods.copy()
        pods[row] += 1
        after.append(float(np.std(pods * env.steps)))
        env.place(row)
    assert found.load_spread == pytest.approx(np.mean(after))
