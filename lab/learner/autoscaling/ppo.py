"""Proximal policy optimisation as arrays and tensors: advantages, and the loss of a batch. No network, no episode.

Sources: Schulman et al. 2016 (generalised advantage estimation), 2017 (the clipped surrogate), Huang and Ontanon 2022
(masks of actions that cannot be taken).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lab.learner.training.dqn import TrainingDiverged

FORBIDDEN = -1e9


def advantages(
    rewards: NDArray[np.float64], values: NDArray[np.float64], discount: float, trace: float
) -> NDArray[np.float64]:
    """Generalised advantages [decisions, agents] of ``rewards`` and ``values`` alike. An episode is cut, not over: what
    would have come after its last decision is valued as that one's state."""
    following = np.concatenate((values[1:], values[-1:]))
    errors = rewards + discount * following - values
    found = np.zeros_like(rewards)
    running = np.zeros(rewards.shape[1])
    for at in range(len(rewards) - 1, -1, -1):
        running = errors[at] + discount * trace * running
        found[at] = running
    return found


def normalised(advantage: Tensor) -> Tensor:
    """With mean 0 and standard deviation 1."""
    return (advantage - advantage.mean()) / (advantage.std() + 1e-6)


def surrogate(
    logits: Tensor, masks: Tensor, taken: Tensor, log_p: Tensor, advantage: Tensor, clip: float
) -> tuple[Tensor, Tensor, float]:
    """(clipped gain, entropy, share of actions clipped) of a batch: ``logits`` and ``masks`` [..., actions], the rest
    [...]; ``log_p``: of the actions when they were taken."""
    log_all = torch.log_softmax(logits.masked_fill(~masks, FORBIDDEN), dim=-1)
    ratio = torch.exp(log_all.gather(-1, taken[..., None]).squeeze(-1) - log_p)
    clipped = ratio.clamp(1 - clip, 1 + clip)
    gain = torch.minimum(ratio * advantage, clipped * advantage).mean()
    entropy = -(log_all.exp() * log_all.clamp_min(-50.0)).sum(-1).mean()
    return gain, entropy, float((ratio != clipped).float().mean())


def flat(parts: list[NDArray[Any]]) -> Tensor:
    """[all decisions of all agents of all episodes, ...]."""
    return torch.from_numpy(np.concatenate([part.reshape(-1, *part.shape[2:]) for part in parts]))


def check_finite(loss: Tensor, run: str) -> None:
    """Raises ``TrainingDiverged`` where a loss is no number."""
    if not bool(torch.isfinite(loss)):
        raise TrainingDiverged(f"{run}: the loss is {float(loss)}; lower the learning rate")
