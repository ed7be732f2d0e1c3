"""Hand-made weights of marl-dqn whose behaviour is known: for tests that need a good, a terrible or a broken policy."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import msgspec
import numpy as np

from shared.policy.marl.class_networks import SHARED, joined
from shared.policy.marl.features import FEATURES
from shared.policy.weights import Card, ClassNetworks, WeightsFile, decode, encode


def weights(kind: str = "good", *, version: int = 1) -> WeightsFile:
    """``good``: the node that is least loaded with the pod; ``terrible``: the most loaded; ``broken``: usual weights
    whose values overflow to NaN after eight layers."""
    if kind == "broken":
        return _made(_overflowing(), version)
    array = np.zeros((len(FEATURES), 2), np.float32)
    place = FEATURES.index("requested_above_mean")
    match kind:
        case "good":
            array[place, 1] = -1.0
        case "terrible":
            array[place, 1] = 1.0
    return _made({"l0.w": array, "l0.b": np.array([0.0, 1.0], np.float32)}, version)


def with_networks(
    shared: WeightsFile, values: Mapping[str, int], own: Mapping[int, WeightsFile], *, label: str = "pool"
) -> WeightsFile:
    """``shared``, and beside it the networks of ``own`` for nodes by ``label``."""
    arrays = joined({SHARED: shared.arrays, **{number: file.arrays for number, file in own.items()}})
    return WeightsFile(arrays, msgspec.structs.replace(shared.card, networks=ClassNetworks(label, dict(values))))


def _overflowing() -> dict[str, np.ndarray]:
    """Every layer multiplies by some 10^5; the last one takes infinity from infinity."""
    sizes = [len(FEATURES), *[64] * 8, 2]
    arrays = {}
    for layer, (inputs, outputs) in enumerate(pairwise(sizes)):
        arrays[f"l{layer}.w"] = np.full((inputs, outputs), 9e3, np.float32)
        arrays[f"l{layer}.b"] = np.full(outputs, 9e3, np.float32)
    arrays[f"l{len(sizes) - 2}.w"][::2] *= -1
    return arrays


def _made(arrays: dict[str, np.ndarray], version: int) -> WeightsFile:
    made = WeightsFile(
        arrays,
        Card(policy="marl-dqn", version=version, features=list(FEATURES), trained={"command": "made by hand"}),
    )
    return decode(encode(made), policy="marl-dqn")
