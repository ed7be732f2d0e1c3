"""The statistics of reports: sample standard deviation and the paired t test.

Sums are exact (``math.fsum``): equal values deviate by 0, not by a rounding error. The p value is scipy's, which is in
the ``evaluate`` extra and is loaded by the first test: the learner and the twin's commands import this without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, isfinite, sqrt
from statistics import fmean


def sample_sd(values: Sequence[float]) -> float:
    """The sample standard deviation, with n - 1 below the line; 0 for a single value. ``ValueError``: no value."""
    centre = fmean(values)
    if len(values) == 1:
        return 0.0
    return sqrt(fsum((value - centre) ** 2 for value in values) / (len(values) - 1))


def paired_t_test(a: Sequence[float], b: Sequence[float]) -> tuple[float, float, float]:
    """Mean, sample s.d. and two-sided p of ``a[i] - b[i]``; one value of each per seed, in the same order of seeds.

    Raises ``ValueError`` for lists of different lengths, fewer than two pairs, or a value that is not finite.
    """
    if len(a) != len(b):
        raise ValueError(f"a paired test needs as many values of one as of the other, not {len(a)} and {len(b)}")
    if len(a) < 2:
        raise ValueError(f"a paired test needs at least two pairs, not {len(a)}")
    if not all(isfinite(value) for value in (*a, *b)):
        raise ValueError("a paired test needs finite values")
    differences = [one - other for one, other in zip(a, b, strict=True)]
    centre, spread = fmean(differences), sample_sd(differences)
    if spread == 0.0:  # every difference is the same: t is infinite, or there is none
        return centre, spread, float(centre == 0.0)
    from scipy.stats import t as student

    t = centre / (spread / sqrt(len(differences)))
    return centre, spread, float(2 * student.sf(abs(t), df=len(differences) - 1))
