"""k-means, small and reproducible: groups of like decisions for a report. scikit-learn is not a dependency.

Features are scaled to mean 0 and deviation 1 first, since their units differ. First centres by k-means++ (Arthur and
Vassilvitskii, SODA 2007), then Lloyd's iterations (Lloyd, IEEE Trans. Inf. Theory 28, 1982) until nothing moves; the
best of ``STARTS`` starts by the sum of squares counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

STARTS = 8
MAX_ITERATIONS = 100

Points = NDArray[np.float64]
Labels = NDArray[np.int64]


def k_means(points: Points, groups: int, *, seed: int) -> Labels:
    """The group of each row of ``points [count, features]``: int64 ``[count]``, groups numbered by first appearance.

    At most ``groups`` groups, fewer where there are fewer distinct rows. Raises ``ValueError`` for no row or a number
    that is not finite.
    """
    if points.ndim != 2 or not len(points) or not np.isfinite(points).all():
        raise ValueError("k-means needs at least one row of finite numbers")
    deviation = points.std(axis=0)
    scaled = (points - points.mean(axis=0)) / np.where(deviation > 1e-12, deviation, 1.0)
    count = min(groups, len(np.unique(scaled, axis=0)))
    rng = np.random.default_rng(seed)
    found = [_lloyd(scaled, _first_centres(scaled, count, rng)) for _ in range(STARTS)]
    best = min(found, key=lambda one: one[1])[0]
    _, first = np.unique(best, return_index=True)
    order = {int(best[index]): number for number, index in enumerate(sorted(first))}
    return np.array([order[int(label)] for label in best], np.int64)


def _first_centres(points: Points, count: int, rng: np.random.Generator) -> Points:
    chosen = [int(rng.integers(len(points)))]
    while len(chosen) < count:
        distance = _distances(points, points[chosen]).min(axis=1)
        chosen.append(int(rng.choice(len(points), p=distance / distance.sum())))
    return points[chosen]


def _lloyd(points: Points, centres: Points) -> tuple[Labels, float]:
    labels = _distances(points, centres).argmin(axis=1)
    for _ in range(MAX_ITERATIONS):
        for label in range(len(centres)):
            inside = labels == label
            if inside.any():  # an empty group keeps its centre
                centres[label] = points[inside].mean(axis=0)
        moved = _distances(points, centres).argmin(axis=1)
        if np.array_equal(moved, labels):
            break
        labels = moved
    return labels, float(_distances(points, centres).min(axis=1).sum())


def _distances(points: Points, centres: Points) -> Points:
    """Squared distances ``[count, centres]``."""
    differences = points[:, None, :] - centres[None, :, :]
    found: Points = np.einsum("pcf,pcf->pc", differences, differences)
    return found
