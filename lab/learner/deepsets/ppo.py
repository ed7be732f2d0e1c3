"""Proximal policy optimisation for ``ee``, ``lb`` and ``el``: the same episodes, rewards, network and validation as
deep Q-learning has (``training.py``). Actions are drawn by the policy itself, nothing else explores. ``ee`` and ``el``
learn by it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lab.algorithms.ppo import PpoLearner, PpoSettings
from lab.environments.own_reward import OwnReward
from lab.learner.deepsets.network import ABSENT, DeepSetsQ
from lab.learner.deepsets.settings import DeepSetsSettings
from lab.learner.deepsets.training import Arrays, PlacementRun, first_of, observe
from lab.learner.training.runner import TrainingReport
from lab.worlds.placement.captured_cluster import CapturedCluster
from shared.policy.deepsets.features import FEATURE_COUNT


class SetValue(nn.Module):
    """A value of the set: a Deep Sets network whose members' answers are pooled by their greatest."""

    def __init__(self, sizes: tuple[int, ...], *, seed: int) -> None:
        super().__init__()
        self.body = DeepSetsQ((*sizes, 1), seed=seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed + 1)
            self.value = nn.Linear(sizes[-1], 1)

    def forward(self, s: Tensor, present: Tensor) -> Tensor:
        """``[batch]``; 0 where nobody is present."""
        pooled = self.body.hidden(s).masked_fill(~present[..., None], ABSENT).amax(dim=-2)
        value: Tensor = self.value(pooled).squeeze(-1)
        return torch.where(present.any(-1), value, torch.zeros_like(value))


class PpoRun(PlacementRun):
    """One run of proximal policy optimisation and all its state."""

    kept = ("decisions", "episode", "best_regret", "best")

    def __init__(
        self,
        settings: DeepSetsSettings,
        own: OwnReward | None = None,
        cluster: CapturedCluster | None = None,
        first: Arrays | None = None,
    ) -> None:
        """``own``: the reward that ``settings`` names, where they name one."""
        sizes = (FEATURE_COUNT, *settings.hidden)
        self.actor = DeepSetsQ((*sizes, 1), seed=settings.seed)
        if settings.goes_on:
            self.actor.load(first_of(settings, first))
        super().__init__(settings, own, self.actor.export(), cluster, first)
        critic = SetValue(sizes, seed=settings.seed + 1)
        self._learner = PpoLearner(self.actor, critic, settings.ppo or PpoSettings())
        self._rng = np.random.default_rng((settings.seed, 3))

    def run(self) -> Iterator[TrainingReport]:
        """Roll-out by roll-out to the end; stop at any report and go on later."""
        if (first := self.begin()) is not None:
            yield first
        while not self.finished:
            before = self.decisions
            steps: list[dict[str, Any]] = []
            while self.decisions < before + self._learner.settings.horizon:
                steps += self._episode()
            rolled = {name: np.array([step[name] for step in steps]) for name in steps[0]}
            scalars = {"train/reward": float(rolled["r_t"].mean()) / self.settings.reward_scale}
            scalars |= self._learner.update(rolled, self._rng).scalars()
            yield self.report(before, scalars, self.actor.export)

    def get_state(self) -> dict[str, Any]:
        """Everything but the settings."""
        kept = {name: copy.copy(getattr(self, name)) for name in self.kept}
        return {"learner": self._learner.get_state(), "rng": self._rng.bit_generator.state, **kept}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from ``get_state``'s answer."""
        self._learner.set_state(state["learner"])
        self._rng.bit_generator.state = state["rng"]
        for name in self.kept:
            setattr(self, name, copy.copy(state[name]))

    def _episode(self) -> list[dict[str, Any]]:
        """Its transitions; the last placement has none, for what came next is not known."""
        settings = self.settings
        env = self.next_env()
        found: list[dict[str, Any]] = []
        state, mask = observe(env)
        while mask.any():
            action = self._learner.act(state, mask, self._rng)
            worth = self.place(env, action)
            if env.finished:
                break
            following, following_mask = observe(env)
            found.append(
                {
                    "s_tm1": state, "a_tm1": np.int64(action), "r_t": np.float32(worth.reward * settings.reward_scale),
                    "discount_t": np.float32(0.0 if worth.terminated else settings.discount), "s_t": following,
                    "mask_tm1": mask, "mask_t": following_mask, "last": False,
                }
            )  # fmt: skip
            state, mask = following, following_mask
        if found:
            found[-1]["last"] = True
        return found
