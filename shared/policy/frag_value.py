"""The learned value of a node's state: how much of its idle GPU will still be idle when the cluster is full.

    waste(state) = idle(state) * sigmoid(mlp(features(state)))

in GPUs. Placing a pod on the node whose waste grows least is one step of policy improvement on "GPU left over at the
end", as long as the cluster's value is the sum of its nodes' values. That sum does not depend on the number or the
order of nodes. FGD is the same rule with the expected fragment in place of the learned waste.

The growth is rounded down to steps of ``STEP`` GPUs, so that what is equal but for the last bits of a float ties, and
the fixed order of nodes decides. Unlike FGD the value does not live on its rounding: measured without it, allocation
stays within 0.2 points (docs/policies/frag.md). It refuses weights that are not of this shape.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shared.errors import ConfigError
from shared.model.gpu import GpuRequest, GpuStates, Ints, options
from shared.model.resources import MILLI_PER_DEVICE
from shared.policy.frag_features import FEATURES, SCALE, FragFeatures
from shared.policy.fragmentation import Demand
from shared.policy.networks import mlp, mlp_shapes
from shared.policy.weights import Shapes, WeightsFile

Floats = NDArray[np.float64]

NAME = "frag"
HIDDEN = (32, 16)
SIZES = [len(FEATURES), *HIDDEN, 1]
SHAPES: Shapes = mlp_shapes(SIZES)
LAYERS = len(SIZES) - 1
STEP = 0.02
"""Of one GPU: what the growth of waste is rounded to."""


class WasteNet:
    """The waste of node states under one demand, by the arrays of a weights file."""

    def __init__(self, weights: WeightsFile, demand: Demand, model_share: Floats) -> None:
        check_weights(weights)
        self.features = FragFeatures(demand, model_share)
        self._arrays = weights.arrays

    def waste(self, states: GpuStates) -> Floats:
        """float64 ``[states]``, GPUs expected to stay idle; 0 for a node with no idle GPU."""
        result: Floats = (
            self._share(self.features.of(states).astype(np.float32)) * states.free.sum(1) / MILLI_PER_DEVICE
        )
        return result

    def waste_of(self, x: NDArray[np.float32]) -> Floats:
        """float64 ``[states]``: the same from features float32 ``[states, features]``, for explanations."""
        result: Floats = self._share(x) * x[:, 0] / SCALE[0]
        return result

    def _share(self, x: NDArray[np.float32]) -> Floats:
        logit = mlp(self._arrays, x, LAYERS)[:, 0].astype(np.float64)
        result: Floats = 1 / (1 + np.exp(-logit))
        return result

    def growth(self, states: GpuStates, request: GpuRequest, *, fullest_only: bool = False) -> tuple[Floats, Ints]:
        """The least growth of waste that ``request`` causes on each state, in GPUs, and the device of a share.

        Every state must have room. ``fullest_only``: a share goes to the fullest device with room, whatever it costs.
        float64 and int64 ``[states]``; device -1 where there is none to choose.
        """
        ways = options(states, request, fullest_only=fullest_only)
        waste = self.waste(states.joined(ways.after))
        growth = waste[len(states) :] - waste[: len(states)][ways.row]
        if len(growth) == len(states):
            return growth, ways.device
        order = np.lexsort((growth, ways.row))
        first = order[np.searchsorted(ways.row, np.arange(len(states)))]
        return growth[first], ways.device[first]


def check_weights(weights: WeightsFile) -> None:
    """Raises ``ConfigError`` unless the weights are this network's, made for these features."""
    card = weights.card
    if {name: tuple(array.shape) for name, array in weights.arrays.items()} != dict(SHAPES):
        raise ConfigError(f"weights of {card.policy}: arrays are not those of {SIZES}; train again")
    if tuple(card.features) != FEATURES:
        raise ConfigError(
            f"weights of {card.policy}: made for inputs {card.features}, not {list(FEATURES)}; train again"
        )


def steps(growth: Floats) -> Floats:
    """The score of a growth, higher is better: whole steps of ``STEP``, rounded down."""
    result: Floats = np.floor(-growth / STEP)
    return result
