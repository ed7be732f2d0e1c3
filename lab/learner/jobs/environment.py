"""Training jobs as a Gymnasium environment, for anybody's learner: ``JobsEpisode`` in Gymnasium's form.

Observation: float32 ``[window, features]`` (``episodes.FEATURES``), rows of empty slots zero. Action: the slot that
gets a worker more, or the window's size to end the round. ``info["action_mask"]``: int8
``[window + 1]``, what ``action_space.sample(mask=...)`` takes; an action outside it ends the episode with -1. Each
``reset`` draws a workload.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from lab.jobs.clusters import JobsCluster
from lab.jobs.episodes import FEATURES, JobsEpisode
from lab.worlds.training.simulation import SimulatedTrainingJob, SimulationSettings

Observation = NDArray[np.float32]
Draw = Callable[[int], Sequence[SimulatedTrainingJob]]
"""The jobs of a workload, by its seed."""


class JobsGym(gymnasium.Env[Observation, np.int64]):
    """One cluster; ``reset(seed=...)`` decides the whole episode."""

    metadata = {"render_modes": []}  # noqa: RUF012  the name and form are Gymnasium's

    def __init__(
        self, draw: Draw, cluster: JobsCluster, *, window: int = 32, settings: SimulationSettings | None = None
    ) -> None:
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (window, len(FEATURES)), np.float32)
        self.action_space = gymnasium.spaces.Discrete(window + 1)
        self._draw, self._cluster, self._window = draw, cluster, window
        self._settings = settings if settings is not None else SimulationSettings()
        self._episode: JobsEpisode | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None  # noqa: ARG002
    ) -> tuple[Observation, dict[str, Any]]:  # fmt: skip
        """Start an episode; without ``seed`` the next one of the environment's own generator."""
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(2**31))
        self._episode = JobsEpisode(
            self._draw(drawn), self._cluster, window=self._window, settings=self._settings, seed=drawn
        )
        return self._episode.features(), self._info(self._episode)

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Give one worker more, or end the round."""
        episode = self._episode
        if episode is None:
            raise gymnasium.error.ResetNeeded("call reset before step")
        if not episode.mask()[int(action)]:
            return episode.features(), -1.0, True, False, self._info(episode) | {"not_allowed": True}
        reward = episode.give(int(action))
        info = self._info(episode)
        if episode.over:
            ended = [one.completion_s for one in episode.simulation.outcomes]
            info["mean_completion_s"] = float(np.mean(ended))
        return episode.features(), float(reward), episode.over, False, info

    @staticmethod
    def _info(episode: JobsEpisode) -> dict[str, Any]:
        return {"action_mask": episode.mask(), "now_s": episode.simulation.now}


def beside_each_other(
    count: int, draw: Draw, cluster: JobsCluster, *, window: int = 32
) -> gymnasium.vector.AsyncVectorEnv:
    """So many environments, each in a process of its own; ``draw`` is of a module's top level."""
    return gymnasium.vector.AsyncVectorEnv([partial(JobsGym, draw, cluster, window=window) for _ in range(count)])
