"""The PettingZoo view passes the library's own tests, and keeps our rules beside."""

from __future__ import annotations

import numpy as np
import pytest
from pettingzoo.test import parallel_api_test, parallel_seed_test

from lab.autoscaling.episode import Setup
from lab.learner.autoscaling.environment import ATTACKER, ServiceGraphEnv
from lab.worlds.services.topology import default_topology, parse_topology
from shared.autoscaling.networks.features import CLIP, HOLD, STEPS
from shared.autoscaling.roles.reading import karma_roles
from shared.errors import ConfigError

SHORT = Setup(default_topology(), "mixed", 1.0, seconds=300)


@pytest.mark.parametrize("attacker", [False, True])
def test_it_passes_the_official_conformance_test(attacker):
    parallel_api_test(ServiceGraphEnv(SHORT, attacker=attacker), num_cycles=70)


def test_it_passes_the_official_seed_test():
    parallel_seed_test(lambda: ServiceGraphEnv(SHORT), num_cycles=40)


def test_observations_are_bounded_and_an_episode_is_cut_at_its_length():
    env = ServiceGraphEnv(SHORT, organisation=karma_roles())
    rng = np.random.default_rng(1)
    observations, _ = env.reset(seed=3)
    steps = 0
    while env.agents:
        for seen in observations.values():
            assert np.abs(seen["observation"]).max() <= CLIP
            assert seen["action_mask"].any()
        actions = {name: int(rng.choice(np.flatnonzero(seen["action_mask"]))) for name, seen in observations.items()}
        observations, rewards, terminated, truncated, _ = env.step(actions)
        assert all(0.0 <= reward <= 1.0 for reward in rewards.values())
        assert not any(terminated.values())
        steps += 1
    assert steps == 30
    assert all(truncated.values())
    assert env.infeasible == 0


def test_a_step_that_is_masked_is_no_step_and_counted():
    env = ServiceGraphEnv(SHORT)
    env.reset(seed=3)
    down = dict.fromkeys(env.agents, STEPS.index(-2))
    for _ in range(5):
        env.step(down)
    assert env.infeasible > 0
    assert min(env._world.fleet.asked) >= 1


def test_the_game_with_the_attacker_is_zero_sum():
    env = ServiceGraphEnv(SHORT, attacker=True)
    env.reset(seed=3)
    for _ in range(30):
        actions = {agent: 14 if agent == ATTACKER else HOLD for agent in env.agents}
        _, rewards, *_ = env.step(actions)
        own = {value for agent, value in rewards.items() if agent != ATTACKER}
        assert own == {-rewards[ATTACKER]}
    assert env._world.attack_requests > 0


def test_a_service_called_attacker_is_refused_beside_one():
    graph = parse_topology(
        "{nodes: [{name: n, cpu: 1, memory: 1Gi}], entries: {attacker: 1}, services: {attacker: {throughput: 1}}}"
    )
    with pytest.raises(ConfigError, match="a service is called 'attacker'"):
        ServiceGraphEnv(Setup(graph), attacker=True)
