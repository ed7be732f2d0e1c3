"""Dynamic time warping in batches gives what the definition gives, pair by pair."""

from __future__ import annotations

import numpy as np
import pytest

from lab.autoscaling.analysis.dtw import distances


def by_definition(x, y, band):
    n, m = len(x), len(y)
    wide = max(band, abs(n - m))
    found = np.full((n + 1, m + 1), np.inf)
    found[0, 0] = 0.0
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            if abs(i - j) <= wide:
                cost = float(np.linalg.norm(x[i - 1] - y[j - 1]))
                found[i, j] = cost + min(found[i - 1, j], found[i, j - 1], found[i - 1, j - 1])
    return found[n, m] / (n + m)


@pytest.mark.parametrize("band", [0, 1, 3])
def test_every_pair_is_as_far_apart_as_the_definition_says(band):
    rng = np.random.default_rng(band)
    series = [rng.normal(size=(int(rng.integers(1, 9)), 3)) for _ in range(20)]
    found = distances(series, band=band)
    assert (found == found.T).all()
    for at, one in enumerate(series):
        for other_at, other in enumerate(series):
            assert found[at, other_at] == pytest.approx(by_definition(one, other, band))


def test_a_series_that_runs_slower_is_near_and_another_one_is_not():
    quick, slow = np.array([[0.0], [1.0], [2.0]]), np.array([[0.0], [0.0], [1.0], [1.0], [2.0], [2.0]])
    found = distances([quick, slow, -quick], band=3)
    assert found[0, 1] == 0.0
    assert found[0, 2] > 0.5


def test_no_series_are_no_distances():
    assert distances([], band=3).shape == (0, 0)
