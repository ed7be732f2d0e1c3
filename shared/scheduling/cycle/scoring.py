"""Score over the feasible nodes for one pod: kube-scheduler's default profile, normalised and weighted per plugin.

Source: kube-scheduler 1.36 ``framework/runtime`` (order of normalising and weighting). A plugin that skips itself has
no entry and counts 0 for every node.
"""

from __future__ import annotations

import numpy as np

from shared.model.constraints import NO_NORMS, Norms, PodClass
from shared.model.pod import Pod
from shared.model.resources import CPU, MEMORY
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.framework import Score
from shared.scheduling.matching.tolerance import PREFER_NO_SCHEDULE
from shared.scheduling.scores.preferences import (
    affinity_preferences,
    affinity_score,
    taint_preferences,
    taint_score,
)
from shared.scheduling.scores.profiled import balanced_score, fit_score, weights_of
from shared.scheduling.scores.relations import interpod_sums, normalised, spread_score
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.node_table import IntArray, NodeTable

Scores = dict[str, IntArray]
"""Per plugin ``[rows]``: weighted scores."""


def score_nodes(state: ClusterState, pod: Pod, rows: IntArray, brought: tuple[Score, ...] = ()) -> Scores:
    """Scores of the feasible ``rows``, also those that the user ``brought``; a node's total is their sum."""
    table, pod_class = state.table, pod.pod_class
    norms = norms_over(table, pod_class, rows)
    scores: Scores = {
        "TaintToleration": taint_score(table, pod_class, rows, norms) + np.zeros(len(rows), np.int64),
        "NodeResourcesFit": fit_score(table, pod_class, rows),
    }
    if pod_class.preferred_terms:
        scores["NodeAffinity"] = affinity_score(table, pod_class, rows, norms) + np.zeros(len(rows), np.int64)
    profile = pod_class.profile
    balanced = (CPU, MEMORY) if profile is None or profile.balanced is None else profile.balanced
    if any(name in balanced for name, _ in pod_class.requests):
        scores["NodeResourcesBalancedAllocation"] = balanced_score(table, pod_class, rows)
    images = state.images.score(pod.images)
    scores["ImageLocality"] = np.zeros(len(rows), np.int64) if images is None else images[rows]
    scores.update(relation_scores(state, pod, rows))
    weights = weights_of(pod_class)
    # Each is normalised over the feasible nodes first, then weighted: the other way round totals are not upstream's.
    weighted = {name: weights[name] * values for name, values in scores.items()}
    of_users = {one.name: weights.get(one.name, one.weight) * one.raw(table, pod_class, rows) for one in brought}
    return weighted | of_users


def relation_scores(state: ClusterState, pod: Pod, rows: IntArray) -> Scores:
    """0..100 per plugin, unweighted: what other pods decide. An agent cannot compute these from its own nodes."""
    scores: Scores = {}
    spread = spread_score(state, pod, rows)
    if spread is not None:
        scores["PodTopologySpread"] = spread
    sums = interpod_sums(state, pod)
    if sums is not None and len(rows):
        scores["InterPodAffinity"] = normalised(sums[rows])
    return scores


def norms_over(table: NodeTable, pod_class: PodClass, rows: IntArray) -> Norms:
    """What normalised scores are divided by when exactly ``rows`` are feasible."""
    if not len(rows) or not _told_apart(table, pod_class):
        return NO_NORMS
    taints = int(taint_preferences(table, pod_class, rows).max())
    affinity = int(affinity_preferences(table, pod_class, rows).max()) if pod_class.preferred_terms else 0
    return Norms(taints, affinity)


def _told_apart(table: NodeTable, pod_class: PodClass) -> bool:
    """Whether any normalised score may differ between nodes: there is a soft taint, or the class prefers something."""
    return bool(pod_class.preferred_terms) or any(
        taint.effect == PREFER_NO_SCHEDULE for taints in table.taint_sets for taint in taints
    )


def norms_of(feasibility: FeasibilityCache, pod_class: PodClass) -> Norms:
    """What they are divided by for one class; free where no node has a soft taint and the class prefers nothing."""
    table = feasibility.table
    if not _told_apart(table, pod_class):
        return NO_NORMS
    return norms_over(table, pod_class, np.flatnonzero(feasibility.of(pod_class).mask))
