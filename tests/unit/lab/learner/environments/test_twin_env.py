"""The twin's views pass the libraries' own conformance tests, and keep our rules beside."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import parallel_api_test, parallel_seed_test

from lab.environments.thesis import NodeFault, ThesisSettings
from lab.learner.environments.twin_env import CentralEnv, NodeAgentsEnv
from shared.errors import ConfigError


def test_parallel_view_passes_the_official_conformance_test() -> None:
    parallel_api_test(NodeAgentsEnv(), num_cycles=220)


def test_parallel_view_passes_the_official_seed_test() -> None:
    parallel_seed_test(NodeAgentsEnv, num_cycles=30)


def test_central_view_passes_the_official_checker() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # hints on rendering and on spaces with equal bounds
        check_env(CentralEnv(), skip_render_check=True)


def test_every_pod_is_one_step_and_rewards_are_all_paid() -> None:
    env = NodeAgentsEnv(reward="balance")
    env.reset(seed=3)
    steps, paid = 0, 0.0
    while env.agents:
        actions = {agent: int(row == steps % 4) for row, agent in enumerate(env.agents)}
        _, rewards, *_ = env.step(actions)
        paid += sum(rewards.values())
        steps += 1
    assert steps == 105
    assert paid < 0


def test_all_agents_rejecting_still_places_the_pod_and_is_counted() -> None:
    env = NodeAgentsEnv()
    env.reset(seed=3)
    env.step(dict.fromkeys(env.agents, 0))
    assert env.all_rejected == 1


def test_a_yes_for_an_infeasible_node_is_no_yes() -> None:
    env = NodeAgentsEnv(settings=ThesisSettings(readings=True, faults=(NodeFault(0, 0.0, 30.0),)))
    observations, _ = env.reset(seed=3)
    env.step(dict.fromkeys(env.agents, 0))
    observations, *_ = env.step({agent: int(agent == "node_0") for agent in env.agents})
    assert observations["node_0"]["action_mask"].tolist() == [1, 0]
    assert env.infeasible == 1
    assert env.all_rejected == 2


def test_central_view_replaces_an_infeasible_node_and_says_so() -> None:
    env = CentralEnv(settings=ThesisSettings(readings=True, faults=(NodeFault(0, 0.0, 30.0),)))
    env.reset(seed=1)
    env.step(np.int64(1))
    *_, info = env.step(np.int64(0))
    assert info["infeasible"] is True


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        pytest.param({"reward": "gold"}, "reward", id="reward"),
        pytest.param({"settings": ThesisSettings()}, "settings.readings", id="no readings"),
    ],
)
def test_bad_settings_are_refused_by_name(arguments: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        NodeAgentsEnv(**arguments)  # type: ignore[arg-type]
