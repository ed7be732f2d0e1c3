"""The prices of frag's cost: a scarce GPU model is kept for the pods that name it, and without prices it is not."""

from __future__ import annotations

import numpy as np
import pytest

from shared.model.gpu import GpuRequest, GpuStates
from shared.policy.frag.features import FEATURES, model_share
from shared.policy.frag.fragmentation import typical_demand
from shared.policy.frag.value import PRICES, SHAPES, UNPRICED, CostNet
from shared.policy.weights import Card, WeightsFile

PLAIN, SCARCE = 0, 1
ANYWHERE = GpuRequest(1000, 1024, 1, 1000)
NAMING = GpuRequest(1000, 1024, 1, 1000, 1 << SCARCE)


def nodes() -> GpuStates:
    """Nine plain nodes and one of the scarce model, alike otherwise: two whole devices each."""
    model = np.array([PLAIN] * 9 + [SCARCE])
    amounts = np.full((4, 10), 32_000)
    return GpuStates(amounts[0], amounts[1], np.full((10, 2), 1000), np.full(10, 2), model, amounts[2], amounts[3])


def indifferent(prices: tuple[float, float]) -> CostNet:
    """A network that expects half of any idle GPU to stay idle, so that only the prices decide."""
    arrays = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
    file = WeightsFile(arrays, Card(policy="frag", version=1, features=list(FEATURES)))
    return CostNet(file, typical_demand([ANYWHERE, NAMING], np.array([5, 5])), model_share(nodes()), prices)


def test_a_pod_that_can_go_anywhere_leaves_the_scarce_model_alone():
    growth, _ = indifferent(PRICES).growth(nodes(), ANYWHERE)
    assert growth[-1] > growth[:-1].max() + 0.02


def test_without_prices_nothing_keeps_the_scarce_model():
    growth, _ = indifferent(UNPRICED).growth(nodes(), ANYWHERE)
    assert np.ptp(growth) == 0


def test_a_stranded_share_is_dearer_than_the_same_idle_gpu_in_one_piece():
    whole = nodes().take(np.array([0, 0]))
    whole.free[:] = [[1000, 0], [500, 500]]
    priced, plain = indifferent(PRICES).cost(whole), indifferent(UNPRICED).cost(whole)
    assert plain[1] == plain[0]
    assert priced[1] > priced[0]


def test_a_full_node_costs_nothing():
    full = nodes()
    full.free[:] = 0
    assert indifferent(PRICES).cost(full) == pytest.approx(np.zeros(10))
