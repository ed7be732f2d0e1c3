"""Heuristic policies: the kube-default blend, least and most allocated, random."""

from __future__ import annotations

import numpy as np

from shared.policy.observation import Observation, Rng, Verdicts
from shared.scheduling.scores.allocation import balanced_allocation, least_allocated, most_allocated
from shared.scheduling.scores.preferences import affinity_score, taint_score

TAINT_WEIGHT, AFFINITY_WEIGHT, FIT_WEIGHT, BALANCED_WEIGHT = 3, 2, 1, 1
"""Weights of kube-scheduler's default profile (``apis/config/v1/default_plugins.go``)."""


class KubeDefault:
    """kube-scheduler's default profile: least allocated + balanced + taints + preferred affinity."""

    name = "kube-default"
    version = 1
    row_local = True

    def decide(self, observation: Observation, rng: Rng) -> Verdicts:  # noqa: ARG002
        """The weighted sum of the plugins' scores."""
        table, pod_class, rows, norms = (
            observation.table, observation.pod_class, observation.rows, observation.norms,
        )  # fmt: skip
        score = FIT_WEIGHT * least_allocated(table, pod_class, rows)
        score = score + BALANCED_WEIGHT * balanced_allocation(table, pod_class, rows)
        score = score + TAINT_WEIGHT * taint_score(table, pod_class, rows, norms)
        score = score + AFFINITY_WEIGHT * affinity_score(table, pod_class, rows, norms)
        return Verdicts(score.astype(np.float64))


class LeastAllocated:
    """The emptiest node first."""

    name = "least-allocated"
    version = 1
    row_local = True

    def decide(self, observation: Observation, rng: Rng) -> Verdicts:  # noqa: ARG002
        """Mean free share of cpu and memory."""
        score = least_allocated(observation.table, observation.pod_class, observation.rows)
        return Verdicts(score.astype(np.float64))


class MostAllocated:
    """The fullest node that still fits first (bin packing)."""

    name = "most-allocated"
    version = 1
    row_local = True

    def decide(self, observation: Observation, rng: Rng) -> Verdicts:  # noqa: ARG002
        """Mean used share of cpu and memory."""
        score = most_allocated(observation.table, observation.pod_class, observation.rows)
        return Verdicts(score.astype(np.float64))


class Random:
    """Any feasible node, uniformly: the floor to compare with."""

    name = "random"
    version = 1
    row_local = False

    def decide(self, observation: Observation, rng: Rng) -> Verdicts:
        """Independent uniform draws."""
        count = len(observation.rows)
        return Verdicts(np.fromiter((rng.random() for _ in range(count)), np.float64, count))
