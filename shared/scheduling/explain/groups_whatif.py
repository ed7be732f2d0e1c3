"""What some scheduling cycles would do to all pending pods of a cluster that is given whole, groups among them.

kube-scheduler's rule (1.36, gates GenericWorkload and GangScheduling): the unit of the most important pod comes first;
all queued members of its group go with it and are tried on one state, each on its best node, in one order only; below
the minimum none is bound. The mesh places more: what another order could place (``groups/placing.py``) is told apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from shared.model.pod import Pod
from shared.model.pod_group import PodGroup
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.filtering import run_filters
from shared.scheduling.cycle.prefilter import prefilter
from shared.scheduling.cycle.scoring import score_nodes
from shared.scheduling.framework import Rejection
from shared.scheduling.gates import entry_rejection
from shared.scheduling.groups.placing import try_group
from shared.scheduling.groups.quorum import quorum_rejection
from shared.scheduling.state.cluster_state import ClusterState


@dataclass(slots=True)
class UnitsOutcome:
    """``bound``: nodes by uid; ``gated``: why pods are not queued, by uid; ``reordered``: by group the nodes, by uid,
    that its members would get in another order than kube-scheduler's, which places none of them."""

    bound: dict[str, str] = field(default_factory=dict)
    gated: dict[str, Rejection] = field(default_factory=dict)
    reordered: dict[str, dict[str, str]] = field(default_factory=dict)


def what_if_units(state: ClusterState, pods: Sequence[Pod], cycles: int) -> UnitsOutcome:
    """What ``cycles`` cycles do to ``pods``: all there are, bound and pending. ``state`` holds what is bound by then."""
    outcome = UnitsOutcome()
    pods = [pod for pod in pods if not pod.finished]
    members: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.group:
            members.setdefault(pod.group, []).append(pod)
    queued = []
    for pod in pods:
        if pod.node_name or pod.terminating:
            continue
        group = state.pod_groups.get(pod.group)
        gated = entry_rejection(pod) or quorum_rejection(pod, group, len(members.get(pod.group, ())))
        if gated is None:
            queued.append(pod)
        else:
            outcome.gated[pod.uid] = gated
    feasibility = FeasibilityCache(state.table)
    queued.sort(key=lambda pod: -pod.priority)
    for _ in range(cycles):
        if not queued:
            break
        first = queued[0]
        unit = [pod for pod in queued if pod is first or (first.group and pod.group == first.group)]
        queued = [pod for pod in queued if pod not in unit]
        group = state.pod_groups.get(first.group)
        bound = [pod for pod in members.get(first.group, ()) if pod.node_name]
        placed = _greedy(state, feasibility, unit)
        if group is not None and group.gang and len(bound) + len(placed) < group.min_count:
            for uid in placed:
                state.forget(uid)
            _note_reordered(outcome, state, feasibility, group, unit, bound)
        else:
            outcome.bound |= placed
    return outcome


def _greedy(state: ClusterState, feasibility: FeasibilityCache, unit: Sequence[Pod]) -> dict[str, str]:
    """Each member on its best node beside those before it; of equally good nodes the first by name."""
    placed = {}
    for pod in unit:
        mask = run_filters(state, feasibility, prefilter(state, pod), explain=False).mask
        rows = np.flatnonzero(mask)
        if not len(rows):
            continue
        totals = np.sum(list(score_nodes(state, pod, rows).values()), axis=0)
        best = [state.table.names[row] for row in rows[totals == totals.max()].tolist()]
        node = pod.nominated_node if pod.nominated_node in {state.table.names[r] for r in rows.tolist()} else min(best)
        state.assume(pod, node, 0.0)
        placed[pod.uid] = node
    return placed


def _note_reordered(
    outcome: UnitsOutcome,
    state: ClusterState,
    feasibility: FeasibilityCache,
    group: PodGroup,
    unit: Sequence[Pod],
    bound: Sequence[Pod],
) -> None:
    attempt = try_group(state, feasibility, group, unit, bound)
    if attempt.reached:
        outcome.reordered[group.title] = attempt.nodes
