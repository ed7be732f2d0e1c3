"""The networks of ``jobs-dl2`` and ``jobs-sets`` in torch, to be trained; exported under the names that numpy runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from lab.learner.marl.networks import Arrays
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
        return self.unbounded(x, present).clamp(-MOST, MOST)

    def unbounded(self, x: Tensor, present: Tensor) -> Tensor:
        """The same, whatever it comes to."""
        count = present.sum(dim=1, keepdim=True).clamp_min(1.0)[..., None]
        last = len(self.own) - 1
        for at, (own, pooled, bias) in enumerate(zip(self.own, self.pooled, self.biases, strict=True)):
            mean = (x * present[..., None]).sum(dim=1, keepdim=True) / count
            x = x @ own + mean @ pooled + bias
            if at < last:
                x = torch.relu(x)
        return x

    def arrays(self) -> Arrays:
        """The parameters as numpy copies."""
        found: Arrays = {}
        for at, (own, pooled, bias) in enumerate(zip(self.own, self.pooled, self.biases, strict=True)):
            found[f"l{at}.w"] = own.detach().numpy().copy()
            found[f"l{at}.g"] = pooled.detach().numpy().copy()
            found[f"l{at}.b"] = bias.detach().numpy().copy()
        return found


class PackedNetwork(SetNetwork):
    """The same layers over rows of jobs of which most are empty: only those with a job, whose last feature is above 0,
    are computed."""

    def of_jobs(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """float32 [n, jobs, features] to what is said of each job [n, jobs, outputs], 0 where there is none, and
        whether there is one, float32 [n, jobs]."""
        here = inputs[..., -1] > 0
        at, column = here.nonzero(as_tuple=True)
        x = inputs[at, column]
        count = here.sum(dim=1).clamp_min(1)[:, None]
        last = len(self.own) - 1
        for number, (own, pooled, bias) in enumerate(zip(self.own, self.pooled, self.biases, strict=True)):
            mean = x.new_zeros(len(inputs), x.shape[1]).index_add(0, at, x) / count
            x = x @ own + (mean @ pooled + bias)[at]
            if number < last:
                x = torch.relu(x)
        found = x.new_zeros(*here.shape, x.shape[1]).index_put((at, column), x)
        return found, here.float()


class JobsNetwork(PackedNetwork):
    """Of ``jobs-dl2``: what its layers say of each job, and the mean over the jobs of the last output (void).
    ``inputs`` float32 [n, jobs, features] to [n, (outputs - 1) · jobs + 1]."""

    def forward(self, inputs: Tensor) -> Tensor:  # type: ignore[override]
        """See the class."""
        x, present = self.of_jobs(inputs)
        void = x[..., -1].sum(dim=1) / present.sum(dim=1).clamp_min(1.0)
        return torch.cat((x[..., :-1].flatten(1), void[:, None]), dim=1)

    def soften(self, by: float) -> None:
        """Divides all logits."""
        with torch.no_grad():
            for last in (self.own[-1], self.pooled[-1], self.biases[-1]):
                last.div_(by)


class JobsCritic(PackedNetwork):
    """What is still to be paid for each job: ``inputs`` float32 [n, jobs, features] to [n, jobs], 0 where there is
    none."""

    def forward(self, inputs: Tensor) -> Tensor:  # type: ignore[override]
        """See the class."""
        return self.of_jobs(inputs)[0][..., 0]
