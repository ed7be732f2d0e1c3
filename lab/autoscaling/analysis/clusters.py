"""Behaviours: stretches that are alike, whether they go with roles, and whether other seeds show the same ones. Pure.

Clusters are Ward's, on DTW distances, as many as roles were seen; nothing is chosen by looking at the result.

- purity: share of stretches whose role is the most frequent one of their cluster;
- purity of steps: the same with clusters of the steps alone, which know nothing of what was seen;
- stability: the episodes of each seed are clustered by themselves, all stretches are given to the nearest of these
  clusters, and the labels of every two seeds are compared by the adjusted Rand index (Hubert and Arabie 1985).

Ward's criterion is meant for Euclidean distances, which those of DTW are not: the merges are then a heuristic, and
purity and stability say how good it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from lab.autoscaling.analysis.dtw import Floats, distances
from lab.autoscaling.analysis.trajectories import Stretch

BAND = 3
"""Decisions by which two stretches may be shifted against each other."""
MOST = 2400
"""Stretches that are compared; of more, as many are drawn."""
Labels = NDArray[np.int64]


class BehaviourCluster(Struct, frozen=True, kw_only=True):
    """One behaviour. ``roles``: stretches by role; ``steps``: mean step per decision; ``decisions``: mean length."""

    stretches: int
    roles: dict[str, int]
    services: dict[str, int]
    steps: float
    decisions: float


class Behaviours(Struct, frozen=True, kw_only=True):
    """Shares are 0 to 1. ``most_frequent``: the purity that a single cluster would have."""

    clusters: list[BehaviourCluster]
    purity: float
    purity_of_steps: float
    most_frequent: float
    stability: float | None
    """Mean adjusted Rand index over pairs of seeds; None: fewer than two seeds."""
    stability_sd: float
    stretches: int
    compared: int


def behaviours(stretches: Sequence[Stretch], *, seed: int = 0) -> Behaviours:
    """The behaviours of a policy. ``seed``: of the draw, where there are more than ``MOST`` stretches."""
    chosen = _drawn(stretches, seed)
    roles = [one.role for one in chosen]
    count = len(set(roles))
    apart = distances([one.series for one in chosen], band=BAND)
    labels = clustered(apart, count)
    of_steps = clustered(distances([one.series[:, -1:] for one in chosen], band=BAND), count)
    agreement = stability(apart, [one.seed for one in chosen], count)
    return Behaviours(
        clusters=[_cluster([chosen[at] for at in np.flatnonzero(labels == label)]) for label in np.unique(labels)],
        purity=purity(labels, roles),
        purity_of_steps=purity(of_steps, roles),
        most_frequent=purity(np.zeros(len(chosen), np.int64), roles),
        stability=float(np.mean(agreement)) if agreement else None,
        stability_sd=float(np.std(agreement, ddof=1)) if len(agreement) > 1 else 0.0,
        stretches=len(stretches),
        compared=len(chosen),
    )


def clustered(apart: Floats, count: int) -> Labels:
    """int [series], from 0: at most ``count`` clusters by Ward's criterion."""
    if len(apart) < 2:
        return np.zeros(len(apart), np.int64)
    found: Labels = fcluster(linkage(squareform(apart, checks=False), "ward"), count, "maxclust").astype(np.int64) - 1
    return found


def purity(labels: Labels, roles: Sequence[str]) -> float:
    """Share of those whose role is the most frequent of their cluster."""
    if not roles:
        return 1.0
    by_cluster: dict[int, Counter[str]] = {}
    for label, role in zip(labels.tolist(), roles, strict=True):
        by_cluster.setdefault(label, Counter())[role] += 1
    return sum(max(counts.values()) for counts in by_cluster.values()) / len(roles)


def stability(apart: Floats, seeds: Sequence[int], count: int) -> list[float]:
    """The adjusted Rand index of each pair of seeds; see the module."""
    from sklearn.metrics import adjusted_rand_score

    given = np.array(seeds)
    labels = []
    for seed in dict.fromkeys(seeds):
        own = np.flatnonzero(given == seed)
        found = clustered(apart[np.ix_(own, own)], count)
        to_each = [apart[:, own[found == label]].mean(axis=1) for label in np.unique(found)]
        labels.append(np.argmin(to_each, axis=0))
    return [float(adjusted_rand_score(one, other)) for one, other in combinations(labels, 2)]


def _drawn(stretches: Sequence[Stretch], seed: int) -> list[Stretch]:
    if len(stretches) <= MOST:
        return list(stretches)
    at = np.random.default_rng(seed).choice(len(stretches), MOST, replace=False)
    return [stretches[int(one)] for one in np.sort(at)]


def _cluster(members: Sequence[Stretch]) -> BehaviourCluster:
    return BehaviourCluster(
        stretches=len(members),
        roles=dict(Counter(one.role for one in members).most_common()),
        services=dict(Counter(one.service for one in members).most_common()),
        steps=float(np.mean(np.concatenate([one.series[:, -1] for one in members]))),
        decisions=float(np.mean([len(one.series) for one in members])),
    )
