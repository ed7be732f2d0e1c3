"""Rewards of marl-dqn: the thesis' utilisation bands as published, and the balance that its experiment is judged by.

Both are read ``T_i`` = 15 s after the binding (thesis, section 4.1.3) from every node's utilisation. Pure functions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shared.policy.usage.utilisation import UtilisationStore
from shared.policy.usage.views import BALANCE_UNIT, MOST_COST, view_now
from shared.scheduling.state.node_table import NodeTable

FloatArray = NDArray[np.float64]

LOW, HIGH, DANGER = 0.5, 0.8, 0.9
DANGER_REWARD = -60.0
BAND_PARTS = 3
"""cpu, memory, disk: what the thesis rewards by."""
BAND_UNIT = 10.0
"""What of it counts as 1 for who learns: networks are trained on rewards of this size, in the twin and live."""


def band(share: FloatArray) -> FloatArray:
    """Reward of one utilisation, elementwise (thesis, section 4.1.2).

    Below 50 %: minus the distance in points; 50..80 %: how far up the band, 0..10; above 80 %: minus the distance in
    points; from 90 % on -60. The thesis gives the signs, the bounds and -60, not the scales.
    """
    points = share * 100.0
    return np.where(
        share >= DANGER,
        DANGER_REWARD,
        np.where(share > HIGH, 80.0 - points, np.where(share >= LOW, (points - 50.0) / 3.0, points - 50.0)),
    )


def band_reward(utilisation: FloatArray) -> FloatArray:
    """``utilisation`` [nodes, >= 3] to [nodes]: mean of the node's own bands and of the cluster's (thesis 4.1.2)."""
    parts = np.minimum(utilisation[:, :BAND_PARTS], 1.0)
    local = band(parts).sum(axis=1)
    together = float(band(parts.mean(axis=0)).sum())
    mean: FloatArray = (local + together) / (2 * BAND_PARTS)
    return mean


def band_now(table: NodeTable, row: int, store: UtilisationStore, cluster: FloatArray) -> float:
    """The same of the node of ``row`` as it is now, by what it was measured to use, in ``BAND_UNIT``; ``cluster``: what
    is told of all nodes (``usage.views.SUMMARY``), of which the means of the parts count."""
    parts = np.minimum(view_now(table, row, store).use.parts[0, 0, :BAND_PARTS], 1.0)
    together = band(np.clip(cluster[:BAND_PARTS], 0.0, 1.0))
    return float((band(parts).sum() + together.sum()) / (2 * BAND_PARTS)) / BAND_UNIT


def balance_potential(utilisation: FloatArray, counted: NDArray[np.bool_] | None = None) -> FloatArray:
    """[nodes]: minus the squared distance of each node's highest part from the mean, in units of ``BALANCE_UNIT``.

    Its mean over nodes is minus the variance that the imbalance of targets T3 is the root of, so what every agent
    gains for itself adds up to what the cluster gains.
    """
    highest = utilisation.max(axis=1)
    mean = highest.mean() if counted is None or not counted.any() else highest[counted].mean()
    cost: FloatArray = np.minimum(((highest - mean) / BALANCE_UNIT) ** 2, MOST_COST)
    return -cost


def balance_reward(utilisation: FloatArray) -> FloatArray:
    """[nodes]: mean of the local and the global part, as the thesis averages them."""
    local = balance_potential(utilisation)
    mean: FloatArray = 0.5 * (local + local.mean())
    return mean
