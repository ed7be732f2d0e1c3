"""What other pods make of a node: PodTopologySpread and InterPodAffinity, over the feasible nodes of the whole cluster.

So the coordinator scores, and agents add. Source: kube-scheduler 1.36 ``plugins/{podtopologyspread,interpodaffinity}/
scoring.go``.

Spread: ScheduleAnyway constraints, or the system default, prefer domains with fewer pods. Per constraint count *
ln(domains + 2) + (maxSkew - 1), summed and rounded; then 100 * (greatest + least - x) / greatest. Domains are those of
feasible nodes; for the hostname the count is the node's own. Affinity: preferred terms of the pod and of pods that
stand, and required affinity of the latter, normalised between the least and the greatest sum. Terminating pods count.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from shared.model.pod import Pod
from shared.model.terms.relations import NO_RELATIONS
from shared.scheduling.matching.domains import codes_or_absent, per_domain
from shared.scheduling.matching.pod_terms import own_matcher, required_toward, weighted_toward
from shared.scheduling.matching.spread_domains import HOSTNAME, included, pods_per_row, soft_constraints
from shared.scheduling.scores import MAX_SCORE
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.node_table import ABSENT, BoolArray, IntArray


def spread_score(state: ClusterState, pod: Pod, rows: IntArray) -> IntArray | None:
    """``[rows]`` 0..100, normalised over ``rows``, the feasible ones; None when no constraint applies."""
    constraints, own = soft_constraints(state, pod)
    if not constraints or not len(rows):
        return None
    table = state.table
    complete: BoolArray | None = None
    if own:
        complete = table.present[: table.rows].copy()
        for constraint in constraints:
            complete &= codes_or_absent(table, constraint.topology_key) != ABSENT
    scored = rows if complete is None else rows[complete[rows]]
    raw: NDArray[np.float64] = np.zeros(len(scored))
    for constraint in constraints:
        key = constraint.topology_key
        codes = codes_or_absent(table, key).take(scored)
        pods = pods_per_row(state, constraint, pod.namespace)
        if key == HOSTNAME:
            domains, counts = len(scored), pods.take(scored)
        else:
            policy = included(state, pod, constraint)
            for counted in (complete, policy):
                pods = pods if counted is None else pods * counted
            domains = int(np.count_nonzero(np.bincount(codes + 1)))  # that of nodes without the label is one
            counts = per_domain(table, key, pods).take(codes, mode="wrap")
        part = counts * math.log(domains + 2)
        if constraint.max_skew != 1:
            part += float(constraint.max_skew - 1)
        if codes.size and codes.min() == ABSENT:
            part[codes == ABSENT] = 0.0
        raw += part
    scores = _normalised(_rounded(raw))
    if len(scored) == len(rows):
        return scores
    assert complete is not None
    spread = np.zeros(len(rows), np.int64)
    spread[complete[rows]] = scores
    return spread


def _rounded(values: NDArray[np.float64]) -> IntArray:
    """Half away from zero, as Go's math.Round; values are never negative."""
    whole = np.floor(values)
    return (whole + (values - whole >= 0.5)).astype(np.int64)


def _normalised(raw: IntArray) -> IntArray:
    if not len(raw):
        return raw
    least, greatest = int(raw.min()), int(raw.max())
    if greatest == 0:
        return np.full(len(raw), MAX_SCORE, np.int64)
    # one value for each of the few that there are: dividing is the dearest of what numpy does to integers
    worth: IntArray = MAX_SCORE * (greatest - np.arange(greatest - least + 1)) // greatest
    return worth.take(raw - least) if len(worth) <= len(raw) else MAX_SCORE * (greatest + least - raw) // greatest


def interpod_sums(state: ClusterState, pod: Pod) -> IntArray | None:
    """``[rows]``: signed sums of weights; None when no term means anybody."""
    table, index, profile = state.table, state.index, pod.pod_class.profile
    if profile is not None and profile.own_wishes_alone and not (pod.relations or NO_RELATIONS).preferences:
        return None
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
    if profile is not None and profile.hard_affinity != 1:
        for term, carried in required_toward(index, pod, own_labels):
            add(term.topology_key, (profile.hard_affinity - 1) * carried.amounts[: table.rows])
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
