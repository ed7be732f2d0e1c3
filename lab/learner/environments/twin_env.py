"""The twin as an environment of the usual libraries: PettingZoo (an agent per node) and Gymnasium (one that sees all).

Views of ``lab.environments.thesis``, for training tools that are not ours; our own trainers play
episodes directly. Every step is one pod. In the parallel view each agent answers accept or reject for its node and one
of those that accept gets the pod, by lot; if all reject, one of the feasible nodes gets it (``all_rejected`` counts
that). Saying yes for a node that the filters reject is no yes: it counts as ``infeasible``. In the central view the
action is the node.

Rewards are those read 15 s after a binding (thesis, section 4.1.3), so they come with the step in which that time is
reached; with the last step come all that are left. An episode truly ends when the last pod is placed.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from lab.environments.thesis import ThesisSettings
from lab.worlds.placement.thesis_session import Session
from shared.errors import ConfigError
from shared.policy.marl.features import CLIP, FEATURES, Features
from shared.policy.marl.reward import balance_reward, band_reward

REWARDS = {"band": band_reward, "balance": balance_reward}
Observation = dict[str, NDArray[Any]]


class _Episode:
    """A session and the rewards that have come due; what both views share."""

    def __init__(self, workload: str, reward: str, settings: ThesisSettings, seed: int) -> None:
        self.session = Session.of(workload, seed, settings)
        self.rng = np.random.default_rng([seed, 11])
        self._reward = REWARDS[reward]

    def place(self, node: int) -> NDArray[np.float64]:
        """Bind the pending pod; what every node's agent has earned meanwhile, [nodes]."""
        env = self.session.env
        self.session.place(node)
        earned = np.zeros(env.settings.nodes)
        for reading in env.readings:
            earned += self._reward(reading.utilisation)
        env.readings.clear()
        return earned

    def draw(self, allowed: NDArray[np.bool_]) -> int:
        return int(self.rng.choice(np.flatnonzero(allowed)))

    def features(self) -> Features:
        nodes = self.session.env.settings.nodes
        return np.zeros((nodes, len(FEATURES)), np.float32) if self.session.over else self.session.features()

    def mask(self) -> NDArray[np.bool_]:
        nodes = self.session.env.settings.nodes
        return np.zeros(nodes, np.bool_) if self.session.over else self.session.mask


def _checked(reward: str, settings: ThesisSettings | None) -> ThesisSettings:
    if reward not in REWARDS:
        raise ConfigError(f"reward: {reward!r} is not known; choose one of {', '.join(REWARDS)}")
    settings = settings or ThesisSettings(readings=True)
    if not settings.readings:
        raise ConfigError("settings.readings: False gives no rewards; set it to True")
    return settings


class NodeAgentsEnv(ParallelEnv[str, Observation, int]):  # type: ignore[misc]
    """One agent per node: ``observation`` float32 [features] (``marl_features.FEATURES``) and ``action_mask`` int8 [2]
    (reject is always allowed), actions 0 reject and 1 accept."""

    metadata: ClassVar[dict[str, Any]] = {"name": "conclave_thesis_v1", "render_modes": [], "is_parallelizable": True}

    def __init__(
        self, workload: str = "uniform", *, reward: str = "balance", settings: ThesisSettings | None = None
    ) -> None:
        self.settings = _checked(reward, settings)
        self.workload, self.reward, self.render_mode = workload, reward, None
        self.possible_agents = [f"node_{row}" for row in range(self.settings.nodes)]
        self.agents: list[str] = []
        self.all_rejected = self.infeasible = 0
        self._seeds = np.random.default_rng()
        self._episode: _Episode | None = None

    @functools.cache  # noqa: B019  # PettingZoo: the same space object for an agent, always
    def observation_space(self, agent: str) -> spaces.Dict:  # noqa: ARG002
        return spaces.Dict(
            {
                "observation": spaces.Box(-CLIP, CLIP, (len(FEATURES),), np.float32),
                "action_mask": spaces.Box(0, 1, (2,), np.int8),
            }
        )

    @functools.cache  # noqa: B019
    def action_space(self, agent: str) -> spaces.Discrete:  # noqa: ARG002
        return spaces.Discrete(2)

    def reset(
        self,
        seed: int | None = None,
        options: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        """Begin the episode of ``seed``; None: of one drawn from the last seed given."""
        if seed is not None:
            self._seeds = np.random.default_rng(seed)
        self._episode = _Episode(self.workload, self.reward, self.settings, int(self._seeds.integers(2**31)))
        self.agents = list(self.possible_agents)
        self.all_rejected = self.infeasible = 0
        return self._observations(), {agent: {} for agent in self.agents}

    def step(
        self, actions: dict[str, int]
    ) -> tuple[dict[str, Observation], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """Everybody answers, one node gets the pod, time runs on to the next one."""
        episode = self._episode
        if episode is None or not self.agents:
            raise ConfigError("step: no episode is under way; call reset first")
        mask = episode.mask()
        yes = np.array([actions[agent] == 1 for agent in self.agents])
        self.infeasible += int((yes & ~mask).sum())
        willing = yes & mask
        self.all_rejected += not willing.any()
        earned = episode.place(episode.draw(willing if willing.any() else mask))
        over = episode.session.over
        agents = self.agents
        observations = self._observations()
        if over:
            self.agents = []
        return (
            observations,
            {agent: float(earned[row]) for row, agent in enumerate(agents)},
            dict.fromkeys(agents, over),
            dict.fromkeys(agents, False),
            {agent: {} for agent in agents},
        )

    def render(self) -> None:
        """There is nothing to see; the report draws episodes."""

    def close(self) -> None:
        """Nothing is held."""

    def _observations(self) -> dict[str, Observation]:
        assert self._episode is not None
        rows, mask = self._episode.features(), self._episode.mask()
        return {
            agent: {"observation": rows[row], "action_mask": np.array([1, mask[row]], np.int8)}
            for row, agent in enumerate(self.agents)
        }


class CentralEnv(gymnasium.Env[Features, np.int64]):
    """One decision maker: observation float32 [nodes, features], action the node. ``info["action_mask"]`` int8 [nodes].

    A node that the filters reject is replaced by a feasible one, by lot, and ``info["infeasible"]`` says so.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  # gymnasium declares it per instance

    def __init__(
        self, workload: str = "uniform", *, reward: str = "balance", settings: ThesisSettings | None = None
    ) -> None:
        self.settings = _checked(reward, settings)
        self.workload, self.reward, self.render_mode = workload, reward, None
        self.observation_space = spaces.Box(-CLIP, CLIP, (self.settings.nodes, len(FEATURES)), np.float32)
        self.action_space = spaces.Discrete(self.settings.nodes)
        self._episode: _Episode | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Features, dict[str, Any]]:
        """Begin the episode of ``seed``; None: of one drawn from the last seed given."""
        super().reset(seed=seed, options=options)
        self._episode = _Episode(self.workload, self.reward, self.settings, int(self.np_random.integers(2**31)))
        return self._episode.features(), self._info(infeasible=False)

    def step(self, action: np.int64) -> tuple[Features, float, bool, bool, dict[str, Any]]:
        """Bind to the node and go on; the reward is the mean over nodes."""
        episode = self._episode
        if episode is None or episode.session.over:
            raise ConfigError("step: no episode is under way; call reset first")
        mask = episode.mask()
        feasible = bool(mask[int(action)])
        earned = episode.place(int(action) if feasible else episode.draw(mask))
        return (
            episode.features(), float(earned.mean()), episode.session.over, False, self._info(infeasible=not feasible)
        )  # fmt: skip

    def _info(self, *, infeasible: bool) -> dict[str, Any]:
        assert self._episode is not None
        return {"action_mask": self._episode.mask().astype(np.int8), "infeasible": infeasible}
