"""The placement experiments as a Gymnasium environment, for anybody's learner; ours drives the pure one itself.

Observation: float32 ``[nodes, features]`` (``node_features.FEATURES``), rows of infeasible nodes zero. Action: the
node. ``info["action_mask"]``: int8 ``[nodes]``, what ``action_space.sample(mask=...)`` takes. Reward and ending are the
published ones of the objective. A choice that does not fit binds nothing, is worth -1 and ends the episode.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from lab.environments.placement import PlacementEnv, Scenario
from lab.environments.placement_rewards import REWARDS, place_and_judge
from shared.policy.deepsets.features import FEATURE_COUNT, MOST_APART, node_features

Observation = NDArray[np.float32]


class PlacementGym(gymnasium.Env[Observation, np.int64]):
    """One scenario under one objective (``ee``, ``lb`` or ``el``). ``reset(seed=...)`` decides the whole run."""

    metadata = {"render_modes": []}  # noqa: RUF012  the name and form are Gymnasium's

    def __init__(self, scenario: Scenario, objective: str) -> None:
        nodes = len(scenario.sizes)
        self.observation_space = gymnasium.spaces.Box(-MOST_APART, MOST_APART, (nodes, FEATURE_COUNT), np.float32)
        self.action_space = gymnasium.spaces.Discrete(nodes)
        self._scenario = scenario
        self._reward = REWARDS[objective]
        self._env: PlacementEnv | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None  # noqa: ARG002
    ) -> tuple[Observation, dict[str, Any]]:  # fmt: skip
        """Start a run; without ``seed`` the next one of the environment's own generator."""
        super().reset(seed=seed)
        self._env = PlacementEnv(self._scenario, int(self.np_random.integers(2**31)))
        return self._observe(self._env)

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Place the current pod on node ``action``."""
        env = self._env
        if env is None:
            raise gymnasium.error.ResetNeeded("call reset before step")
        placed, worth = place_and_judge(env, int(action), self._reward)
        while not env.finished and not env.mask().any():
            env.skip()
        observation, info = self._observe(env)
        info |= {"infeasible": not placed.placed, "latency_us": placed.latency_us}
        return observation, worth.reward, worth.terminated, env.finished, info

    def _observe(self, env: PlacementEnv) -> tuple[Observation, dict[str, Any]]:
        observation = np.zeros((len(env.pods), FEATURE_COUNT), np.float32)
        rows = env.rows()
        observation[rows] = node_features(env.seen, env.pod_class, rows)
        return observation, {"action_mask": env.mask().astype(np.int8)}
