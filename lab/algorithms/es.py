"""Evolution strategies: weights are tried with noise added and taken away, and moved towards what did better.

Pairs of opposite noise (antithetic sampling), ranks in place of what was reached, and Adam over the estimated gradient.
Sources: Salimans et al. 2017 (OpenAI-ES), Wierstra et al. 2014 (ranks), Kingma and Ba 2015 (Adam).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Arrays = Mapping[str, NDArray[np.float32]]


def flat_of(arrays: Arrays) -> Floats:
    """All weights in one row, by name."""
    return np.concatenate([arrays[name].ravel() for name in sorted(arrays)]).astype(float)


def arrays_of(theta: Floats, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[np.float32]]:
    """The other way."""
    found, at = {}, 0
    for name in sorted(shapes):
        size = int(np.prod(shapes[name]))
        found[name] = theta[at : at + size].reshape(shapes[name]).astype(np.float32)
        at += size
    return found


def population(theta: Floats, noise: Floats, sigma: float) -> list[Floats]:
    """Who is tried: ``theta`` with each row of ``noise`` added, then taken away."""
    return [theta + sign * sigma * one for one in noise for sign in (1.0, -1.0)]


def gradient_of(costs: Floats, noise: Floats, sigma: float) -> Floats:
    """Which way it gets better, by ``costs`` [pairs, 2, episodes] of the population on the same episodes.

    Each episode's are taken beside the population's mean on it: a heavy one is not to count more. Only ranks count, so
    one that went very badly moves the weights no further than the last of them always does.
    """
    relative = (costs / costs.mean(axis=(0, 1), keepdims=True)).mean(axis=2)
    ranks = relative.ravel().argsort().argsort().reshape(relative.shape) / (relative.size - 1) - 0.5
    found: Floats = -((ranks[:, 0] - ranks[:, 1]) @ noise / (2 * len(noise) * sigma))
    return found


def ascend(theta: Floats, moments: Floats, gradient: Floats, step: int, rate: float) -> Floats:
    """Where ``theta`` is after one step of Adam, its ``step``-th from 1 on; ``moments`` [2, weights] move along."""
    moments[0] = 0.9 * moments[0] + 0.1 * gradient
    moments[1] = 0.99 * moments[1] + 0.01 * gradient**2
    mean, square = moments[0] / (1 - 0.9**step), moments[1] / (1 - 0.99**step)
    found: Floats = theta + rate * mean / (np.sqrt(square) + 1e-8)
    return found
