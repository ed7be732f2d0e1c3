"""The power curve and energy."""

from __future__ import annotations

import numpy as np
import pytest

from lab.environments.power import FLAT_WATTS, energy_wh, watts_at

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
    assert watts_at(list(PUBLISHED)) == pytest.approx(list(PUBLISHED.values()))
    assert watts_at(0.05) == pytest.approx((58.4 + 98) / 2)


def test_demand_beyond_the_cpu_draws_what_full_load_draws() -> None:
    assert watts_at(3.0) == 222


@pytest.mark.parametrize("share", [-0.1, float("nan"), float("inf")])
def test_what_is_no_share_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="utilisation"):
        watts_at(share)


def test_energy_is_the_area_under_the_curve() -> None:
    assert energy_wh([[0, 1], [0.5, 0.5]], [0, 3600]) == pytest.approx((58.4 + 222) / 2 + 140)


def test_an_empty_server_that_is_off_draws_nothing() -> None:
    empty = np.array([[True, True], [False, False]])
    assert energy_wh([[0, 0], [0, 0]], [0, 3600], empty=empty) == pytest.approx(58.4)


def test_a_server_that_is_idle_draws_what_its_own_curve_says() -> None:
    assert watts_at([0.0, 1.0], FLAT_WATTS).tolist() == [93.7, 135]
