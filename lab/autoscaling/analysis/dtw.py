"""Dynamic time warping: how far two series are apart when time may run faster in the one or the other.

    D(i, j) = |x_i - y_j| + min(D(i-1, j), D(i, j-1), D(i-1, j-1)), |i - j| <= band;  distance = D(n, m) / (n + m)

Sakoe and Chiba 1978, normalised by length so that short and long stretches compare. All pairs of the same two lengths
at once in numpy: two thousand series take seconds. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

ROWS_AT_ONCE = 64
Floats = NDArray[np.float64]


def distances(series: Sequence[Floats], *, band: int) -> Floats:
    """[series, series], symmetric. Each is [times, signals], with the same signals and at least one time. The band
    widens to the difference of two lengths, without which there would be no path."""
    found = np.zeros((len(series), len(series)))
    lengths = np.array([len(one) for one in series], np.int64)
    groups = {length: np.flatnonzero(lengths == length).tolist() for length in sorted(set(lengths.tolist()))}
    for n, left in groups.items():
        for m, right in groups.items():
            if m < n:
                continue
            y = np.array([series[at] for at in right])
            for start in range(0, len(left), ROWS_AT_ONCE):
                rows = left[start : start + ROWS_AT_ONCE]
                part = _pairs(np.array([series[at] for at in rows]), y, max(band, m - n))
                found[np.ix_(rows, right)] = part
                found[np.ix_(right, rows)] = part.T
    return found


def _pairs(x: Floats, y: Floats, band: int) -> Floats:
    """[x, y]: the distance of each of ``x`` [series, n, signals] to each of ``y`` [series, m, signals]."""
    n, m = x.shape[1], y.shape[1]
    before = [np.full((len(x), len(y)), np.inf) for _ in range(m + 1)]
    before[0] = np.zeros((len(x), len(y)))
    for i in range(n):
        now = [np.full((len(x), len(y)), np.inf) for _ in range(m + 1)]
        for j in range(max(i - band, 0), min(i + band + 1, m)):
            cost = np.sqrt(np.square(x[:, None, i] - y[None, :, j]).sum(axis=2))
            now[j + 1] = cost + np.minimum(np.minimum(before[j + 1], now[j]), before[j])
        before = now
    found: Floats = before[m] / (n + m)
    return found
