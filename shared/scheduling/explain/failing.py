"""Every rule that refuses a pod, per node, and not the first alone: what would have to change for a node to take it.

A rule at a time over all nodes, by arrays. Beside ``filtering.rejection_of``, which tells the first as kube-scheduler
does: a node that is cordoned and has the wrong labels is not opened by uncordoning it. Pure; it changes nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from shared.model.pod import Pod
from shared.scheduling.cycle.feasibility import FeasibilityCache, unavailable_message
from shared.scheduling.cycle.filtering import Filtered, run_filters
from shared.scheduling.cycle.prefilter import NODE_AFFINITY, NOT_NAMED, Prefiltered, prefilter
from shared.scheduling.filters.static import DRAINED
from shared.scheduling.framework import Rejection
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.node_table import BoolArray, IntArray, NodeTable

SAMPLED_ROWS = 64
"""Rows of a rule beyond the nodes' own whose reasons are read one by one; the others count as these do."""


@dataclass(frozen=True, slots=True)
class FailingRule:
    """One rule that refuses one node."""

    plugin: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failing:
    """``rows``: of all nodes; ``fails [len(rows)]`` per rule that refuses any, in the order in which rules are asked.

    ``count [len(rows)]``: how many rules refuse the node; 0: it takes the pod, unless nominated pods have its room
    (``filtered.contested``).
    """

    rows: IntArray
    fails: dict[str, BoolArray]
    count: IntArray
    prefiltered: Prefiltered
    filtered: Filtered

    def only(self, plugin: str) -> IntArray:
        """Rows that this rule alone refuses."""
        fails = self.fails.get(plugin)
        return self.rows[:0] if fails is None else self.rows[fails & (self.count == 1)]

    def beside(self, plugin: str, rows: IntArray) -> list[str]:
        """The rules that refuse any of ``rows`` beside ``plugin``."""
        looked_at = np.isin(self.rows, rows)
        return [name for name, fails in self.fails.items() if name != plugin and bool((fails & looked_at).any())]


def failing_rules(state: ClusterState, feasibility: FeasibilityCache, pod: Pod) -> Failing:
    """All rules on all nodes, as things stand. ``feasibility`` is over the state's table."""
    table, prefiltered = state.table, prefilter(state, pod)
    rows = table.live_rows()
    fails: dict[str, BoolArray] = {}

    def note(plugin: str, failing: BoolArray) -> None:
        if failing.any():
            before = fails.get(plugin)
            fails[plugin] = failing if before is None else before | failing

    if prefiltered.rejection is not None:
        note(prefiltered.rejection.plugin, np.ones(len(rows), np.bool_))
    if prefiltered.named is not None:
        named = [table.row_of[name] for name in prefiltered.named if name in table.row_of]
        note(NODE_AFFINITY, ~np.isin(rows, named))
    for rule in feasibility.filters:
        if rule.applies(table, pod.pod_class):
            note(rule.name, ~rule.mask(table, pod.pod_class, rows))
    for prepared in prefiltered.rules:
        note(prepared.name, ~prepared.mask()[rows])
    count: IntArray = np.sum(list(fails.values()), axis=0) if fails else np.zeros(len(rows), np.int64)
    filtered = run_filters(state, feasibility, prefiltered, explain=False)
    return Failing(rows, fails, count, prefiltered, filtered)


def refused_by(
    state: ClusterState, feasibility: FeasibilityCache, found: Failing, row: int, first: Rejection
) -> tuple[FailingRule, ...]:
    """All that refuses the node of ``row``; ``first`` is what was found to be the first, and stays it."""
    table, prefiltered, pod_class = state.table, found.prefiltered, found.prefiltered.pod.pod_class
    refused = {first.plugin: FailingRule(first.plugin, first.reasons)}

    def note(plugin: str, reasons: tuple[str, ...]) -> None:
        refused.setdefault(plugin, FailingRule(plugin, reasons))

    if prefiltered.rejection is not None:
        note(prefiltered.rejection.plugin, prefiltered.rejection.reasons)
    if prefiltered.named is not None and table.names[row] not in prefiltered.named:
        note(NOT_NAMED.plugin, NOT_NAMED.reasons)
    one = np.array([row])
    for rule in feasibility.filters:
        if rule.applies(table, pod_class) and not rule.mask(table, pod_class, one)[0]:
            note(rule.name, in_person(table, row, rule.reasons(table, pod_class, row)[1]))
    for prepared in prefiltered.rules:
        verdict = prepared.verdict(row)
        if verdict is not None:
            note(prepared.name, verdict[1])
    return tuple(refused.values())


def in_person(table: NodeTable, row: int, reasons: tuple[str, ...]) -> tuple[str, ...]:
    """Who drained the node and why, in place of the reason that conditions count by."""
    node = table.nodes[row]
    if node is None or reasons != (DRAINED,):
        return reasons
    return (f"drained from scheduling by {node.drained}",)


def tally(state: ClusterState, feasibility: FeasibilityCache, found: Failing) -> tuple[dict[str, int], str]:
    """(how often each reason is the first, over all nodes; the message as kube-scheduler words it)."""
    table, prefiltered, pod_class = state.table, found.prefiltered, found.prefiltered.pod.pod_class
    nodes = len(found.rows)
    if prefiltered.rejection is not None:
        reasons = prefiltered.rejection.reasons
        message = f"0/{nodes} nodes are available: {', '.join(reasons)}." if nodes else unavailable_message(0, {})
        return dict.fromkeys(reasons, nodes), message
    counts: Counter[str] = Counter()
    left: BoolArray = np.ones(nodes, np.bool_)
    for rejection in found.filtered.contested.values():
        counts.update(rejection.reasons)
    left &= ~np.isin(found.rows, list(found.filtered.contested))
    if prefiltered.named is not None:
        named = [table.row_of[name] for name in prefiltered.named if name in table.row_of]
        outside = left & ~np.isin(found.rows, named)
        if outside.any():
            counts[NOT_NAMED.reasons[0]] += int(outside.sum())
        left &= ~outside
    for rule in feasibility.filters:
        fails = found.fails.get(rule.name)
        if fails is not None and rule.applies(table, pod_class) and (first := left & fails).any():
            first &= ~rule.mask(table, pod_class, slice(None))[found.rows]
            counts.update(rule.tally(table, pod_class, found.rows[first]))
            left &= ~first
    for prepared in prefiltered.rules:
        fails = found.fails.get(prepared.name)
        if fails is None or not (first := left & fails).any():
            continue
        counts.update(_sampled([prepared.verdict(row) for row in _some(found.rows[first])], int(first.sum())))
        left &= ~first
    told = {reason: count for reason, count in counts.items() if count}
    return told, unavailable_message(nodes, told)


def _some(rows: IntArray) -> list[int]:
    some: list[int] = rows[:: max(1, -(-len(rows) // SAMPLED_ROWS))].tolist()
    return some


def _sampled(verdicts: list[tuple[object, tuple[str, ...]] | None], total: int) -> Counter[str]:
    """Counts of reasons over ``total`` rows by those of a sample."""
    seen: Counter[str] = Counter()
    for verdict in verdicts:
        if verdict is not None:
            seen.update(verdict[1])
    return Counter({reason: max(1, round(count * total / len(verdicts))) for reason, count in seen.items()})
