"""Filters that a node's labels, taints, name, cordon, declared features and latencies alone decide.

Their masks outlive changes of accounting (``feasibility.StaticVerdict``). The reasons are kube-scheduler's.
"""

from __future__ import annotations

import numpy as np

from shared.model.constraints import PodClass, Taint, left_out
from shared.model.terms.selector_terms import SelectorTerm
from shared.scheduling.framework import Code, OneReason
from shared.scheduling.matching.selectors import selected_mask, selects_nodes, terms_mask
from shared.scheduling.matching.tolerance import NO_SCHEDULE, tolerated, tolerated_mask
from shared.scheduling.state.node_table import BoolArray, IntArray, NodeTable, Rows

UNSCHEDULABLE_TAINT = Taint("node.kubernetes.io/unschedulable", "", NO_SCHEDULE)

CORDONED = "node(s) were unschedulable"
DRAINED = "node(s) were drained from scheduling by Conclave"
"""Of a node that an operator drained and nobody cordoned. By whom and why is ``explain``'s to tell: what a pod's
condition says counts nodes, and must not change with each of them."""


class NodeUnschedulable:
    """Cordoned nodes, and ones drained from scheduling, take only pods that tolerate that taint."""

    name = "NodeUnschedulable"
    static = True

    def applies(self, table: NodeTable, pod_class: PodClass) -> bool:
        """Nothing to do where no node is cordoned or the pod tolerates it."""
        if not table.unschedulable[: table.rows].any() or left_out(pod_class, self.name):
            return False
        return not tolerated(pod_class.tolerations, UNSCHEDULABLE_TAINT)

    def mask(self, table: NodeTable, pod_class: PodClass, rows: Rows) -> BoolArray:
        """True where the node is not cordoned, or the class tolerates it."""
        if tolerated(pod_class.tolerations, UNSCHEDULABLE_TAINT):
            return ~table.unschedulable[: table.rows][rows] | True
        return ~table.unschedulable[: table.rows][rows]

    def reasons(self, table: NodeTable, pod_class: PodClass, row: int) -> tuple[Code, tuple[str, ...]]:  # noqa: ARG002
        """kube-scheduler's reason for a cordoned node, ours for one that is drained alone."""
        return Code.UNRESOLVABLE, (DRAINED if table.drained[row] else CORDONED,)

    def tally(self, table: NodeTable, pod_class: PodClass, rows: IntArray) -> dict[str, int]:  # noqa: ARG002
        """The reasons, once per row."""
        drained = int(table.drained[rows].sum())
        counts = {CORDONED: len(rows) - drained, DRAINED: drained}
        return {reason: count for reason, count in counts.items() if count}


class NodeName(OneReason):
    """A pod that names its node (``spec.nodeName``) goes there or nowhere."""

    name = "NodeName"
    static = True
    reason = "node(s) didn't match the requested node name"

    def applies(self, table: NodeTable, pod_class: PodClass) -> bool:  # noqa: ARG002
        """Only classes that name a node."""
        return bool(pod_class.node_name)

    def mask(self, table: NodeTable, pod_class: PodClass, rows: Rows) -> BoolArray:
        """True on the named node alone."""
        passing = np.full(table.rows, not pod_class.node_name)
        row = table.row_of.get(pod_class.node_name)
        if row is not None:
            passing[row] = True
        return passing[rows]


class TaintToleration(OneReason):
    """NoSchedule and NoExecute taints keep away pods that do not tolerate them. One text for every taint, as
    kube-scheduler 1.36 says it: explain tells which."""

    name = "TaintToleration"
    static = True
    reason = "node(s) had untolerated taint(s)"

    def applies(self, table: NodeTable, pod_class: PodClass) -> bool:
        """Nothing to do where no node ever had a taint."""
        return len(table.taint_sets) > 1 and not left_out(pod_class, self.name)

    def mask(self, table: NodeTable, pod_class: PodClass, rows: Rows) -> BoolArray:
        """True where no hard taint is untolerated."""
        return tolerated_mask(table, pod_class.tolerations, rows)


ENFORCED = "node(s) didn't match scheduler-enforced node affinity"


class NodeAffinity:
    """``nodeSelector`` and required node affinity, and what the pod's profile adds; all must match."""

    name = "NodeAffinity"
    static = True
    reason = "node(s) didn't match Pod's node affinity/selector"

    def applies(self, table: NodeTable, pod_class: PodClass) -> bool:  # noqa: ARG002
        """Only classes that select nodes."""
        return (selects_nodes(pod_class) or _added(pod_class) is not None) and not left_out(pod_class, self.name)

    def mask(self, table: NodeTable, pod_class: PodClass, rows: Rows) -> BoolArray:
        """True where the selector and at least one required term match, and one of those that are added."""
        added, passing = _added(pod_class), selected_mask(table, pod_class)
        return (passing if added is None else passing & terms_mask(table, added))[rows]

    def reasons(self, table: NodeTable, pod_class: PodClass, row: int) -> tuple[Code, tuple[str, ...]]:
        """What the profile adds is looked at first."""
        return Code.UNRESOLVABLE, (next(iter(self.tally(table, pod_class, np.array([row])))),)

    def tally(self, table: NodeTable, pod_class: PodClass, rows: IntArray) -> dict[str, int]:
        """By whose affinity each row is rejected."""
        added = _added(pod_class)
        enforced = 0 if added is None else int((~terms_mask(table, added)[rows]).sum())
        counts = {ENFORCED: enforced, self.reason: len(rows) - enforced}
        return {reason: count for reason, count in counts.items() if count}


def _added(pod_class: PodClass) -> tuple[SelectorTerm, ...] | None:
    return None if pod_class.profile is None else pod_class.profile.added


BEYOND_LIMIT = "node(s) were beyond the Pod's latency limit"
LATENCY_UNKNOWN = "node(s) had no current latency reading to the Pod's target"


class LatencyLimit:
    """A pod whose limit of latency is strict goes only where the latency to its target is known, was told within
    its window, and is within the limit: by what agents measure, without a target by the node's annotation.

    ``measured`` False: for who hears no readings; then limits to a target pass everywhere.
    """

    name = "ConclaveLatencyLimit"
    static = True

    def __init__(self, *, measured: bool = True) -> None:
        self.measured = measured

    def applies(self, table: NodeTable, pod_class: PodClass) -> bool:  # noqa: ARG002
        """Only classes whose limit is strict."""
        return pod_class.latency_strict and (self.measured or not pod_class.latency_target)

    def mask(self, table: NodeTable, pod_class: PodClass, rows: Rows) -> BoolArray:
        """True where the latency is known and within the limit."""
        table.latencies.limit(pod_class.latency_target)
        known = table.newest_latency(pod_class.latency_target, slice(None))[: table.rows][rows]
        within: BoolArray = (known >= 0) & (known <= pod_class.latency_hard_us)
        return within

    def reasons(self, table: NodeTable, pod_class: PodClass, row: int) -> tuple[Code, tuple[str, ...]]:
        """Whether it is too far, or nobody knows how far. No eviction brings it nearer."""
        known = table.newest_latency(pod_class.latency_target, np.array([row]))[0]
        return Code.UNRESOLVABLE, (BEYOND_LIMIT if known >= 0 else LATENCY_UNKNOWN,)

    def tally(self, table: NodeTable, pod_class: PodClass, rows: IntArray) -> dict[str, int]:
        """The reasons, once per row."""
        beyond = int((table.newest_latency(pod_class.latency_target, rows) >= 0).sum())
        counts = {BEYOND_LIMIT: beyond, LATENCY_UNKNOWN: len(rows) - beyond}
        return {reason: count for reason, count in counts.items() if count}


class DeclaredFeatures(OneReason):
    """A node has to declare (``status.declaredFeatures``) every feature that the pod's spec needs of it. Nodes share
    few distinct sets of features, so each set is judged once."""

    name = "NodeDeclaredFeatures"
    static = True
    reason = "node(s) didn't match Pod's required features"

    def applies(self, table: NodeTable, pod_class: PodClass) -> bool:  # noqa: ARG002
        """Only classes that need some feature."""
        return bool(pod_class.features)

    def mask(self, table: NodeTable, pod_class: PodClass, rows: Rows) -> BoolArray:
        """True where all of them are declared."""
        needed = set(pod_class.features)
        verdicts = np.fromiter((needed.issubset(s) for s in table.feature_sets), np.bool_, len(table.feature_sets))
        return verdicts[table.feature_set[: table.rows][rows]]
