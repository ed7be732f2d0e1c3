"""Filter and score of one pod over the whole cluster at the speed of a scheduling loop: what did not change is kept.

Per class the scores that a node's own accounting decides are kept for all rows and refreshed where rows changed; what
other pods decide is prepared anew for each pod. The totals equal ``scoring.score_nodes``; a test holds them together.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from shared.model.constraints import PodClass
from shared.model.pod import Pod
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.filtering import run_filters
from shared.scheduling.cycle.prefilter import prefilter
from shared.scheduling.cycle.scoring import WEIGHTS, relation_scores
from shared.scheduling.matching.tolerance import PREFER_NO_SCHEDULE
from shared.scheduling.scores.allocation import balanced_allocation, least_allocated
from shared.scheduling.scores.preferences import MAX_SCORE, affinity_preferences, taint_preferences
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.node_table import BoolArray, IntArray, Rows

INFEASIBLE = -1
"""Below every total, which is 0 or more."""

CLASS_LIMIT = 1024


@dataclass(frozen=True, slots=True)
class Evaluation:
    """``mask [rows]``: nodes that take the pod; ``totals [rows]``: their weighted scores, ``INFEASIBLE`` elsewhere."""

    mask: BoolArray
    totals: IntArray

    def best_rows(self) -> IntArray:
        """Rows with the greatest total, among which the caller chooses; none when no node takes the pod."""
        if not len(self.totals):
            return np.zeros(0, np.int64)
        greatest = self.totals.max()
        return np.flatnonzero(self.totals == greatest) if greatest > INFEASIBLE else np.zeros(0, np.int64)


@dataclass(slots=True)
class _ClassScores:
    """``own [rows]``: fit and balance, complete up to stamp ``seen``; ``taints``, ``preferred [rows]``: raw values,
    None where they cannot differ."""

    own: IntArray
    taints: IntArray | None
    preferred: IntArray | None
    seen: int
    static_seen: int


class Evaluator:
    """Evaluates pods against one state."""

    def __init__(self, state: ClusterState, feasibility: FeasibilityCache) -> None:
        self._state = state
        self._feasibility = feasibility
        self._classes: OrderedDict[PodClass, _ClassScores] = OrderedDict()

    def evaluate(self, pod: Pod) -> Evaluation:
        """All filters and scores of the default profile for ``pod``; nothing is changed."""
        state = self._state
        mask = run_filters(state, self._feasibility, prefilter(state, pod), explain=False).mask
        scores = self._scores_of(pod.pod_class)
        totals = np.where(mask, scores.own, INFEASIBLE)
        rows: IntArray | None = None
        if scores.taints is None:
            totals += (WEIGHTS["TaintToleration"] * MAX_SCORE) * mask
        else:
            rows = np.flatnonzero(mask)
            counts = scores.taints[rows]
            greatest = int(counts.max()) if len(rows) else 0
            share = MAX_SCORE - MAX_SCORE * counts // greatest if greatest else MAX_SCORE
            totals[rows] += WEIGHTS["TaintToleration"] * share
        if scores.preferred is not None:
            rows = np.flatnonzero(mask) if rows is None else rows
            sums = scores.preferred[rows]
            greatest = int(sums.max()) if len(rows) else 0
            if greatest:
                totals[rows] += WEIGHTS["NodeAffinity"] * (MAX_SCORE * sums // greatest)
        images = state.images.score(pod.images)
        if images is not None:
            np.add(totals, WEIGHTS["ImageLocality"] * images, out=totals, where=mask)
        if may_relate(state, pod):
            rows = np.flatnonzero(mask) if rows is None else rows
            for name, values in relation_scores(state, pod, rows).items():
                totals[rows] += WEIGHTS[name] * values
        return Evaluation(mask, totals)

    def _scores_of(self, pod_class: PodClass) -> _ClassScores:
        table = self._state.table
        known = self._classes.get(pod_class)
        if known is None or known.static_seen < table.static_stamp or len(known.own) != table.rows:
            soft = any(t.effect == PREFER_NO_SCHEDULE for taints in table.taint_sets for t in taints)
            everywhere = slice(None)
            known = self._classes[pod_class] = _ClassScores(
                own=self._own(pod_class, everywhere),
                taints=taint_preferences(table, pod_class, everywhere) if soft else None,
                preferred=affinity_preferences(table, pod_class, everywhere) if pod_class.preferred_terms else None,
                seen=table.clock,
                static_seen=table.clock,
            )
            if len(self._classes) > CLASS_LIMIT:
                self._classes.popitem(last=False)
            return known
        self._classes.move_to_end(pod_class)
        if known.seen < table.clock:
            rows = table.changed_since(known.seen)
            if len(rows):
                known.own[rows] = self._own(pod_class, rows)
            known.seen = table.clock
        return known

    def _own(self, pod_class: PodClass, rows: Rows) -> IntArray:
        table = self._state.table
        fit = WEIGHTS["NodeResourcesFit"] * least_allocated(table, pod_class, rows)
        return fit + WEIGHTS["NodeResourcesBalancedAllocation"] * balanced_allocation(table, pod_class, rows)


def may_relate(state: ClusterState, pod: Pod) -> bool:
    """Whether other pods may decide its scores; False spares asking."""
    if pod.relations is not None or state.index.weighted:
        return True
    return pod.owner[2] != "" or pod.namespace in state.workloads.services
