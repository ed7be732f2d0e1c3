"""Proximal policy optimisation with masks: advantages, and some epochs of clipped steps over one roll-out.

The policy is a softmax over the allowed actions. Sources: Schulman et al. 2017 (PPO), Schulman et al. 2016 (GAE), Huang
and Ontanon 2022 (masks).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lab.learner.training.dqn import TrainingDiverged, UpdateStats

FloatArray = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class PpoSettings:
    """The published defaults (Schulman et al. 2017, table 3), with Adam's step of our other learners."""

    learning_rate: float = 1e-3
    horizon: int = 512
    """Decisions between two updates, at least."""
    epochs: int = 4
    batch_size: int = 64
    clip: float = 0.2
    trace: float = 0.95
    """Lambda of the advantages."""
    entropy: float = 0.01
    value_weight: float = 0.5
    gradient_norm: float = 0.5


def advantages(
    r_t: FloatArray, discount_t: FloatArray, value_tm1: FloatArray, value_t: FloatArray, last: NDArray[np.bool_],
    *, trace: float,
) -> FloatArray:  # fmt: skip
    """Generalised advantages ``[steps]``. ``last``: nothing of the same episode follows this step."""
    found = np.zeros_like(r_t)
    following = np.float32(0)
    for step in range(len(r_t) - 1, -1, -1):
        error = r_t[step] + discount_t[step] * value_t[step] - value_tm1[step]
        following = error + (0 if last[step] else discount_t[step] * trace * following)
        found[step] = following
    return found


class PpoLearner:
    """An actor that gives a logit per action, a critic that gives a value, and their optimiser.

    Both are modules ``forward(s, mask)``: ``[batch, actions]`` and ``[batch]``.
    """

    def __init__(self, actor: nn.Module, critic: nn.Module, settings: PpoSettings) -> None:
        self.actor = actor
        self.critic = critic
        self.settings = settings
        self._parameters = [*actor.parameters(), *critic.parameters()]
        self._optimiser = torch.optim.Adam(self._parameters, lr=settings.learning_rate)

    def act(self, s: FloatArray, mask: NDArray[np.bool_], rng: np.random.Generator) -> int:
        """One action drawn by the policy for one state."""
        with torch.no_grad():
            chance = self._log_chance(torch.from_numpy(s)[None], torch.from_numpy(mask)[None])[0].exp().numpy()
        return int(rng.choice(len(chance), p=chance.astype(np.float64) / float(chance.sum(dtype=np.float64))))

    def update(self, rolled: Mapping[str, NDArray[Any]], rng: np.random.Generator) -> UpdateStats:
        """Learn from one roll-out: the fields of a DQN transition with masks, and ``last``. ``TrainingDiverged``."""
        settings = self.settings
        t = {name: torch.from_numpy(array) for name, array in rolled.items()}
        with torch.no_grad():
            before = self._chosen(t, self._log_chance(t["s_tm1"], t["mask_tm1"]))
            value_tm1, value_t = self.critic(t["s_tm1"], t["mask_tm1"]), self.critic(t["s_t"], t["mask_t"])
        values = value_tm1.numpy(), value_t.numpy()
        gain = advantages(rolled["r_t"], rolled["discount_t"], *values, rolled["last"], trace=settings.trace)
        wanted = torch.from_numpy(gain) + value_tm1
        better = torch.from_numpy((gain - gain.mean()) / (gain.std() + 1e-8))
        return self._epochs(t, before, better, wanted, rng)

    def _epochs(
        self, t: Mapping[str, Tensor], before: Tensor, better: Tensor, wanted: Tensor, rng: np.random.Generator
    ) -> UpdateStats:
        stats = UpdateStats(0.0, float(wanted.mean()), 0.0)
        for _ in range(self.settings.epochs):
            order = rng.permutation(len(wanted))
            for first in range(0, len(order), self.settings.batch_size):
                part = torch.from_numpy(order[first : first + self.settings.batch_size])
                stats = self._step(
                    {name: tensor[part] for name, tensor in t.items()}, before[part], better[part], wanted[part]
                )
        return stats

    def get_state(self) -> dict[str, Any]:
        """Both networks and the optimiser."""
        return {
            "actor": self.actor.state_dict(),
            "critic": self.critic.state_dict(),
            "optimiser": self._optimiser.state_dict(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from ``get_state``'s answer."""
        self.actor.load_state_dict(state["actor"])
        self.critic.load_state_dict(state["critic"])
        self._optimiser.load_state_dict(state["optimiser"])

    def _step(self, t: Mapping[str, Tensor], before: Tensor, better: Tensor, wanted: Tensor) -> UpdateStats:
        settings = self.settings
        log_chance = self._log_chance(t["s_tm1"], t["mask_tm1"])
        ratio = (self._chosen(t, log_chance) - before).exp()
        clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
        policy = -torch.minimum(ratio * better, clipped * better).mean()
        entropy = -(log_chance.exp() * log_chance.masked_fill(~t["mask_tm1"], 0.0)).sum(1).mean()
        value = nn.functional.mse_loss(self.critic(t["s_tm1"], t["mask_tm1"]), wanted)
        loss = policy + settings.value_weight * value - settings.entropy * entropy
        self._optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        norm = float(nn.utils.clip_grad_norm_(self._parameters, settings.gradient_norm))
        if not (np.isfinite(float(loss.detach())) and np.isfinite(norm)):
            raise TrainingDiverged(f"ppo: loss {float(loss.detach())}, gradient norm {norm}; lower learning_rate")
        self._optimiser.step()
        return UpdateStats(float(loss.detach()), float(wanted.mean()), norm)

    def _chosen(self, t: Mapping[str, Tensor], log_chance: Tensor) -> Tensor:
        """The logarithm of the chance of what was done, by those of all actions."""
        return log_chance.gather(1, t["a_tm1"][:, None]).squeeze(1)

    def _log_chance(self, s: Tensor, mask: Tensor) -> Tensor:
        logits: Tensor = self.actor(s, mask)
        return logits.masked_fill(~mask, -torch.inf).log_softmax(dim=1)
