"""The Deep Sets Q-network in torch: the same layers as ``shared.policy.networks.deep_sets``, to be trained.

Each layer is ``y_i = x_i W + max_j(x_j) G + b`` (Zaheer et al. 2017, section 3.1): no weight belongs to a node or to
a number of nodes. The answer is one Q per node, taken from the last of these layers and from nowhere else, so what is
trained is what is exported and evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

ABSENT = -1e9
"""Stands for the features of an absent member when the greatest is taken: finite, so that no gradient is NaN."""


class SetLayer(nn.Module):
    """One permutation-equivariant layer, ``inputs`` to ``outputs`` features per member."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.own = nn.Linear(inputs, outputs)
        self.pooled = nn.Linear(inputs, outputs, bias=False)

    def forward(self, x: Tensor, present: Tensor | None) -> Tensor:
        """float32 ``[batch, members, inputs]`` to ``[batch, members, outputs]``; only the present are pooled.

        What comes out for the absent, or for a set without any member, means nothing: masks keep it out.
        """
        shown = x if present is None else x.masked_fill(~present[..., None], ABSENT)
        best = shown.max(dim=-2, keepdim=True).values
        out: Tensor = self.own(x) + self.pooled(best)
        return out


class DeepSetsQ(nn.Module):
    """Q-values per node. ``sizes`` = [features, hidden ..., 1]; ``seed`` initialises the weights."""

    def __init__(self, sizes: Sequence[int], *, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.layers = nn.ModuleList(SetLayer(into, out) for into, out in pairwise(sizes))

    def forward(self, s: Tensor, present: Tensor | None = None) -> Tensor:
        """float32 ``[batch, nodes, features]`` and bool ``[batch, nodes]`` to Q ``[batch, nodes]``."""
        q: Tensor = self.layers[-1](self.hidden(s, present), present).squeeze(-1)
        return q

    def hidden(self, s: Tensor, present: Tensor | None) -> Tensor:
        """What the last layer is given: float32 ``[batch, nodes, width]``."""
        x = s
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x, present))
        return x

    def export(self) -> dict[str, NDArray[np.float32]]:
        """The arrays under the names that ``shared.policy.networks`` reads: ``l0.w``, ``l0.g``, ``l0.b``, ..."""
        arrays: dict[str, NDArray[np.float32]] = {}
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, SetLayer)
            arrays[f"l{index}.w"] = layer.own.weight.detach().numpy().T.copy()
            arrays[f"l{index}.g"] = layer.pooled.weight.detach().numpy().T.copy()
            arrays[f"l{index}.b"] = layer.own.bias.detach().numpy().copy()
        return arrays
