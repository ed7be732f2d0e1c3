"""The few statistics a report needs: mean, sample standard deviation and the paired t test. scipy is not a dependency.

The test asks whether the mean of the differences of two policies *on the same seeds* is zero. Its p value is

    p = I_x(df / 2, 1 / 2)  with  x = df / (df + t^2)

(Abramowitz & Stegun 26.7.1 with 26.5.27: the two-sided tail of Student's t is a regularised incomplete beta function).
``I_x`` is summed by its continued fraction, DLMF 8.17.22, evaluated by the modified Lentz method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, fsum, inf, isfinite, lgamma, log, log1p, sqrt

MAX_TERMS = 10_000
RELATIVE_PRECISION = 1e-15
TINY = 1e-300
"""Stands for a zero denominator in Lentz's method."""


@dataclass(frozen=True)
class PairedTest:
    """What the paired t test found: ``t`` is infinite where every difference is the same and not zero."""

    mean_difference: float
    sd: float
    t: float
    p: float


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean. Raises ``ValueError`` for no value at all."""
    if not values:
        raise ValueError("the mean of no values is not defined")
    return fsum(values) / len(values)


def sample_sd(values: Sequence[float]) -> float:
    """The sample standard deviation, with n - 1 below the line; 0 for a single value."""
    centre = mean(values)
    if len(values) == 1:
        return 0.0
    return sqrt(fsum((value - centre) ** 2 for value in values) / (len(values) - 1))


def paired_t_test(a: Sequence[float], b: Sequence[float]) -> PairedTest:
    """The two-sided paired t test of ``a[i] - b[i]``; one value of each per seed, in the same order of seeds.

    Raises ``ValueError`` for lists of different lengths, fewer than two pairs, or a value that is not finite.
    """
    if len(a) != len(b):
        raise ValueError(f"a paired test needs as many values of one as of the other, not {len(a)} and {len(b)}")
    if len(a) < 2:
        raise ValueError(f"a paired test needs at least two pairs, not {len(a)}")
    if not all(isfinite(value) for value in (*a, *b)):
        raise ValueError("a paired test needs finite values")
    differences = [one - other for one, other in zip(a, b, strict=True)]
    centre, spread = mean(differences), sample_sd(differences)
    if spread == 0.0:
        return PairedTest(centre, spread, t=inf if centre > 0 else -inf if centre < 0 else 0.0, p=float(centre == 0.0))
    t = centre / (spread / sqrt(len(differences)))
    return PairedTest(centre, spread, t, two_sided_p(t, degrees_of_freedom=len(differences) - 1))


def two_sided_p(t: float, *, degrees_of_freedom: float) -> float:
    """The chance of a Student's t at least as far from zero as ``t``."""
    if degrees_of_freedom <= 0:
        raise ValueError(f"degrees of freedom must be positive, not {degrees_of_freedom}")
    return regularised_incomplete_beta(
        degrees_of_freedom / 2, 0.5, degrees_of_freedom / (degrees_of_freedom + t * t) if isfinite(t) else 0.0
    )


def regularised_incomplete_beta(a: float, b: float, x: float) -> float:
    """``I_x(a, b)`` for a, b > 0 and x in [0, 1]. Raises ``ValueError`` outside."""
    if not (a > 0 and b > 0 and 0 <= x <= 1):
        raise ValueError(f"I_x(a, b) needs a, b > 0 and x in [0, 1], not a={a}, b={b}, x={x}")
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast only below: DLMF 8.17.4, I_x(a, b) = 1 - I_{1-x}(b, a)
        return 1.0 - regularised_incomplete_beta(b, a, 1.0 - x)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x)) / a
    return front / _continued_fraction(a, b, x)


def _continued_fraction(a: float, b: float, x: float) -> float:
    """``1 + d1/(1 + d2/(1 + ...))`` of DLMF 8.17.22."""
    value, c, d = 1.0, 1.0, 0.0
    for n in range(1, MAX_TERMS):
        m = n // 2
        if n % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1.0 / ((1.0 + term * d) or TINY)
        c = (1.0 + term / c) or TINY
        value *= c * d
        if abs(c * d - 1.0) < RELATIVE_PRECISION:
            return value
    raise ArithmeticError(f"I_x({a}, {b}) at x={x} did not converge in {MAX_TERMS} terms")
