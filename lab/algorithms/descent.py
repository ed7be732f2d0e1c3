"""One step down a gradient, as every algorithm here takes it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from shared.errors import ConclaveError


class TrainingDiverged(ConclaveError):
    """A loss or a gradient stopped being finite: this run's weights are worthless."""

    code = "training_diverged"


@dataclass(frozen=True, slots=True)
class UpdateStats:
    """Of one gradient step: the loss, the mean value learned (of the actions taken), gradient norm before clipping."""

    loss: float
    q_mean: float
    gradient_norm: float

    def scalars(self) -> dict[str, float]:
        """By the names that curves and TensorBoard show them under."""
        return {"train/loss": self.loss, "train/q_mean": self.q_mean, "train/gradient_norm": self.gradient_norm}


def descend(
    loss: Tensor, optimiser: torch.optim.Optimizer, parts: Iterable[Iterable[nn.Parameter]], most: float, name: str
) -> float:
    """One step of ``optimiser``; the gradient of each of ``parts`` is cut to the norm ``most`` by itself. Gives the
    greatest norm before that. Raises ``TrainingDiverged``: the loss or a gradient of ``name`` is not finite."""
    optimiser.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)
    worth = float(loss.detach())
    norms = [float(nn.utils.clip_grad_norm_(part, most)) for part in parts]
    if not all(map(math.isfinite, (worth, *norms))):  # each: the greatest of numbers and NaN may be a number
        told = ", ".join(map(str, norms))
        raise TrainingDiverged(
            f"{name}: the loss is {worth}, the gradient's norm {told}; lower learning_rate or look at the rewards"
        )
    optimiser.step()
    return max(norms)
