"""NodeName: a pod that names its node goes there or nowhere."""

from __future__ import annotations

import numpy as np

from shared.model.constraints import PodClass
from shared.scheduling.cycle.framework import Code
from shared.scheduling.state.node_table import BoolArray, IntArray, NodeTable, Rows


class NodeName:
    """``spec.nodeName``."""

    name = "NodeName"
    static = True

    def applies(self, table: NodeTable, pod_class: PodClass) -> bool:  # noqa: ARG002
        """Only classes that name a node."""
        return bool(pod_class.node_name)

    def mask(self, table: NodeTable, pod_class: PodClass, rows: Rows) -> BoolArray:
        """True on the named node alone."""
        passing = np.zeros(table.rows, np.bool_)
        row = table.row_of.get(pod_class.node_name)
        if not pod_class.node_name:
            passing[:] = True
        elif row is not None:
            passing[row] = True
        return passing[rows]

    def reasons(self, table: NodeTable, pod_class: PodClass, row: int) -> tuple[Code, tuple[str, ...]]:  # noqa: ARG002
        """Always the one reason."""
        return Code.UNRESOLVABLE, ("node(s) didn't match the requested node name",)

    def tally(self, table: NodeTable, pod_class: PodClass, rows: IntArray) -> dict[str, int]:
        """The one reason, once per row."""
        return {self.reasons(table, pod_class, int(rows[0]))[1][0]: len(rows)} if len(rows) else {}
