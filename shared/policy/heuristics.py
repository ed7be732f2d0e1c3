"""Heuristic policies: the kube-default blend, least and most allocated, random."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shared.model.constraints import Norms
from shared.policy.observation import Need, Observation, Rng, Supplies, Verdicts
from shared.scheduling.framework import Score
from shared.scheduling.scores import MAX_SCORE, WEIGHTS
from shared.scheduling.scores.allocation import balanced_allocation, least_allocated, most_allocated
from shared.scheduling.scores.preferences import affinity_score, taint_score
from shared.scheduling.scores.profiled import balanced_score, fit_score, weights_of

TAINT_WEIGHT, AFFINITY_WEIGHT = WEIGHTS["TaintToleration"], WEIGHTS["NodeAffinity"]
TOTAL_WEIGHT = TAINT_WEIGHT + AFFINITY_WEIGHT + WEIGHTS["NodeResourcesFit"] + WEIGHTS["NodeResourcesBalancedAllocation"]
"""Of kube-default's own scores: it gives up to so many hundred points."""
FIT_WEIGHT, BALANCED_WEIGHT = WEIGHTS["NodeResourcesFit"], WEIGHTS["NodeResourcesBalancedAllocation"]


def telling(norms: Norms) -> int:
    """Of kube-default's own weights, those of scores in which nodes can differ for a class of these maxima: without a
    taint that counts, or a preference, that score is the same everywhere."""
    weights = FIT_WEIGHT + BALANCED_WEIGHT
    return weights + (TAINT_WEIGHT if norms.taints else 0) + (AFFINITY_WEIGHT if norms.affinity else 0)


class KubeDefault:
    """kube-scheduler's default profile: least allocated + balanced + taints + preferred affinity, and what the user
    brings."""

    name = "kube-default"
    version = 1
    goal = "balance"
    row_local = True
    needs = frozenset({Need.SCORES})

    def __init__(self, scores: tuple[Score, ...] = ()) -> None:
        self._scores = scores

    def supply(self, supplies: Supplies) -> None:
        """Add these scores from now on."""
        self._scores = supplies.scores

    bounds = (0.0, float(MAX_SCORE * TOTAL_WEIGHT))
    """Of its own scores, whatever the class."""

    def bounds_of(self, norms: Norms) -> tuple[float, float]:
        """The least and the greatest score that it can give a class of these maxima."""
        low = 0.0 if norms.taints else float(MAX_SCORE * TAINT_WEIGHT)
        return low, low + MAX_SCORE * (telling(norms) + sum(own.weight for own in self._scores))

    def decide(self, observation: Observation, rng: Rng) -> Verdicts:  # noqa: ARG002
        """The weighted sum of the scores."""
        table, pod_class, rows, norms = (
            observation.table, observation.pod_class, observation.rows, observation.norms,
        )  # fmt: skip
        if pod_class.profile is not None:
            return Verdicts(self._profiled(observation))
        score = FIT_WEIGHT * least_allocated(table, pod_class, rows)
        score = score + BALANCED_WEIGHT * balanced_allocation(table, pod_class, rows)
        score = score + TAINT_WEIGHT * taint_score(table, pod_class, rows, norms)
        score = score + AFFINITY_WEIGHT * affinity_score(table, pod_class, rows, norms)
        for own in self._scores:
            score = score + own.weight * own.raw(table, pod_class, rows)
        return Verdicts(score.astype(np.float64))

    def _profiled(self, observation: Observation) -> NDArray[np.float64]:
        """The same by the weights and arguments of the class's profile."""
        table, pod_class, rows, norms = (
            observation.table, observation.pod_class, observation.rows, observation.norms,
        )  # fmt: skip
        weights, score = weights_of(pod_class), np.zeros(len(rows), np.int64)
        if weight := weights.get("NodeResourcesFit"):
            score = score + weight * fit_score(table, pod_class, rows)
        if weight := weights.get("NodeResourcesBalancedAllocation"):
            score = score + weight * balanced_score(table, pod_class, rows)
        if weight := weights.get("TaintToleration"):
            score = score + weight * taint_score(table, pod_class, rows, norms)
        if weight := weights.get("NodeAffinity"):
            score = score + weight * affinity_score(table, pod_class, rows, norms)
        for own in self._scores:
            score = score + weights.get(own.name, own.weight) * own.raw(table, pod_class, rows)
        return score.astype(np.float64)


class LeastAllocated:
    """The emptiest node first: mean free share of cpu and memory."""

    name = "least-allocated"
    version = 1
    goal = "balance"
    row_local = True
    bounds = (0.0, float(MAX_SCORE))
    _score = staticmethod(least_allocated)

    def decide(self, observation: Observation, rng: Rng) -> Verdicts:  # noqa: ARG002
        """That share, 0..100."""
        score = self._score(observation.table, observation.pod_class, observation.rows)
        return Verdicts(score.astype(np.float64))


class MostAllocated(LeastAllocated):
    """The fullest node that still fits first (bin packing): mean used share."""

    name = "most-allocated"
    goal = "packing"
    _score = staticmethod(most_allocated)


class Random:
    """Any feasible node, uniformly: the floor to compare with."""

    name = "random"
    version = 1
    row_local = False
    agents_agree = True
    bounds = (0.0, 1.0)

    def decide(self, observation: Observation, rng: Rng) -> Verdicts:
        """Independent uniform draws."""
        count = len(observation.rows)
        return Verdicts(np.fromiter((rng.random() for _ in range(count)), np.float64, count))
