"""The network of ``ee``, ``lb`` and ``el`` in torch, to be trained: the ReLU MLP that ``shared.policy.networks`` runs.

Each node is judged by its features alone, among them what the cluster pools to (``shared.policy.deepsets.features``):
no weight belongs to a node or to a number of nodes, and a node's answer is the same whoever else is judged. The answer
is one Q per node, taken from the last layer and from nowhere else, so what is trained is what is exported and
evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

ABSENT = -1e9
"""Stands for the features of an absent member when the greatest is taken: finite, so that no gradient is NaN."""


class DeepSetsQ(nn.Module):
    """Q-values per node. ``sizes`` = [features, hidden ..., 1]; ``seed`` initialises the weights."""

    def __init__(self, sizes: Sequence[int], *, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.layers = nn.ModuleList(nn.Linear(into, out) for into, out in pairwise(sizes))

    def forward(self, s: Tensor, present: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """float32 ``[batch, nodes, features]`` to Q ``[batch, nodes]``; what comes out for nodes that are not
        ``present`` means nothing: masks keep it out."""
        q: Tensor = self.layers[-1](self.hidden(s)).squeeze(-1)
        return q

    def hidden(self, s: Tensor) -> Tensor:
        """What the last layer is given: float32 ``[batch, nodes, width]``."""
        x = s
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return x

    def export(self) -> dict[str, NDArray[np.float32]]:
        """The arrays under the names that ``shared.policy.networks`` reads: ``l0.w``, ``l0.b``, ..."""
        arrays: dict[str, NDArray[np.float32]] = {}
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, nn.Linear)
            arrays[f"l{index}.w"] = layer.weight.detach().numpy().T.copy()
            arrays[f"l{index}.b"] = layer.bias.detach().numpy().copy()
        return arrays

    def load(self, arrays: Mapping[str, NDArray[np.float32]]) -> None:
        """Take over exported arrays; of several outputs of the last layer each becomes what the one is."""
        with torch.no_grad():
            for index, layer in enumerate(self.layers):
                assert isinstance(layer, nn.Linear)
                weight, bias = arrays[f"l{index}.w"].T, arrays[f"l{index}.b"]
                copies = layer.out_features // len(bias)
                layer.weight.copy_(torch.from_numpy(np.repeat(weight, copies, axis=0)))
                layer.bias.copy_(torch.from_numpy(np.repeat(bias, copies)))
