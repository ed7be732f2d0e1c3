"""The statistics of reports, against published values."""

from __future__ import annotations

from math import atan, nan, pi

import pytest

from lab.evaluation.statistics import paired_t_test, sample_sd

# Student, "The probable error of a mean", Biometrika 6 (1908): hours of sleep gained by ten patients on two drugs. The
# published result of the paired test, as printed by R's documentation of `sleep`: t = -4.0621, df = 9, p = 0.002833.
SLEEP_1 = (0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0)
SLEEP_2 = (1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4)


def test_paired_test_gives_the_published_result() -> None:
    centre, spread, p = paired_t_test(SLEEP_1, SLEEP_2)
    assert centre == pytest.approx(-1.58)
    assert centre / (spread / 10**0.5) == pytest.approx(-4.0621, abs=5e-5)
    assert p == pytest.approx(0.002833, abs=5e-7)


@pytest.mark.parametrize("t", [12.706, 1e3, 1e6])
def test_far_tail_keeps_its_digits(t: float) -> None:
    # two pairs leave one degree of freedom, which is Cauchy: p = 2 atan(1/t) / pi
    a, b = (t + 1.0, t - 1.0), (0.0, 0.0)
    assert paired_t_test(a, b)[2] == pytest.approx(2 * atan(1 / t) / pi, rel=1e-9)


def test_the_order_of_the_pair_changes_the_sign_alone() -> None:
    centre, spread, p = paired_t_test(SLEEP_1, SLEEP_2)
    assert paired_t_test(SLEEP_2, SLEEP_1) == (-centre, spread, p)


def test_equal_differences_are_certain_and_no_difference_is_none() -> None:
    assert paired_t_test((2.0, 3.0), (1.0, 2.0)) == (1.0, 0.0, 0.0)
    assert paired_t_test((1.1, 1.1, 1.1), (1.0, 1.0, 1.0))[1:] == (0.0, 0.0)
    assert paired_t_test((1.0, 2.0), (1.0, 2.0)) == (0.0, 0.0, 1.0)


@pytest.mark.parametrize(("a", "b"), [((1.0,), (2.0,)), ((1.0, 2.0), (1.0,)), ((1.0, nan), (1.0, 2.0))])
def test_pairs_that_cannot_be_tested_are_refused(a: tuple[float, ...], b: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="a paired test needs"):
        paired_t_test(a, b)


def test_sample_sd_divides_by_n_minus_one() -> None:
    assert sample_sd((1.0, 2.0, 3.0, 4.0)) == pytest.approx((5 / 3) ** 0.5)
    assert sample_sd((7.0,)) == 0.0
    with pytest.raises(ValueError, match="at least one"):
        sample_sd(())
