"""One step down a gradient: taken whole, or refused before any weight has moved."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from lab.algorithms.descent import TrainingDiverged, descend


def steep(weight: Tensor) -> Tensor:
    """0 at 0, where its gradient is infinite."""
    return weight.sqrt()


def undefined(weight: Tensor) -> Tensor:
    """0 at 0, where its gradient is not a number."""
    return weight.sqrt() * 0.0


@pytest.mark.parametrize("bad", [steep, undefined])
@pytest.mark.parametrize("place", [0, 1])
def test_a_gradient_that_is_not_finite_in_any_part_ends_the_run_before_a_weight_moves(bad, place):
    parts = [nn.Parameter(torch.zeros(1)) for _ in range(2)]
    loss = (bad(parts[place]) + 3.0 * parts[1 - place]).sum()
    with pytest.raises(TrainingDiverged, match=r"karma: the loss is 0\.0, the gradient's norm .*(nan|inf)"):
        descend(loss, torch.optim.SGD(parts, lr=0.1), [[part] for part in parts], 0.5, "karma")
    assert [float(part.detach()) for part in parts] == [0.0, 0.0]


def test_each_part_is_cut_by_itself_and_the_greatest_norm_is_told():
    parts = [nn.Parameter(torch.zeros(1)) for _ in range(2)]
    loss = (3.0 * parts[0] + 0.25 * parts[1]).sum()
    assert descend(loss, torch.optim.SGD(parts, lr=1.0), [[part] for part in parts], 0.5, "karma") == 3.0
    assert [float(part.detach()) for part in parts] == pytest.approx([-0.5, -0.25], abs=1e-5)
