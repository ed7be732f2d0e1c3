"""Scores of placing a GPU request on node states: best fit, FGD, and the learned growth of waste.

One place for the experiment and the mesh, so that what is measured is what runs. The heuristics keep the rounding of
their originals: FGD's gain is the coarse class that rounding makes, filled node by node in a fixed order; with ties at
random it loses five points.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shared.model.gpu import GpuRequest, GpuStates, Ints, fullest, options
from shared.model.resources import MILLI_PER_DEVICE
from shared.policy.frag.fragmentation import Meeting, TypicalDemand
from shared.policy.frag.value import CostNet, steps
from shared.policy.weights import WeightsFile

Floats = NDArray[np.float64]

MAX_NODE_SCORE = 100
MAX_CPU, MAX_GPU = 128_000, 8_000
"""What FGD's simulator divides by: the largest node's CPU and GPU."""


class BestFit:
    """The node with the least left, half by CPU and half by GPU; a share goes to the fullest device with room."""

    random_ties = False

    def score(self, states: GpuStates, request: GpuRequest) -> tuple[Floats, Ints]:
        """int((1 - (cpu left / 128000 + gpu left / 8000) / 2) * 100): the simulator's BestFitScore."""
        left = (states.cpu - request.cpu) / MAX_CPU * 0.5 + (states.free.sum(1) - request.gpu) / MAX_GPU * 0.5
        return np.trunc((1.0 - left) * MAX_NODE_SCORE), fullest(states, request)


class Fgd:
    """The smallest growth of the expected fragment (Weng et al., ATC 2023, section 4.3), rounded as published."""

    random_ties = False

    def __init__(self, demand: TypicalDemand, *, rounded: bool = True, fullest_only: bool = False) -> None:
        self._meeting = Meeting(demand)
        self._rounded = rounded
        self._fullest_only = fullest_only

    def score(self, states: GpuStates, request: GpuRequest) -> tuple[Floats, Ints]:
        """int(100 * sigmoid((F before - F after) / 1000)); of a share's devices the first with the best score."""
        ways = options(states, request, fullest_only=self._fullest_only)
        gain = self._meeting.fragment(states)[ways.row] - self._meeting.fragment(ways.after)
        score = MAX_NODE_SCORE / (1 + np.exp(-gain / MILLI_PER_DEVICE))
        return best_way(np.trunc(score) if self._rounded else score, ways.row, ways.device, len(states))


class Frag:
    """The least growth of cost (``frag_value``), in whole steps; ties fall to the first node in a fixed order."""

    random_ties = False

    def __init__(
        self, weights: WeightsFile, demand: TypicalDemand, model_share: Floats, *, fullest_only: bool = False
    ) -> None:
        self.net = CostNet(weights, demand, model_share)
        self._fullest_only = fullest_only

    def score(self, states: GpuStates, request: GpuRequest, before: Floats | None = None) -> tuple[Floats, Ints]:
        """Whole steps of the growth, negative for growth; and the device of a share. ``before``: the states' cost."""
        growth, device = self.net.growth(states, request, fullest_only=self._fullest_only, before=before)
        return steps(growth), device

    def costs(self, states: GpuStates, asked: Sequence[tuple[GpuStates, GpuRequest]]) -> tuple[Floats, list[Floats]]:
        """What ``states`` cost, and what those of each pair do once the request is there, which must have room: a share
        on its fullest device. One product of matrices for all."""
        after = [options(before, request, fullest_only=True).after for before, request in asked]
        cost = self.net.cost(states.joined(*after))
        ends = np.cumsum([len(states), *(len(one) for one in after)])
        own, *others = np.split(cost, ends[:-1])
        return own, others


def best_way(score: Floats, row: Ints, device: Ints, states: int) -> tuple[Floats, Ints]:
    """Per state the best of its ways, the first of equals; ``row`` is ascending and names every state."""
    starts = np.flatnonzero(np.r_[True, row[1:] != row[:-1]])
    best = np.maximum.reduceat(score, starts)
    if len(score) == states:
        return best, device
    hits = np.flatnonzero(score == best[row])
    first = hits[np.flatnonzero(np.r_[True, row[hits][1:] != row[hits][:-1]])]
    return best, device[first]
