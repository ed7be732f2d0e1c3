"""Quantiles as everything here tells them: by nearest rank, so that each is a value that was seen."""

from __future__ import annotations

from collections.abc import Iterable


def nearest_rank(values: Iterable[float], *shares: float) -> list[float]:
    """For each share (0 to 1) the smallest value that at least that share of all do not exceed; 0.0 without values."""
    import numpy as np  # when first asked: a process that tells no figures does without it

    found = np.fromiter(values, np.float64)
    if not len(found):
        return [0.0] * len(shares)
    quantiles: list[float] = np.quantile(found, shares, method="inverted_cdf").tolist()
    return quantiles
