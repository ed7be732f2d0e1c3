"""What ``frag`` gains over FGD on every trace that training judges by, played by the learner's compiled experiment.

The openb suite takes twenty minutes for six traces. The compiled experiment differs from it in the order of equals
among devices alone, and ten traces take seconds: enough to see whether some weights fall below FGD anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lab.evaluation.results import Goal, ResultMetric
from lab.learner.frag.cases import FragCase
from lab.learner.frag.trainer import data_folder, read_lists
from lab.learner.frag.training import check_cases
from lab.suites.openb import NOT_BELOW_FGD
from shared.policy.frag.value import LAYERS, PRICES
from shared.policy.weights import WeightsFile

GAIN = "/gain_130"
"""A metric's end: points of all GPUs allocated at 130 % demand, frag less FGD on the same seed."""


def gains(weights: WeightsFile, seeds: Sequence[int]) -> dict[str, ResultMetric]:
    """The gain on each trace and seed, with the prices that are shipped."""
    flat = flattened(weights)
    return {
        f"{name}{GAIN}": ResultMetric.of([case.play(flat, seed) - _fgd(name, seed) for seed in seeds])
        for name, case in _cases().items()
    }


def goals_of(found: Mapping[str, ResultMetric]) -> list[Goal]:
    """No trace worse than FGD by more than is allowed."""
    return [
        Goal.at_least(f"frag less fgd on {name.removesuffix(GAIN)}, points, compiled", metric.mean, -NOT_BELOW_FGD)
        for name, metric in found.items()
        if name.endswith(GAIN)
    ]


def flattened(weights: WeightsFile) -> NDArray[np.float64]:
    """The arrays in a row, as training holds them."""
    names = [f"l{layer}.{part}" for layer in range(LAYERS) for part in "wb"]
    return np.concatenate([weights.arrays[name].ravel() for name in names]).astype(np.float64)


@lru_cache(maxsize=1)
def _cases() -> dict[str, FragCase]:
    return check_cases(*read_lists(data_folder()), PRICES)


@lru_cache(maxsize=1024)
def _fgd(name: str, seed: int) -> float:
    return _cases()[name].play(None, seed)
