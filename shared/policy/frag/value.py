"""The learned value of a node's state: how much of its idle GPU will still be idle when the cluster is full.

    waste(state) = idle(state) * sigmoid(mlp(features(state)))
    cost(state)  = waste(state) + FRAGMENT_PRICE * fragment(state) - MODEL_PRICE * idle(state) * model_wanted(state)

in GPUs. Placing a pod on the node whose waste grows least is one step of policy improvement on "GPU left over at the
end", as long as the cluster's value is the sum of its nodes' values. That sum does not depend on the number or the
order of nodes. FGD is the same rule with the expected fragment in place of the learned waste.

The end is not all that counts: pods that find no room before are turned away too. So the fragment, which is GPU that
pods to come cannot use now, has a small price; and idle GPU of a model that pods name beyond its share of the cluster
is worth keeping for them. Both prices were chosen on validation seeds (docs/policies/frag.md).

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
from shared.policy.frag.features import FEATURES, SCALE, FragFeatures
from shared.policy.frag.fragmentation import TypicalDemand
from shared.policy.networks import mlp, mlp_shapes
from shared.policy.weights import Shapes, WeightsFile, inputs_fault

Floats = NDArray[np.float64]

NAME = "frag"
HIDDEN = (32, 16)
SIZES = [len(FEATURES), *HIDDEN, 1]
SHAPES: Shapes = mlp_shapes(SIZES)
LAYERS = len(SIZES) - 1
STEP = 0.02
"""Of one GPU: what the growth of cost is rounded to."""
FRAGMENT_PRICE, MODEL_PRICE = 0.1, 0.3
PRICE_SEEDS = (500, 501, 502, 503, 504)
"""Validation seeds on which the two prices were chosen; see docs/policies/frag.md."""
PRICES, UNPRICED = (FRAGMENT_PRICE, MODEL_PRICE), (0.0, 0.0)
FRAGMENT, WANTED = FEATURES.index("fragment"), FEATURES.index("model_wanted")


class CostNet:
    """The cost of node states under one demand, by the arrays of a weights file; ``UNPRICED``: the waste alone."""

    def __init__(
        self, weights: WeightsFile, demand: TypicalDemand, model_share: Floats, prices: tuple[float, float] = PRICES
    ) -> None:
        check_weights(weights)
        self.features = FragFeatures(demand, model_share)
        self._arrays = weights.arrays
        self._fragment_price, self._model_price = prices

    def cost(self, states: GpuStates) -> Floats:
        """float64 ``[states]``, in GPUs; 0 for a node with no idle GPU."""
        x = self.features.of(states)
        return self._cost(x, x.astype(np.float32))

    def cost_of(self, x: NDArray[np.float32]) -> Floats:
        """float64 ``[states]``: the same from features float32 ``[states, features]``, for explanations."""
        return self._cost(x.astype(np.float64), x)

    def _cost(self, exact: Floats, x: NDArray[np.float32]) -> Floats:
        logit = mlp(self._arrays, x, LAYERS)[:, 0].astype(np.float64)
        idle, fragment, wanted = (exact[:, column] / SCALE[column] for column in (0, FRAGMENT, WANTED))
        kept = 1 / (1 + np.exp(-logit)) - self._model_price * wanted
        result: Floats = idle * kept + self._fragment_price * fragment / MILLI_PER_DEVICE
        return result

    def growth(
        self, states: GpuStates, request: GpuRequest, *, fullest_only: bool = False, before: Floats | None = None
    ) -> tuple[Floats, Ints]:
        """The least growth of cost that ``request`` causes on each state, in GPUs, and the device of a share.

        Every state must have room. ``fullest_only``: a share goes to the fullest device with room, come what may.
        ``before``: the states' ``cost``, where it is known. float64 and int64 ``[states]``; device -1 where there is
        none to choose.
        """
        ways = options(states, request, fullest_only=fullest_only)
        if before is None:
            cost = self.cost(states.joined(ways.after))
            before, after = cost[: len(states)], cost[len(states) :]
        else:
            after = self.cost(ways.after)
        growth = after - before[ways.row]
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
    if fault := inputs_fault(card, FEATURES):
        raise ConfigError(
            f"weights of {card.policy}: made for inputs that this release does not give ({fault}); train again"
        )


def steps(growth: Floats) -> Floats:
    """The score of a growth, higher is better: whole steps of ``STEP``, rounded down."""
    result: Floats = np.floor(-growth / STEP)
    return result
