"""Proximal policy optimisation for ``ee``, ``lb`` and ``el``: the same episodes, rewards, network and validation as
``training.py``, so that the two can be compared. Not what ships."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from services.learner.deepsets.network import ABSENT, DeepSetsQ
from services.learner.deepsets.settings import DeepSetsSettings
from services.learner.deepsets.training import observe, reward_less_best, training_env, validated
from services.learner.training.ppo import PpoLearner, PpoSettings
from services.learner.training.runner import Report
from shared.experiments.environments.placement_rewards import REWARDS
from shared.policy.deepsets.features import FEATURE_COUNT, FEATURES
from shared.policy.weights import Card, WeightsFile


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
        pooled = self.body.hidden(s, present).masked_fill(~present[..., None], ABSENT).amax(dim=-2)
        value: Tensor = self.value(pooled).squeeze(-1)
        return torch.where(present.any(-1), value, torch.zeros_like(value))


class PpoRun:
    """One training run: ``settings`` as of ``DeepSetsRun``, of which discount, scale, reward and lengths count."""

    def __init__(self, settings: DeepSetsSettings, ppo: PpoSettings | None = None) -> None:
        self.settings = settings
        sizes = (FEATURE_COUNT, *settings.hidden)
        self._actor = DeepSetsQ((*sizes, 1), seed=settings.seed)
        self._learner = PpoLearner(self._actor, SetValue(sizes, seed=settings.seed + 1), ppo or PpoSettings())
        self._rng = np.random.default_rng((settings.seed, 3))
        self.decisions = self.episode = 0
        self.best_regret = float("inf")
        self.best = self._actor.export()

    def run(self) -> Iterator[Report]:
        """Roll-out by roll-out to the end; a report after each."""
        while self.decisions < self.settings.decisions:
            before, due = self.decisions, self.settings.validate_every
            parts: list[dict[str, Any]] = []
            while self.decisions < before + self._learner.settings.horizon:
                parts += self._episode()
            rolled = {name: np.array([part[name] for part in parts]) for name in parts[0]}
            scalars = self._learner.update(rolled, self._rng).scalars()
            validated_now = ""
            if before // due != self.decisions // due or self.decisions >= self.settings.decisions:
                arrays = self._actor.export()
                regret = validated(self.settings.policy, arrays)
                validated_now = f"validation regret {regret:.4f}"
                if regret < self.best_regret:
                    self.best_regret, self.best = regret, arrays
            yield Report(self.decisions, scalars, validated_now, saveable=False)

    def weights(self, **card: Any) -> WeightsFile:
        """The best validated weights, with what the caller adds to their card."""
        return WeightsFile(self.best, Card(policy=self.settings.policy, features=list(FEATURES), **card))

    def _episode(self) -> list[dict[str, Any]]:
        settings = self.settings
        _, env = training_env(settings, 4, self.episode)
        self.episode += 1
        found: list[dict[str, Any]] = []
        state, mask = observe(env)
        while mask.any():
            action = self._learner.act(state, mask, self._rng)
            reward, terminated = reward_less_best(env, action, REWARDS[settings.policy], settings.against_best)
            self.decisions += 1
            if env.finished:  # cut, not ended: what would have come next is not known
                break
            following, following_mask = observe(env)
            found.append(
                {
                    "s_tm1": state, "a_tm1": np.int64(action), "r_t": np.float32(reward * settings.reward_scale),
                    "discount_t": np.float32(0.0 if terminated else settings.discount), "s_t": following,
                    "mask_tm1": mask, "mask_t": following_mask, "last": False,
                }
            )  # fmt: skip
            state, mask = following, following_mask
        if found:
            found[-1]["last"] = True
        return found
