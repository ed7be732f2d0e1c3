"""What the Deep Sets Q-network may give per node, and who learns it: a Q, or quantiles of the return.

Both export the arrays of the plain network, whose score ranks nodes as the head does: quantiles are averaged.

Source: Dabney et al. 2018 (QR-DQN).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lab.algorithms.descent import UpdateStats
from lab.algorithms.dqn import QUANTILES, DqnLearner, DqnLearnerSettings, quantile_loss
from lab.learner.deepsets.network import DeepSetsQ

Head = Literal["", "quantile"]


class QuantileSetQ(DeepSetsQ):
    """``QUANTILES`` quantiles of the return per node; Q is their mean."""

    def quantiles(self, s: Tensor) -> Tensor:
        """float32 ``[batch, nodes, QUANTILES]``."""
        found: Tensor = self.layers[-1](self.hidden(s))
        return found

    def forward(self, s: Tensor, present: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Q ``[batch, nodes]``."""
        return self.quantiles(s).mean(-1)

    def export(self) -> dict[str, NDArray[np.float32]]:
        """The arrays of a plain network whose Q is the quantiles' mean."""
        last = f"l{len(self.layers) - 1}."
        return {
            name: array.mean(axis=-1, keepdims=True) if name.startswith(last) else array
            for name, array in super().export().items()
        }


class QuantileLearner(DqnLearner):
    """``DqnLearner`` by quantile regression: every quantile of what was taken moves towards every one of the target."""

    name = "qr-dqn"
    online: QuantileSetQ
    target: QuantileSetQ

    def update(self, batch: Mapping[str, NDArray[Any]]) -> UpdateStats:
        """One gradient step on a replay batch. Raises ``TrainingDiverged`` when it is not finite."""
        t = {name: torch.from_numpy(array) for name, array in batch.items()}
        all_tm1 = self.online.quantiles(t["s_tm1"])
        chosen = _of(all_tm1, t["a_tm1"])
        with torch.no_grad():
            wanted = t["r_t"][:, None] + t["discount_t"][:, None] * self._next(t)
        return self._step(chosen, wanted)

    def _next(self, t: Mapping[str, Tensor]) -> Tensor:
        """``[batch, QUANTILES]``: of the best allowed action of the next state, 0 where none is allowed."""
        target = self.target.quantiles(t["s_t"])
        chooser = self.online(t["s_t"], t.get("present_t")) if self.settings.double else target.mean(-1)
        best = chooser.masked_fill(~t["mask_t"], -torch.inf).argmax(dim=1)
        found = _of(target, best)
        return torch.where(t["mask_t"].any(dim=1, keepdim=True), found, torch.zeros_like(found))

    def _loss_of(self, chosen: Tensor, wanted: Tensor) -> Tensor:
        return quantile_loss(chosen, wanted)


def learner_of(
    head: Head, sizes: tuple[int, ...], settings: DqnLearnerSettings, seed: int, begin: Mapping[str, Any] | None = None
) -> tuple[DqnLearner, DeepSetsQ]:
    """The learner, and its online network. ``sizes``: features and hidden layers; ``begin``: exported arrays of the
    plain network."""
    if head == "quantile":
        quantiles = QuantileSetQ((*sizes, QUANTILES), seed=seed)
        if begin is not None:
            quantiles.load(begin)
        return QuantileLearner(quantiles, settings), quantiles
    network = DeepSetsQ((*sizes, 1), seed=seed)
    if begin is not None:
        network.load(begin)
    return DqnLearner(network, settings), network


def _of(values: Tensor, action: Tensor) -> Tensor:
    """``values`` [batch, actions, n] of each row's ``action`` [batch]: [batch, n]."""
    return values.gather(1, action[:, None, None].expand(-1, 1, values.shape[2])).squeeze(1)
