"""What coordinator and agents arrive at together for one pod, without messages between them."""

from __future__ import annotations

import numpy as np

from shared.model.pod import Pod
from shared.policy.ranking import Ranker
from shared.scheduling.cycle.constraints import guidance_for
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.state.cluster_state import ClusterState


def totals_of(state: ClusterState, feasibility: FeasibilityCache, ranker: Ranker, pod: Pod) -> dict[str, int]:
    """By node that takes the pod its total: the coordinator's PreFilter, then the ranking of one agent of all nodes."""
    guidance = guidance_for(state, feasibility, pod)
    rows = np.flatnonzero(feasibility.of(pod.pod_class).mask if guidance.mask is None else guidance.mask)
    if guidance.rejection is not None or not len(rows):
        return {}
    added = np.zeros(state.table.rows) if guidance.scores is None else guidance.scores.astype(np.float64)
    slots = ranker.guided(pod.pod_class, len(rows), rows, added, norms=guidance.norms)
    return {state.table.names[slot.row]: int(slot.score) for slot in slots}
