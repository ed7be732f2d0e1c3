"""What would happen to one pod in one cluster: the full verdict of the default profile, without touching anything.

One cycle of one pod, as kube-scheduler's: gates, PreFilter, Filter, Score, and preemption when no node takes it.
Choosing among equals is left to the caller, who has the randomness.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from msgspec import Struct

from shared.model.pod import Pod
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.filtering import rejection_of, run_filters
from shared.scheduling.cycle.prefilter import prefilter
from shared.scheduling.cycle.scoring import score_nodes
from shared.scheduling.framework import Code, Rejection
from shared.scheduling.gates import entry_rejection
from shared.scheduling.preemption.preemption import Preemption, plan_preemption
from shared.scheduling.state.cluster_state import ClusterState

PRE_ENQUEUE, PRE_FILTER, FILTER = "PreEnqueue", "PreFilter", "Filter"


class NodeRejection(Struct, frozen=True):
    """Why one node does not take the pod, and at which stage that was found."""

    rejection: Rejection
    stage: str


@dataclass(frozen=True, slots=True)
class WhatIfOutcome:
    """``feasible`` sorted; ``scores``: per feasible node the weighted scores per plugin; ``totals``: their sums;
    ``best``: the nodes the pod may go to. ``preemption`` None: not asked, since some node takes the pod or it is
    not tried at all (``gated``)."""

    feasible: tuple[str, ...] = ()
    infeasible: dict[str, NodeRejection] = field(default_factory=dict)
    scores: dict[str, dict[str, int]] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    best: tuple[str, ...] = ()
    gated: Rejection | None = None
    preemption: Preemption | None = None


def what_if(state: ClusterState, feasibility: FeasibilityCache, pod: Pod) -> WhatIfOutcome:
    """The verdict for ``pod``, which need not be part of ``state``. ``feasibility`` is over the state's table."""
    table = state.table
    gated = entry_rejection(pod)
    if gated is not None:
        everywhere = {name: NodeRejection(gated, PRE_ENQUEUE) for name in sorted(table.row_of)}
        return WhatIfOutcome(infeasible=everywhere, gated=gated)
    prefiltered = prefilter(state, pod)
    filtered = run_filters(state, feasibility, prefiltered)
    infeasible: dict[str, NodeRejection] = {}
    codes: list[tuple[int, Code]] = []
    for name, row in sorted(table.row_of.items()):
        found = rejection_of(feasibility, prefiltered, filtered, row)
        if found is not None:
            rejection, early = found
            infeasible[name] = NodeRejection(rejection, PRE_FILTER if early else FILTER)
            codes.append((row, rejection.code))
    rows = np.flatnonzero(filtered.mask)
    if not len(rows):
        return WhatIfOutcome(infeasible=infeasible, preemption=plan_preemption(state, feasibility, prefiltered, codes))
    scores = score_nodes(state, pod, rows, feasibility.profile.scores)
    names = [table.names[row] for row in rows.tolist()]
    totals = np.sum(list(scores.values()), axis=0)
    per_node = {name: {plugin: int(values[i]) for plugin, values in scores.items()} for i, name in enumerate(names)}
    greatest = totals.max()
    best = [name for i, name in enumerate(names) if totals[i] == greatest]
    if pod.nominated_node in per_node:
        best = [pod.nominated_node]
    return WhatIfOutcome(
        feasible=tuple(sorted(names)),
        infeasible=infeasible,
        scores=per_node,
        totals={name: int(totals[i]) for i, name in enumerate(names)},
        best=tuple(sorted(best)),
    )
