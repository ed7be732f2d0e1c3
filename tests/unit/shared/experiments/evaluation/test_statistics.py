"""The statistics of reports, against published table values."""

from __future__ import annotations

from math import inf, nan

import pytest

from shared.experiments.evaluation.statistics import (
    mean,
    paired_t_test,
    regularised_incomplete_beta,
    sample_sd,
    two_sided_p,
)

# Student, "The probable error of a mean", Biometrika 6 (1908): hours of sleep gained by ten patients on two drugs. The
# published result of the paired test, as printed by R's documentation of `sleep`: t = -4.0621, df = 9, p = 0.002833.
SLEEP_1 = (0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0)
SLEEP_2 = (1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4)


# NIST/SEMATECH e-Handbook 1.3.6.7.2, upper critical values of Student's t (two-sided level = 2 x the table's).
@pytest.mark.parametrize(
    ("t", "df", "p"),
    [
        (12.706, 1, 0.05),
        (4.303, 2, 0.05),
        (2.262, 9, 0.05),
        (3.250, 9, 0.01),
        (4.297, 9, 0.002),
        (2.042, 30, 0.05),
        (2.626, 100, 0.01),
    ],
)
def test_p_of_a_critical_value_is_its_level(t: float, df: int, p: float) -> None:
    assert two_sided_p(t, degrees_of_freedom=df) == pytest.approx(p, rel=2e-3)
    assert two_sided_p(-t, degrees_of_freedom=df) == two_sided_p(t, degrees_of_freedom=df)


def test_paired_test_gives_the_published_result() -> None:
    found = paired_t_test(SLEEP_1, SLEEP_2)
    assert found.t == pytest.approx(-4.0621, abs=5e-5)
    assert found.p == pytest.approx(0.002833, abs=5e-7)
    assert found.mean_difference == pytest.approx(-1.58)


def test_beta_of_whole_numbers_is_the_binomial_tail() -> None:
    # I_x(2, 3) = P(Binomial(4, x) >= 2)
    assert regularised_incomplete_beta(2, 3, 0.25) == pytest.approx(0.26171875, abs=1e-15)
    assert regularised_incomplete_beta(3, 2, 0.75) == pytest.approx(1 - 0.26171875, abs=1e-15)
    assert regularised_incomplete_beta(1, 1, 0.3) == pytest.approx(0.3, abs=1e-15)


def test_beta_at_the_ends() -> None:
    assert regularised_incomplete_beta(2, 3, 0.0) == 0.0
    assert regularised_incomplete_beta(2, 3, 1.0) == 1.0
    with pytest.raises(ValueError, match="x in"):
        regularised_incomplete_beta(2, 3, 1.5)


def test_far_tail_keeps_its_digits() -> None:
    # df = 1 is Cauchy: p = 2 atan(1/t) / pi
    assert two_sided_p(1e6, degrees_of_freedom=1) == pytest.approx(2e-6 / 3.141592653589793, rel=1e-9)


def test_equal_differences_are_certain_and_no_difference_is_none() -> None:
    assert paired_t_test((2.0, 3.0), (1.0, 2.0)).p == 0.0
    assert paired_t_test((2.0, 3.0), (1.0, 2.0)).t == inf
    assert paired_t_test((1.0, 2.0), (1.0, 2.0)).p == 1.0


@pytest.mark.parametrize(("a", "b"), [((1.0,), (2.0,)), ((1.0, 2.0), (1.0,)), ((1.0, nan), (1.0, 2.0))])
def test_pairs_that_cannot_be_tested_are_refused(a: tuple[float, ...], b: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="a paired test needs"):
        paired_t_test(a, b)


def test_sample_sd_divides_by_n_minus_one() -> None:
    assert mean((1.0, 2.0, 3.0, 4.0)) == 2.5
    assert sample_sd((1.0, 2.0, 3.0, 4.0)) == pytest.approx((5 / 3) ** 0.5)
    assert sample_sd((7.0,)) == 0.0
    with pytest.raises(ValueError, match="no values"):
        mean(())
