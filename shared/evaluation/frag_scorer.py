"""The learned placement policy as a scorer of the experiment: the same value and the same rounding as in the mesh."""

from __future__ import annotations

from shared.evaluation.placers import Floats
from shared.model.gpu import GpuRequest, GpuStates, Ints
from shared.policy.frag_features import model_share
from shared.policy.frag_value import WasteNet, steps
from shared.policy.fragmentation import Demand
from shared.policy.weights import WeightsFile


class Frag:
    """The least growth of waste (``frag_value``), in whole steps; ties fall to the first node in the seed's order."""

    random_ties = False

    def __init__(self, weights: WeightsFile, demand: Demand, empty: GpuStates) -> None:
        self._net = WasteNet(weights, demand, model_share(empty))

    def score(self, states: GpuStates, request: GpuRequest) -> tuple[Floats, Ints]:
        """Whole steps of the growth, negative for growth; and the device of a share."""
        growth, device = self._net.growth(states, request)
        return steps(growth), device
