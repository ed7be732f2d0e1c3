"""The environment of training jobs: Gymnasium's own test, and that rewards are what the jobs got done."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from lab.jobs.clusters import uniform
from lab.jobs.episodes import JobsEpisode
from lab.learner.jobs.environment import JobsGym, beside_each_other
from lab.worlds.training.simulation import SimulationSettings
from tests.training_jobs import training_job

CLUSTER = uniform(2, 4)


def draw(seed):
    rng = np.random.default_rng(seed)
    kinds = ("small", "large", "servers")
    return [
        training_job(f"j{at}", kinds[int(rng.integers(3))], submitted=float(rng.integers(600)), batch=128)
        for at in range(5)
    ]


def play(env, seed, *, eager=True):
    """Gives workers to the first slots first; its rewards, and the last information."""
    _, info = env.reset(seed=seed)
    rewards, over = [], False
    while not over:
        action = int(np.argmax(info["action_mask"])) if eager else len(info["action_mask"]) - 1
        _, reward, over, _, info = env.step(np.int64(action))
        rewards.append(reward)
    return rewards, info


def test_gymnasiums_conformance_test_passes():
    check_env(JobsGym(draw, CLUSTER, window=8), skip_render_check=True)


def test_the_rewards_of_an_episode_add_up_to_its_jobs():
    rewards, info = play(JobsGym(draw, CLUSTER, window=8), seed=3)
    assert sum(rewards) == pytest.approx(5.0)
    assert info["mean_completion_s"] > 0.0


def test_the_same_seed_gives_the_same_episode():
    first, again, other = (play(JobsGym(draw, CLUSTER, window=8), seed)[0] for seed in (3, 3, 4))
    assert first == again != other


def test_an_action_outside_the_mask_ends_the_episode():
    env = JobsGym(draw, CLUSTER, window=8)
    env.reset(seed=1)
    _, reward, terminated, _, info = env.step(np.int64(7))
    assert (reward, terminated, info["not_allowed"]) == (-1.0, True, True)
    with pytest.raises(gymnasium.error.ResetNeeded):
        JobsGym(draw, CLUSTER).step(np.int64(0))


def test_features_stay_within_their_bounds_and_empty_slots_are_zero():
    env = JobsGym(draw, CLUSTER, window=8)
    seen, info = env.reset(seed=2)
    over = False
    while not over:
        assert seen.min() >= 0.0
        assert seen.max() <= 1.0
        assert not seen[seen[:, 0] == 0.0].any()
        seen, _, over, _, info = env.step(np.int64(np.argmax(info["action_mask"])))


def test_an_action_that_is_not_allowed_is_refused_by_the_episode():
    episode = JobsEpisode(draw(1), CLUSTER, window=2, settings=SimulationSettings(), seed=1)
    for action in (-1, 3):
        with pytest.raises(ValueError, match="not allowed"):
            episode.give(action)


def test_environments_run_beside_each_other():
    several = beside_each_other(2, draw, CLUSTER, window=8)
    try:
        seen, info = several.reset(seed=5)
        assert seen.shape == (2, 8, 10)
        seen, rewards, *_ = several.step(np.array([8, 8]))
        assert rewards.shape == (2,)
        assert info["action_mask"].shape == (2, 9)
    finally:
        several.close()
