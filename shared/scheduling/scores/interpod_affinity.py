"""InterPodAffinity score: preferred terms of the pod and of pods that stand, and required affinity of the latter.

Source: kube-scheduler 1.36 ``plugins/interpodaffinity/scoring.go``. Terminating pods count. Normalised between the
least and the greatest sum over the feasible nodes of the whole cluster, so the coordinator scores and agents add.
"""

from __future__ import annotations

import numpy as np

from shared.model.pod import Pod
from shared.model.relations import NO_RELATIONS
from shared.scheduling.matching.domains import codes_or_absent, per_domain
from shared.scheduling.matching.pod_terms import own_matcher, weighted_toward
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.node_table import ABSENT, IntArray

MAX_SCORE = 100


def interpod_sums(state: ClusterState, pod: Pod) -> IntArray | None:
    """``[rows]``: signed sums of weights; None when no term means anybody."""
    table, index = state.table, state.index
    own_labels = state.namespaces.get(pod.namespace, {})
    index.sync()
    by_key: dict[str, IntArray] = {}

    def add(key: str, amounts: IntArray) -> None:
        by_key[key] = by_key[key] + amounts if key in by_key else amounts

    for preference in (pod.relations or NO_RELATIONS).preferences:
        matcher = own_matcher((preference.term,), state.namespaces)
        add(preference.term.topology_key, preference.weight * index.counts(matcher))
    for term, carried in weighted_toward(index, pod, own_labels):
        add(term.topology_key, carried.amounts[: table.rows])
    sums: IntArray | None = None
    for key, amounts in by_key.items():
        domains = per_domain(table, key, amounts)
        domains[ABSENT] = 0
        part = domains[codes_or_absent(table, key)]
        sums = part if sums is None else sums + part
    return sums


def normalised(sums: IntArray) -> IntArray:
    """``[feasible]`` 0..100 between the least and the greatest, truncated; 0 for all when they are equal."""
    least, greatest = int(sums.min()), int(sums.max())
    if greatest == least:
        return np.zeros(len(sums), np.int64)
    return (MAX_SCORE * ((sums - least) / float(greatest - least))).astype(np.int64)
