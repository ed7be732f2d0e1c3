"""The placement policies of the experiment as scorers: best fit, FGD and kube-scheduler's default profile.

Each is compared by the published figures of its kind, so each keeps the rounding of its original: FGD's gain is the
coarse class that rounding makes, filled node by node in a fixed order. Unrounded, it loses five points.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from shared.model.gpu import GpuRequest, GpuStates, Ints, options
from shared.model.resources import MILLI_PER_DEVICE
from shared.policy.fragmentation import Demand, Meeting

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
        return np.trunc((1.0 - left) * MAX_NODE_SCORE), _fullest(states, request)


class Fgd:
    """The smallest growth of the expected fragment (Weng et al., ATC 2023, section 4.3), rounded as published."""

    random_ties = False

    def __init__(self, demand: Demand, *, rounded: bool = True) -> None:
        self._meeting = Meeting(demand)
        self._rounded = rounded

    def score(self, states: GpuStates, request: GpuRequest) -> tuple[Floats, Ints]:
        """int(100 * sigmoid((F before - F after) / 1000)); of a share's devices the first with the best score."""
        ways = options(states, request)
        gain = self._meeting.fragment(states)[ways.row] - self._meeting.fragment(ways.after)
        score = MAX_NODE_SCORE / (1 + np.exp(-gain / MILLI_PER_DEVICE))
        return best_way(np.trunc(score) if self._rounded else score, ways.row, ways.device, len(states))


class KubeDefault:
    """kube-scheduler's default profile on CPU and memory: LeastAllocated and BalancedAllocation, equal weights.

    It does not see GPUs beyond whether they fit: an extended resource is no part of its default scores. The device of
    a share is the fullest with room, as the mesh's accounting picks it. Ties fall at random, as ``selectHost`` does.
    Sources: kube-scheduler 1.36 ``least_allocated.go``, ``balanced_allocation.go``, ``schedule_one.go``.
    """

    random_ties = True

    def score(self, states: GpuStates, request: GpuRequest) -> tuple[Floats, Ints]:
        """The sum of both scores, 0..200."""
        cpu, memory = np.maximum(states.cpu_total, 1), np.maximum(states.memory_total, 1)
        cpu_left, memory_left = states.cpu - request.cpu, states.memory - request.memory
        least = (cpu_left * MAX_NODE_SCORE // cpu + memory_left * MAX_NODE_SCORE // memory) // 2
        after = _balance(1 - cpu_left / cpu, 1 - memory_left / memory)
        before = _balance(1 - states.cpu / cpu, 1 - states.memory / memory)
        balanced = 50 + np.trunc((50 + after - before) / 2)
        if not request.cpu and not request.memory:
            balanced = np.zeros(len(states))
        return least + balanced, _fullest(states, request)


def best_way(score: Floats, row: Ints, device: Ints, states: int) -> tuple[Floats, Ints]:
    """Per state the best of its ways, the first of equals; ``row`` is ascending and names every state."""
    starts = np.flatnonzero(np.r_[True, row[1:] != row[:-1]])
    best = np.maximum.reduceat(score, starts)
    if len(score) == states:
        return best, device
    hits = np.flatnonzero(score == best[row])
    first = hits[np.flatnonzero(np.r_[True, row[hits][1:] != row[hits][:-1]])]
    return best, device[first]


def _balance(cpu: Floats, memory: Floats) -> Floats:
    result: Floats = np.trunc((1 - np.abs(cpu - memory) / 2) * MAX_NODE_SCORE)
    return result


def _fullest(states: GpuStates, request: GpuRequest) -> Ints:
    """The fullest device with room for the share, per state; -1 where there is no share to place."""
    if not request.shared:
        return np.full(len(states), -1, np.int64)
    room = np.where(states.free >= request.milli, states.free, np.iinfo(np.int64).max)
    return np.asarray(room.argmin(1), np.int64)


MakeScorer = Callable[[Demand], "BestFit | Fgd | KubeDefault | None"]

HEURISTICS: dict[str, MakeScorer] = {
    "best-fit": lambda _: BestFit(),
    "fgd": Fgd,
    "kube-default": lambda _: KubeDefault(),
    "random": lambda _: None,
}
