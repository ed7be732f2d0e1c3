"""NodeAffinity: ``nodeSelector`` and required node affinity; both must match."""

from __future__ import annotations

import numpy as np

from shared.model.constraints import PodClass
from shared.scheduling.cycle.framework import Code
from shared.scheduling.matching.selectors import selector_mask, terms_mask
from shared.scheduling.state.node_table import BoolArray, IntArray, NodeTable, Rows


class NodeAffinity:
    """Required node affinity and the node selector."""

    name = "NodeAffinity"
    static = True

    def applies(self, table: NodeTable, pod_class: PodClass) -> bool:  # noqa: ARG002
        """Only classes that select nodes."""
        return bool(pod_class.node_selector) or pod_class.affinity_terms is not None

    def mask(self, table: NodeTable, pod_class: PodClass, rows: Rows) -> BoolArray:
        """True where the selector and at least one required term match."""
        passing = np.ones(table.rows, np.bool_)
        if pod_class.node_selector:
            passing = selector_mask(table, pod_class.node_selector)
        if pod_class.affinity_terms is not None:
            passing = passing & terms_mask(table, pod_class.affinity_terms)
        return passing[rows]

    def reasons(self, table: NodeTable, pod_class: PodClass, row: int) -> tuple[Code, tuple[str, ...]]:  # noqa: ARG002
        """Always the one reason."""
        return Code.UNRESOLVABLE, ("node(s) didn't match Pod's node affinity/selector",)

    def tally(self, table: NodeTable, pod_class: PodClass, rows: IntArray) -> dict[str, int]:
        """The one reason, once per row."""
        return {self.reasons(table, pod_class, int(rows[0]))[1][0]: len(rows)} if len(rows) else {}
