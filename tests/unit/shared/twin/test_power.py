"""Power curves and energy."""

from __future__ import annotations

import numpy as np
import pytest

from shared.errors import ConfigError
from shared.experiments.environments.power import CURVES, energy_wh, linear

# SPECpower_ssj2008 result power_ssj2008-20110406-00368: average active power at each target load
PUBLISHED = {
    0.0: 58.4,
    0.1: 98,
    0.2: 109,
    0.3: 118,
    0.4: 128,
    0.5: 140,
    0.6: 153,
    0.7: 170,
    0.8: 189,
    0.9: 205,
    1.0: 222,
}


def test_the_curve_goes_through_its_published_points_and_straight_between_them() -> None:
    curve = CURVES["ibm-x3550-m3"]
    assert curve.at(list(PUBLISHED)) == pytest.approx(list(PUBLISHED.values()))
    assert curve.at(0.05) == pytest.approx((58.4 + 98) / 2)


def test_demand_beyond_the_cpu_draws_what_full_load_draws() -> None:
    assert CURVES["hp-ml110-g5"].at(3.0) == 135


@pytest.mark.parametrize("share", [-0.1, float("nan"), float("inf")])
def test_what_is_no_share_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="utilisation"):
        CURVES["hp-ml110-g5"].at(share)


def test_energy_is_the_area_under_the_curve() -> None:
    curve = linear(100, 200)
    assert energy_wh([[0, 1], [0.5, 0.5]], [0, 3600], curve) == pytest.approx(150 + 150)


def test_an_empty_server_that_is_off_draws_nothing() -> None:
    empty = np.array([[True, True], [False, False]])
    assert energy_wh([[0, 0], [0, 0]], [0, 3600], linear(100, 200), empty=empty) == pytest.approx(100)


def test_a_curve_that_falls_is_refused() -> None:
    with pytest.raises(ConfigError, match="idle <= busy"):
        linear(200, 100)
