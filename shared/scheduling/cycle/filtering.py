"""Filter over the whole cluster for one pod: which nodes take it, and why each other does not.

Node-local filters come from the class's cached mask, rules that need the cluster from ``prefilter``. A node with
nominated pods that the pod must yield to has to take it both with and without them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from shared.scheduling.cycle.dry_run import DryRun
from shared.scheduling.cycle.feasibility import Diagnosis, FeasibilityCache
from shared.scheduling.cycle.nominated import Contested, yielding
from shared.scheduling.cycle.prefilter import NOT_NAMED, Prefiltered
from shared.scheduling.devices.rule import DynamicResources
from shared.scheduling.filters import LAST
from shared.scheduling.framework import Rejection
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.node_table import BoolArray


@dataclass(frozen=True, slots=True)
class Filtered:
    """``mask [rows]``: nodes that take the pod. ``contested``: rejections by row that nominated pods cause, to read
    before anything changes."""

    mask: BoolArray
    contested: Contested


def run_filters(
    state: ClusterState, feasibility: FeasibilityCache, prefiltered: Prefiltered, *, explain: bool = True
) -> Filtered:
    """Every filter on every node; nothing is changed.

    ``explain`` False: of nodes that fail anyway it is not asked whether nominated pods are the first reason.
    """
    table, pod = state.table, prefiltered.pod
    # A copy: the class's own verdict is everybody's, and rules write into this one below.
    mask: BoolArray = feasibility.of(pod.pod_class).mask.copy()
    if prefiltered.rejection is not None:
        mask[:] = False
        return Filtered(mask, Contested.none(table.rows))
    for rule in prefiltered.rules:
        # No node at all, as upstream: else the answer would depend on which nodes happened to be asked.
        if isinstance(rule, DynamicResources) and rule.fails(mask):
            mask[:] = False
        mask &= rule.mask()
    if prefiltered.named is not None:
        named: BoolArray = np.zeros(table.rows, np.bool_)
        named[[table.row_of[name] for name in prefiltered.named if name in table.row_of]] = True
        mask &= named
    if not state.nominated or not (explain or mask.any()):
        return Filtered(mask, Contested.none(table.rows))
    if not prefiltered.rules:
        found = yielding(state, feasibility).contested(pod, None if explain else mask)
        mask &= ~found.mask
        return Filtered(mask, found)
    contested = Contested.none(table.rows)
    for node_name in state.nominated:
        row = table.row_of.get(node_name)
        if row is None or not (explain or mask[row]):
            continue
        others = state.nominated_on(node_name, pod)
        if others:
            dry_run = DryRun(state, feasibility, prefiltered, row)
            for other in others:
                dry_run.add(other)
            # With them alone: that the node takes it without, the mask has said.
            rejection = dry_run.rejection()
            if rejection is not None:
                contested.put(row, rejection)
                mask[row] = False
    return Filtered(mask, contested)


def rejection_of(
    feasibility: FeasibilityCache, prefiltered: Prefiltered, filtered: Filtered, row: int
) -> tuple[Rejection, bool] | None:
    """Why the node of ``row`` does not take the pod, and whether that was said before it was looked at (PreFilter);
    None when it does."""
    if prefiltered.rejection is not None:
        return prefiltered.rejection, True
    if prefiltered.named is not None and feasibility.table.names[row] not in prefiltered.named:
        return NOT_NAMED, True
    if row in filtered.contested:
        return filtered.contested[row], False
    if filtered.mask[row]:
        return None
    found = _alone_refuses(feasibility, prefiltered, row)
    return None if found is None else (found, False)


def refusal_at(feasibility: FeasibilityCache, prefiltered: Prefiltered, row: int) -> Rejection | None:
    """Why one node does not take the pod as it stands, whoever is nominated there; None when it does."""
    if prefiltered.rejection is not None:
        return prefiltered.rejection
    if prefiltered.named is not None and feasibility.table.names[row] not in prefiltered.named:
        return NOT_NAMED
    return _alone_refuses(feasibility, prefiltered, row)


def _alone_refuses(feasibility: FeasibilityCache, prefiltered: Prefiltered, row: int) -> Rejection | None:
    local = feasibility.rejection(prefiltered.pod.pod_class, row)
    # Before the last filter's word the rules have theirs: a node is told by its first reason in upstream's order.
    if local is None or local.plugin == LAST:
        for rule in prefiltered.rules:
            verdict = rule.verdict(row)
            if verdict is not None:
                return Rejection(rule.name, *verdict)
    return local


def diagnose(state: ClusterState, feasibility: FeasibilityCache, prefiltered: Prefiltered) -> Diagnosis:
    """How often each reason rejects, over all nodes, for a pod that no node takes: what users read.

    The same reasons as ``rejection_of`` gives node by node, counted by arrays.
    """
    table = state.table
    if prefiltered.rejection is not None:
        found = prefiltered.rejection
        count = len(table.row_of)
        return Diagnosis(
            count, 0, dict.fromkeys(found.reasons, count), frozenset((found.plugin,)), ", ".join(found.reasons)
        )
    # In upstream's order, each node under its first reason alone: the counts of the message add up to all nodes.
    filtered = run_filters(state, feasibility, prefiltered)
    rows = table.live_rows()
    reasons: Counter[str] = Counter()
    plugins: set[str] = set()
    if prefiltered.named is not None:
        named = np.fromiter((table.names[row] in prefiltered.named for row in rows.tolist()), np.bool_, len(rows))
        if not named.all():
            reasons.update(dict.fromkeys(NOT_NAMED.reasons, int((~named).sum())))
            plugins.add(NOT_NAMED.plugin)
        rows = rows[named]
    contested = filtered.contested
    if prefiltered.named is None:
        reasons.update(contested.reasons)
        plugins.update(contested.plugins)
    else:
        for row in rows[contested.mask[rows]].tolist():
            reasons.update(contested[row].reasons)
            plugins.add(contested[row].plugin)
    rows = rows[~contested.mask[rows]]
    rows = feasibility.sift(prefiltered.pod.pod_class, rows, reasons, plugins, last=False)
    for rule in prefiltered.rules:
        passing = rule.mask()[rows]
        if not passing.all():
            reasons.update(rule.tally(rows[~passing]))
            plugins.add(rule.name)
        rows = rows[passing]
    feasibility.sift(prefiltered.pod.pod_class, rows, reasons, plugins, last=True)
    return Diagnosis(len(table.row_of), int(filtered.mask.sum()), dict(reasons), frozenset(plugins))
