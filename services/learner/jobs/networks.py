"""The networks of ``jobs-dl2`` and ``jobs-sets`` in torch, to be trained; exported under the names that numpy runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from services.learner.marl.networks import Arrays
from shared.jobs.policies.learned.sets import MOST


class SetNetwork(nn.Module):
    """Layers ``y_i = x_i W + mean(x) G + b``; ``sizes`` = [features, hidden ..., outputs]."""

    def __init__(self, sizes: Sequence[int], *, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)

        def drawn(into: int, out: int) -> nn.Parameter:
            return nn.Parameter((torch.rand((into, out), generator=generator) * 2 - 1) / (2 * into) ** 0.5)

        self.own = nn.ParameterList(drawn(*pair) for pair in pairwise(sizes))
        self.pooled = nn.ParameterList(drawn(*pair) for pair in pairwise(sizes))
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(out)) for out in sizes[1:])

    def forward(self, x: Tensor, present: Tensor) -> Tensor:
        """float32 [sets, members, features] and [sets, members] of 0 and 1 to [sets, members, outputs]."""
        count = present.sum(dim=1, keepdim=True).clamp_min(1.0)[..., None]
        last = len(self.own) - 1
        for at, (own, pooled, bias) in enumerate(zip(self.own, self.pooled, self.biases, strict=True)):
            mean = (x * present[..., None]).sum(dim=1, keepdim=True) / count
            x = x @ own + mean @ pooled + bias
            if at < last:
                x = torch.relu(x)
        return x.clamp(-MOST, MOST)

    def arrays(self) -> Arrays:
        """The parameters as numpy copies."""
        found: Arrays = {}
        for at, (own, pooled, bias) in enumerate(zip(self.own, self.pooled, self.biases, strict=True)):
            found[f"l{at}.w"] = own.detach().numpy().copy()
            found[f"l{at}.g"] = pooled.detach().numpy().copy()
            found[f"l{at}.b"] = bias.detach().numpy().copy()
        return found
