"""What a run on a captured cluster leaves: the shipped weights, unless what it found is clearly better on the days held
back."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lab.learner.training.captured import clearly_better, kept
from shared.policy.weights import WeightsFile, shipped


@pytest.mark.parametrize(
    ("before", "after", "better"),
    [
        pytest.param([4.0, 2.0, 3.0], [2.0, 1.0, 2.0], True, id="better in each"),
        pytest.param([4.0, 2.0, 3.0], [4.0, 2.0, 3.0], False, id="the same"),
        pytest.param([4.0, 2.0, 3.0], [5.0, 2.5, 3.0], False, id="worse"),
        pytest.param([100.0, 100.0], [99.5, 99.5], False, id="by less than a percent"),
        pytest.param([100.0, 100.0], [98.9, 98.9], True, id="by more than a percent"),
        pytest.param([1.0, 1.0, 1.0, 1.0], [0.2, 1.1, 1.1, 1.2], False, id="by what chance explains"),
        pytest.param([1.0], [0.9], True, id="one episode"),
        pytest.param([0.0, 0.0], [0.0, 0.0], False, id="at the bound"),
        pytest.param([1.0, 1.0], [math.nan, 0.1], False, id="a cost that is no number"),
        pytest.param([1.0, math.inf], [0.5, 0.5], False, id="a cost without end"),
    ],
)
def test_what_is_no_better_or_better_by_chance_is_not_clearly_better(
    before: list[float], after: list[float], better: bool
) -> None:
    assert clearly_better(before, after) is better


@pytest.mark.parametrize("better", [True, False])
def test_the_shipped_weights_stay_under_the_runs_card_unless_costs_clearly_fell(
    better: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = shipped("lb")
    found = WeightsFile({name: array * np.float32(2) for name, array in ours.arrays.items()}, ours.card)
    left = kept(found, [1.0, 1.0], [0.5 if better else 1.0, 0.5])
    assert (left is found) is better
    assert left.card == found.card
    told = "lb: nothing clearly better was found; the weights are those of lb@2, as shipped\n"
    assert capsys.readouterr().err == ("" if better else told)
    if not better:
        assert all(np.array_equal(array, left.arrays[name]) for name, array in ours.arrays.items())
