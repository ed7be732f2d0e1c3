"""What a run on a captured cluster leaves: the shipped weights, unless what it found is clearly better on the days held
back."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

from lab.learner.training.captured import clearly_better, write_kept
from shared.policy.weights import WeightsFile, decode, shipped


@pytest.mark.parametrize(
    ("before", "after", "better"),
    [
        pytest.param([4.0, 2.0, 3.0], [2.0, 1.0, 2.0], True, id="better in each"),
        pytest.param([4.0, 2.0, 3.0], [4.0, 2.0, 3.0], False, id="the same"),
        pytest.param([4.0, 2.0, 3.0], [5.0, 2.5, 3.0], False, id="worse"),
        pytest.param([100.0, 100.0], [99.5, 99.5], False, id="by less than a percent"),
        pytest.param([100.0, 100.0], [98.9, 98.9], True, id="by more than a percent"),
        pytest.param([1.0, 1.0, 1.0, 1.0], [0.2, 1.1, 1.1, 1.2], False, id="by what chance explains"),
        pytest.param([1.0], [0.1], False, id="one episode, whose error nobody knows"),
        pytest.param([], [], False, id="no episode"),
        pytest.param([0.0, 0.0], [0.0, 0.0], False, id="at the bound"),
        pytest.param([1.0, 1.0], [math.nan, 0.1], False, id="a cost that is no number"),
        pytest.param([1.0, math.inf], [0.5, 0.5], False, id="a cost without end"),
    ],
)
def test_what_is_no_better_or_better_by_chance_is_not_clearly_better(
    before: list[float], after: list[float], better: bool
) -> None:
    assert clearly_better(before, after) is better


def test_by_how_much_it_has_to_be_better_may_be_left_to_who_asks() -> None:
    before, after = [100.0, 100.0], [99.5, 99.6]
    assert (clearly_better(before, after), clearly_better(before, after, 0.0)) == (False, True)
    assert not clearly_better(before, before, 0.0)


@pytest.mark.parametrize("better", [True, False])
def test_the_shipped_weights_stay_unless_costs_clearly_fell_and_card_and_last_line_are_of_what_stays(
    better: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = shipped("lb")
    trained = {"command": "train lb", "data": {"capture": "c"}, "settings": {"seed": 1000}}
    card = msgspec.structs.replace(
        ours.card, version=3, trained=trained, figures={"cost, by training seed": {"1000": 0.75}}, limits=["of c"]
    )
    found = WeightsFile({name: array * np.float32(2) for name, array in ours.arrays.items()}, card)
    write_kept(tmp_path, found, [1.0, 1.5], [0.4, 0.6] if better else [0.0, 1.5], "cost")
    left = decode((tmp_path / "lb.npz").read_bytes(), policy="lb")
    told = capsys.readouterr()
    assert left.card.version == 3
    assert told.out == f"lb: cost {'0.50000' if better else '1.25000'}, shipped 1.25000; weights in {tmp_path}/lb.npz\n"
    if better:
        assert all(np.array_equal(array, left.arrays[name]) for name, array in found.arrays.items())
        assert (left.card, told.err) == (card, "")
    else:
        assert all(np.array_equal(array, left.arrays[name]) for name, array in ours.arrays.items())
        assert told.err == "lb: nothing clearly better was found; the weights are those of lb@2, as shipped\n"
        assert left.card.figures == {"cost, shipped weights": 1.25}
        compared = {"command": "train lb", "data": {"capture": "c"}}
        assert left.card.trained == {**ours.card.trained, "compared on": compared}
        assert left.card.limits == ours.card.limits
