"""The placement policies of the experiment by name, and kube-scheduler's default profile as one of them.

kube-default is here and not with the others because it is the experiment's model of it: in the mesh the same profile is
scored on the whole node table (``shared.policy.heuristics``).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from shared.model.gpu import GpuRequest, GpuStates, Ints, fullest
from shared.policy.frag.fragmentation import Demand
from shared.policy.frag.scorers import MAX_NODE_SCORE, BestFit, Fgd

Floats = NDArray[np.float64]


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
        return least + balanced, fullest(states, request)


def _balance(cpu: Floats, memory: Floats) -> Floats:
    result: Floats = np.trunc((1 - np.abs(cpu - memory) / 2) * MAX_NODE_SCORE)
    return result


MakeScorer = Callable[[Demand], "BestFit | Fgd | KubeDefault | None"]

HEURISTICS: dict[str, MakeScorer] = {
    "best-fit": lambda _: BestFit(),
    "fgd": Fgd,
    "kube-default": lambda _: KubeDefault(),
    "random": lambda _: None,
}
