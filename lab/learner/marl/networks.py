"""Q-networks of the thesis' scheduler in torch: shared by all agents, one per node or class of nodes, and the central
baseline's.

Exported arrays carry the names that ``shared.policy.networks`` runs (``l0.w`` [in, out]). The agents' networks answer
``per_agent(s)`` [batch, nodes, 2]; their ``forward`` is the value of each joint action under value decomposition
(Sunehag et al. 2018): Q(node k gets it) = mean over nodes of Q_i(reject) + (Q_k(accept) - Q_k(reject)) / nodes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lab.algorithms.dqn import QUANTILES
from shared.policy.marl.class_networks import SHARED, joined, split
from shared.policy.marl.policy import ACCEPT, REJECT

Arrays = dict[str, NDArray[np.float32]]


class LinearStack(nn.Module):
    """A ReLU MLP, linear at the end; with ``copies``, that many independent ones side by side.

    ``x`` [..., in] without copies, [..., copies, in] with them.
    """

    def __init__(self, sizes: Sequence[int], *, copies: int | None = None, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        lead = () if copies is None else (copies,)
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        self.copies = copies
        for into, out in pairwise(sizes):
            bound = 1.0 / math.sqrt(into)
            self.weights.append(nn.Parameter((torch.rand((*lead, into, out), generator=generator) * 2 - 1) * bound))
            self.biases.append(nn.Parameter((torch.rand((*lead, out), generator=generator) * 2 - 1) * bound))

    def forward(self, x: Tensor) -> Tensor:
        """[..., out]."""
        last = len(self.weights) - 1
        for index, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = (x @ weight if self.copies is None else torch.einsum("...ni,nio->...no", x, weight)) + bias
            if index < last:
                x = torch.relu(x)
        return x

    def arrays(self) -> Arrays:
        """The parameters as numpy copies by their exported names."""
        result: Arrays = {}
        for index, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            result[f"l{index}.w"] = weight.detach().numpy().copy()
            result[f"l{index}.b"] = bias.detach().numpy().copy()
        return result

    def load(self, arrays: Mapping[str, NDArray[np.float32]]) -> None:
        """Take over exported arrays."""
        with torch.no_grad():
            for index, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
                weight.copy_(torch.from_numpy(np.array(arrays[f"l{index}.w"])))
                bias.copy_(torch.from_numpy(np.array(arrays[f"l{index}.b"])))


class QuantileStack(LinearStack):
    """``QUANTILES`` quantiles of each value; ``forward``, and what is exported, is their mean."""

    def __init__(self, sizes: Sequence[int], *, seed: int = 0) -> None:
        super().__init__((*sizes[:-1], sizes[-1] * QUANTILES), seed=seed)
        self.values = sizes[-1]

    def quantiles(self, x: Tensor) -> Tensor:
        """[..., out, QUANTILES]."""
        found = super().forward(x)
        return found.reshape(*found.shape[:-1], self.values, QUANTILES)

    def forward(self, x: Tensor) -> Tensor:
        """[..., out]."""
        return self.quantiles(x).mean(-1)

    def arrays(self) -> Arrays:
        """Of a plain stack."""
        last = f"l{len(self.weights) - 1}."
        return {
            name: array.reshape(*array.shape[:-1], self.values, QUANTILES).mean(axis=-1)
            if name.startswith(last)
            else array
            for name, array in super().arrays().items()
        }

    def load(self, arrays: Mapping[str, NDArray[np.float32]]) -> None:
        """Take over those of a plain stack: all quantiles are alike at first."""
        last = f"l{len(self.weights) - 1}."
        super().load(
            {
                name: np.repeat(array, QUANTILES, axis=-1) if name.startswith(last) else array
                for name, array in arrays.items()
            }
        )


class ClassStacks(nn.Module):
    """The shared MLP and ``classes`` others, each for its nodes: ``x`` [..., in + 1] says last by which number."""

    def __init__(self, sizes: Sequence[int], *, classes: int, seed: int = 0) -> None:
        super().__init__()
        self.stacks = nn.ModuleList(LinearStack(sizes, seed=seed) for _ in range(classes + 1))
        self.outputs = sizes[-1]

    def forward(self, x: Tensor) -> Tensor:
        """[..., out]."""
        seen, numbers = x[..., :-1], x[..., -1]
        found = torch.zeros(*numbers.shape, self.outputs)
        for number, stack in enumerate(self.stacks):
            mine = numbers == number
            if mine.any():  # without rows it has no gradient, and Adam leaves it alone
                found[mine] = stack(seen[mine])
        return found

    def arrays(self) -> Arrays:
        """The parameters as those of one file."""
        return joined({number: _stack(stack).arrays() for number, stack in enumerate(self.stacks)})

    def load(self, arrays: Mapping[str, NDArray[np.float32]]) -> None:
        """Take over exported arrays; a class of which there are none begins as the shared one."""
        networks = split(arrays)
        for number, stack in enumerate(self.stacks):
            _stack(stack).load(networks.get(number, networks[SHARED]))


def _stack(module: nn.Module) -> LinearStack:
    assert isinstance(module, LinearStack)
    return module


class MonotonicMixer(nn.Module):
    """QMIX (Rashid et al. 2018): the team's value rises with every agent's, by weights that are functions
    of the state, here the mean of the agents' inputs. For exactly ``agents`` agents."""

    def __init__(self, agents: int, features: int, *, width: int = 16, seed: int = 0) -> None:
        super().__init__()
        self.first = LinearStack((features, agents * width), seed=seed + 1)
        self.first_bias = LinearStack((features, width), seed=seed + 2)
        self.last = LinearStack((features, width), seed=seed + 3)
        self.last_bias = LinearStack((features, width, 1), seed=seed + 4)

    def forward(self, q: Tensor, s: Tensor) -> Tensor:
        """``q`` [batch, agents] and ``s`` [batch, agents, features] to [batch]."""
        state = s.mean(dim=1)
        weights = self.first(state).abs().view(len(q), q.shape[1], -1)
        hidden = nn.functional.elu(torch.einsum("ba,baw->bw", q, weights) + self.first_bias(state))
        mixed: Tensor = (hidden * self.last(state).abs()).sum(dim=1) + self.last_bias(state).squeeze(1)
        return mixed


class AgentsNetwork(nn.Module):
    """Two values per agent: all agents share one network, or with ``nodes`` each has its own, or with ``classes`` each
    of so many classes of nodes. ``mixed``: so many agents are mixed into a team's value; None: they are not.
    ``quantiles``: of each value there are as many."""

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        nodes: int | None = None,
        mixed: int | None = None,
        seed: int = 0,
        quantiles: bool = False,
        classes: int = 0,
    ) -> None:
        super().__init__()
        self.stack: LinearStack | ClassStacks
        if classes:
            self.stack = ClassStacks(sizes, classes=classes, seed=seed)
        else:
            self.stack = QuantileStack(sizes, seed=seed) if quantiles else LinearStack(sizes, copies=nodes, seed=seed)
        self.mixer = None if mixed is None else MonotonicMixer(mixed, sizes[0], seed=seed)

    def mixed(self, q: Tensor, s: Tensor) -> Tensor:
        """The team's value [batch] of the agents' ``q`` [batch, nodes] in ``s`` [batch, nodes, features]."""
        assert self.mixer is not None
        found: Tensor = self.mixer(q, s)
        return found

    def per_agent(self, s: Tensor) -> Tensor:
        """``s`` [batch, nodes, features] to [batch, nodes, 2]."""
        q: Tensor = self.stack(s)
        return q

    def forward(self, s: Tensor, present: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """The joint actions' values [batch, nodes]."""
        q = self.per_agent(s)
        gain = q[..., ACCEPT] - q[..., REJECT]
        return q[..., REJECT].mean(dim=1, keepdim=True) + gain / gain.shape[1]


class SingleNetwork(nn.Module):
    """[batch, inputs] to [batch, actions]: the central baseline's nodes, or one node agent's reject and accept."""

    def __init__(self, sizes: Sequence[int], *, seed: int = 0) -> None:
        super().__init__()
        self.stack = LinearStack(sizes, seed=seed)

    def forward(self, s: Tensor, present: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """One value per action."""
        q: Tensor = self.stack(s)
        return q
