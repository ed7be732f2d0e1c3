"""TaintToleration (PreferNoSchedule) and NodeAffinity (preferred terms): raw values and their normalisation.

Both are normalised over the feasible nodes of the whole cluster, which an agent does not see; the coordinator sends
the maxima along (``Norms``). Source: kube-scheduler 1.36 ``plugins/{tainttoleration,nodeaffinity}``,
``plugins/helper/normalize_score.go``.
"""

from __future__ import annotations

import numpy as np

from shared.model.constraints import Norms, PodClass
from shared.scheduling.matching.selectors import term_mask
from shared.scheduling.matching.tolerance import untolerated_preferences
from shared.scheduling.scores import MAX_SCORE
from shared.scheduling.state.node_table import IntArray, NodeTable, Rows


def taint_preferences(table: NodeTable, pod_class: PodClass, rows: Rows) -> IntArray:
    """``[rows]``: untolerated PreferNoSchedule taints."""
    counts = np.fromiter(
        (untolerated_preferences(pod_class.tolerations, taints) for taints in table.taint_sets),
        np.int64,
        len(table.taint_sets),
    )
    return counts[table.taint_set[: table.rows][rows]]


def affinity_preferences(table: NodeTable, pod_class: PodClass, rows: Rows) -> IntArray:
    """``[rows]``: sum of the weights of matching preferred terms; an empty preference matches nothing."""
    weights = np.zeros(table.rows, np.int64)
    for preferred in pod_class.preferred_terms:
        weights += preferred.weight * term_mask(table, preferred.term)
    return weights[rows]


def taint_score(table: NodeTable, pod_class: PodClass, rows: Rows, norms: Norms) -> IntArray | int:
    """``[rows]`` 0..100: fewer untolerated preferences are better; 100 for all where there are none."""
    if not norms.taints:
        return MAX_SCORE
    return MAX_SCORE - MAX_SCORE * taint_preferences(table, pod_class, rows) // norms.taints


def affinity_score(table: NodeTable, pod_class: PodClass, rows: Rows, norms: Norms) -> IntArray | int:
    """``[rows]`` 0..100: share of the greatest sum of weights."""
    if not norms.affinity:
        return 0
    return MAX_SCORE * affinity_preferences(table, pod_class, rows) // norms.affinity
