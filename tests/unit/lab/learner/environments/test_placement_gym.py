"""The Gymnasium view passes the library's own conformance test and means what the pure environment means."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from lab.environments.placement import NodeSize, Scenario
from lab.environments.placement_scenarios import moving_latency, replacing, waves
from lab.learner.environments.placement_gym import PlacementGym


@pytest.mark.parametrize("objective", ["ee", "lb", "el"])
def test_gymnasiums_conformance_test_passes(objective):
    check_env(PlacementGym(moving_latency(3, 60), objective), skip_render_check=True)
    check_env(PlacementGym(waves(5, 60).seen_late(2, 0.1), objective), skip_render_check=True)


def test_the_same_seed_gives_the_same_episode():
    def episode(seed: int) -> list[float]:
        env = PlacementGym(moving_latency(4, 80), "el")
        _, info = env.reset(seed=seed)
        env.action_space.seed(1)
        rewards, truncated = [], False
        while not truncated:
            action = env.action_space.sample(mask=info["action_mask"])
            _, reward, _, truncated, info = env.step(action)
            rewards.append(reward)
        return rewards

    assert episode(3) == episode(3)
    assert episode(3) != episode(4)


def test_a_masked_choice_is_refused_told_and_ends_the_episode():
    env = PlacementGym(Scenario((NodeSize(cpu_millis=250), NodeSize()), pods=4, decisions=9), "lb")
    env.reset(seed=1)
    _, _, _, _, info = env.step(np.int64(0))
    assert info["action_mask"].tolist() == [0, 1]
    _, reward, terminated, _, info = env.step(np.int64(0))
    assert (reward, terminated, info["infeasible"]) == (-1.0, True, True)


def test_a_step_before_reset_is_refused():
    with pytest.raises(gymnasium.error.ResetNeeded):
        PlacementGym(replacing(3, 10), "ee").step(np.int64(0))
