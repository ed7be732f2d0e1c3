"""The attacker that trains along with ``karma``: a network of its own, learned by PPO from the same episodes, zero-sum.

It sees the mean of what the services' agents see and what its budget leaves, and takes one of the actions of
``lab.worlds.services.attacker``, less those that the operator's terms forbid. Each earns what the other loses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lab.algorithms.descent import descend
from lab.algorithms.ppo import Evaluated, Weighing, advantages_of_cut, entropy_of, learn, masked, normalised, taken
from lab.learner.autoscaling.rollout import ATTACK_INPUTS, AttackPlan, AttackRollout
from lab.learner.marl.networks import LinearStack
from lab.worlds.services.attacker import ACTIONS, AttackerTerms

HIDDEN = (32, 32)
TURN_STREAM = 3


class Opponent:
    """The attacker and its learning. ``seed``: of the run."""

    def __init__(self, terms: AttackerTerms, seed: int, *, learning_rate: float, name: str) -> None:
        self.terms, self._seed, self._name = terms, seed, f"{name} attacker seed {seed}"
        self._actor = LinearStack((ATTACK_INPUTS, *HIDDEN, ACTIONS), seed=seed + 2)
        self._critic = LinearStack((ATTACK_INPUTS, *HIDDEN, 1), seed=seed + 3)
        self._parts = [list(self._actor.parameters()), list(self._critic.parameters())]
        self._optimiser = torch.optim.Adam([one for part in self._parts for one in part], lr=learning_rate, eps=1e-5)
        self._rng = np.random.default_rng([seed, 4])

    def plan(self, number: int) -> AttackPlan | None:
        """The attacker of training episode ``number``; None: it does not play there."""
        turn = np.random.default_rng([self._seed, TURN_STREAM, number]).random()
        return AttackPlan(self._actor.arrays(), self.terms) if turn < self.terms.share else None

    def learn(
        self,
        played: Sequence[AttackRollout],
        settings: Weighing,
        *,
        discount: float,
        trace: float,
        max_gradient: float,
        batch: int,
    ) -> dict[str, float]:
        """Clipped updates from a round's episodes; its scalars by name, none where it did not play."""
        if not played:
            return {}
        with torch.no_grad():
            values = [self._critic(torch.from_numpy(one.rows)).squeeze(-1).double().numpy() for one in played]
        gains = [
            advantages_of_cut(one.rewards[:, None], value[:, None], discount, trace)[:, 0]
            for one, value in zip(played, values, strict=True)
        ]
        rows, masks, actions = (
            torch.from_numpy(np.concatenate([getattr(one, name) for one in played]))
            for name in ("rows", "masks", "taken")
        )
        log_p = torch.from_numpy(np.concatenate([one.log_p for one in played])).float()
        returns = [(gain + value).astype(np.float32) for gain, value in zip(gains, values, strict=True)]
        wanted = torch.from_numpy(np.concatenate(returns))
        advantage = normalised(torch.from_numpy(np.concatenate(gains).astype(np.float32)))

        def judge(at: Tensor) -> Evaluated:
            log_all = masked(self._actor(rows[at]), masks[at])
            return Evaluated(taken(log_all, actions[at]), entropy_of(log_all), self._critic(rows[at]).squeeze(-1))

        def step(loss: Tensor) -> float:
            return descend(loss, self._optimiser, self._parts, max_gradient, self._name)

        learn(judge, log_p, advantage, wanted, settings, step, self._rng, batch=batch)
        return {
            "train/attack_reward": float(np.mean([one.rewards.mean() for one in played])),
            "train/attacks": float(np.mean([(one.taken > 0).mean() for one in played])),
        }

    def get_state(self) -> dict[str, Any]:
        """Everything but the terms."""
        return {
            "actor": self._actor.state_dict(), "critic": self._critic.state_dict(),
            "optimiser": self._optimiser.state_dict(), "rng": self._rng.bit_generator.state,
        }  # fmt: skip

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from ``get_state``'s answer."""
        self._actor.load_state_dict(state["actor"])
        self._critic.load_state_dict(state["critic"])
        self._optimiser.load_state_dict(state["optimiser"])
        self._rng.bit_generator.state = state["rng"]
