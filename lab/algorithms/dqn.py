"""Deep Q-learning with masks: action choice, targets and one gradient step, for any Q-network.

The mask of allowed actions is used in both places where a maximum is taken: when acting, and in the bootstrap of the
next state; a target that looks at forbidden actions learns values nobody can collect. A state with no allowed action
is worth 0. Names carry time: ``s_tm1, a_tm1, r_t, discount_t, s_t``.

Sources: Mnih et al. 2015 (replay, target network), van Hasselt et al. 2016 (Double DQN), Huang and Ontanon 2022
(invalid-action masking), Dabney et al. 2018 (quantile regression). A network is a module ``forward(s, present) -> q``:
``s`` float32 ``[batch, *observation]``, ``present`` bool ``[batch, members]`` or None (not a set), ``q`` float32
``[batch, actions]``.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lab.algorithms.descent import UpdateStats, descend

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float32]
QUANTILES = 21
"""Of the return, where its distribution is learned."""


@dataclass(frozen=True, slots=True)
class DqnLearnerSettings:
    """What one DQN run is set to."""

    learning_rate: float = 1e-3
    """Adam's step size."""
    batch_size: int = 64
    """Transitions per gradient step."""
    target_period: int = 100
    """Gradient steps between copies of the online into the target network."""
    double: bool = True
    """The online network chooses the next action, the target network values it (else the target does both)."""
    mask_bootstrap: bool = True
    """Only allowed actions of the next state count. Off only to show what that costs."""
    gradient_norm: float = 10.0
    """Gradients are scaled down to at most this norm."""
    huber_delta: float = 1.0
    """TD errors beyond this count linearly."""


def epsilon_greedy(
    q: FloatArray, mask: BoolArray | None, epsilon: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Actions ``[batch]``: uniformly among the allowed ones with probability ``epsilon``, else the best allowed one.

    ``q`` ``[batch, actions]``, ``mask`` alike (None: all allowed). Raises ``ValueError`` on a row without any.
    """
    allowed = np.ones(q.shape, np.bool_) if mask is None else mask
    if not allowed.any(axis=1).all():
        raise ValueError("mask: a state without any allowed action cannot be acted in")
    random = rng.random(len(q)) < epsilon
    preference = np.where(random[:, None], rng.random(q.shape), q)
    actions: NDArray[np.int64] = np.where(allowed, preference, -np.inf).argmax(axis=1)
    return actions


def bootstrap_value(
    q_t_online: Tensor, q_t_target: Tensor, mask_t: Tensor | None, *, double: bool = True
) -> Tensor:  # fmt: skip
    """Value ``[batch]`` of the next state: the best *allowed* action's, 0 where none is allowed.

    Double DQN: the action is the online network's best, the value the target network's.
    """
    chooser = q_t_online if double else q_t_target
    if mask_t is None:
        return q_t_target.gather(1, chooser.argmax(dim=1, keepdim=True)).squeeze(1)
    chosen = chooser.masked_fill(~mask_t, -torch.inf).argmax(dim=1, keepdim=True)
    value = q_t_target.gather(1, chosen).squeeze(1)
    return torch.where(mask_t.any(dim=1), value, torch.zeros_like(value))


def quantile_loss(chosen: Tensor, wanted: Tensor) -> Tensor:
    """The quantile Huber loss of ``[batch, quantiles]`` each, summed over the quantiles of ``chosen`` and averaged over
    those of ``wanted``."""
    error = wanted[:, None, :] - chosen[:, :, None]
    size = nn.functional.huber_loss(
        chosen[:, :, None].expand_as(error), wanted[:, None, :].expand_as(error), reduction="none"
    )
    middle = (torch.arange(chosen.shape[1]) + 0.5) / chosen.shape[1]
    weight = (middle[None, :, None] - (error.detach() < 0).float()).abs()
    return (weight * size).sum(dim=1).mean()


class DqnLearner:
    """An online and a target network, and the optimiser between them."""

    name = "dqn"
    """Of errors."""

    def __init__(self, network: nn.Module, settings: DqnLearnerSettings) -> None:
        self.settings = settings
        self.online = network
        self.target = copy.deepcopy(network)
        self.target.requires_grad_(requires_grad=False)
        self.updates = 0
        self._optimiser = torch.optim.Adam(self.online.parameters(), lr=settings.learning_rate)
        self._loss = nn.HuberLoss(delta=settings.huber_delta)

    @property
    def learning_rate(self) -> float:
        """Adam's present step size."""
        return float(self._optimiser.param_groups[0]["lr"])

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._optimiser.param_groups[0]["lr"] = value

    def q_values(self, s: FloatArray, present: BoolArray | None = None) -> FloatArray:
        """Q ``[batch, actions]`` of the online network, without gradients."""
        with torch.no_grad():
            q = self.online(torch.from_numpy(s), None if present is None else torch.from_numpy(present))
        values: FloatArray = q.numpy()
        return values

    def update(self, batch: Mapping[str, NDArray[Any]]) -> UpdateStats:
        """One gradient step on a replay batch. Raises ``TrainingDiverged`` when it is not finite.

        Loss: Huber(Q(s_tm1, a_tm1) - (r_t + discount_t * value(s_t))).
        """
        tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
        a_tm1 = tensors["a_tm1"]
        q_tm1 = self.online(tensors["s_tm1"], tensors.get("present_tm1"))
        assert q_tm1.ndim == 2, f"the network gives {tuple(q_tm1.shape)}, not [batch, actions]"
        chosen = q_tm1.gather(1, a_tm1[:, None]).squeeze(1)
        with torch.no_grad():
            wanted = tensors["r_t"] + tensors["discount_t"] * self._value(tensors)
        return self._step(chosen, wanted)

    def _step(self, chosen: Tensor, wanted: Tensor) -> UpdateStats:
        """One step of ``chosen`` (with gradients) towards ``wanted``. Raises ``TrainingDiverged``."""
        assert chosen.shape == wanted.shape
        loss = self._loss_of(chosen, wanted)
        name = f"{self.name} after {self.updates} updates"
        norm = descend(loss, self._optimiser, [self.online.parameters()], self.settings.gradient_norm, name)
        stats = UpdateStats(float(loss.detach()), float(chosen.detach().mean()), norm)
        self.updates += 1
        if self.updates % self.settings.target_period == 0:
            self.target.load_state_dict(self.online.state_dict())
        return stats

    def _loss_of(self, chosen: Tensor, wanted: Tensor) -> Tensor:
        loss: Tensor = self._loss(chosen, wanted)
        return loss

    def _value(self, tensors: Mapping[str, Tensor]) -> Tensor:
        s_t, present_t = tensors["s_t"], tensors.get("present_t")
        q_t_target = self.target(s_t, present_t)
        q_t_online = self.online(s_t, present_t) if self.settings.double else q_t_target
        mask_t = tensors.get("mask_t") if self.settings.mask_bootstrap else None
        return bootstrap_value(q_t_online, q_t_target, mask_t, double=self.settings.double)

    def get_state(self) -> dict[str, Any]:
        """Both networks, the optimiser and the update count."""
        return {
            "online": self.online.state_dict(),
            "target": self.target.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "updates": self.updates,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from ``get_state``'s answer."""
        self.online.load_state_dict(state["online"])
        self.target.load_state_dict(state["target"])
        self._optimiser.load_state_dict(state["optimiser"])
        self.updates = state["updates"]
