"""NodeUnschedulable: cordoned nodes, and ones drained from scheduling, take only pods that tolerate that taint."""

from __future__ import annotations

from shared.model.constraints import PodClass, Taint
from shared.scheduling.cycle.framework import Code
from shared.scheduling.matching.tolerance import NO_SCHEDULE, tolerated
from shared.scheduling.state.node_table import BoolArray, IntArray, NodeTable, Rows

UNSCHEDULABLE_TAINT = Taint("node.kubernetes.io/unschedulable", "", NO_SCHEDULE)

CORDONED = "node(s) were unschedulable"
DRAINED = "node(s) were drained from scheduling by Conclave"
"""Of a node that an operator drained and nobody cordoned. By whom and why is ``explain``'s to tell: what a pod's
condition says counts nodes, and must not change with each of them."""


class NodeUnschedulable:
    """``spec.unschedulable`` (cordon)."""

    name = "NodeUnschedulable"
    static = True

    def applies(self, table: NodeTable, pod_class: PodClass) -> bool:
        """Nothing to do where no node is cordoned or the pod tolerates it."""
        return bool(table.unschedulable[: table.rows].any()) and not tolerated(
            pod_class.tolerations, UNSCHEDULABLE_TAINT
        )

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
