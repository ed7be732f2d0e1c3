"""``el`` ranks nodes alike whether one agent sees all of them or several see some: its scores must compare."""

from __future__ import annotations

import numpy as np
import pytest

from lab.environments.placement import PlacementEnv
from lab.environments.placement_rewards import REWARDS
from lab.environments.placement_scenarios import moving_latency
from lab.worlds.placement.placement_rollout import Decider, roll_out
from shared.policy.deepsets.policy import DeepSetsPolicy
from shared.policy.observation import Observation, Verdicts
from shared.policy.weights import shipped
from shared.scheduling.state.node_table import IntArray


def among(agents: int, *, shift: float = 0.0) -> Decider:
    """Each agent ranks every so-manieth node; ``shift``: its scores' own level."""
    policy, rng = DeepSetsPolicy(shipped("el")), np.random.default_rng(1)

    def decide(env: PlacementEnv, rows: IntArray) -> Verdicts:
        score, accept = np.empty(len(rows)), np.empty(len(rows), np.bool_)
        for agent in range(agents):
            its = np.flatnonzero(rows % agents == agent)
            found = policy.decide(Observation(env.seen, env.pod_class, rows[its]), rng)
            score[its] = found.score + shift * agent
            accept[its] = True if found.accept is None else found.accept
        return Verdicts(score, accept)

    return decide


def reward(decider: Decider) -> float:
    return roll_out(moving_latency(8, 120), 1003, decider, REWARDS["el"]).reward


@pytest.mark.parametrize("agents", [2, 8])
def test_shared_out_among_agents_it_earns_what_one_that_sees_all_nodes_earns(agents):
    assert reward(among(agents)) > 0.99 * reward(among(1))


def test_agents_whose_scores_had_levels_of_their_own_would_earn_less():
    assert reward(among(8, shift=5.0)) < 0.9 * reward(among(1))
