"""TaintToleration: NoSchedule and NoExecute taints keep away pods that do not tolerate them.

Nodes share few distinct taint lists, so each list is judged once and the verdict is taken by index.
"""

from __future__ import annotations

import numpy as np

from shared.model.constraints import PodClass
from shared.scheduling.cycle.framework import Code
from shared.scheduling.matching.tolerance import first_untolerated
from shared.scheduling.state.node_table import BoolArray, IntArray, NodeTable, Rows


class TaintToleration:
    """``spec.taints`` against ``spec.tolerations``."""

    name = "TaintToleration"
    static = True

    def applies(self, table: NodeTable, pod_class: PodClass) -> bool:  # noqa: ARG002
        """Nothing to do where no node ever had a taint."""
        return len(table.taint_sets) > 1

    def mask(self, table: NodeTable, pod_class: PodClass, rows: Rows) -> BoolArray:
        """True where no hard taint is untolerated."""
        verdicts = np.fromiter(
            (first_untolerated(pod_class.tolerations, taints) is None for taints in table.taint_sets),
            np.bool_,
            len(table.taint_sets),
        )
        return verdicts[table.taint_set[: table.rows][rows]]

    def reasons(self, table: NodeTable, pod_class: PodClass, row: int) -> tuple[Code, tuple[str, ...]]:  # noqa: ARG002
        """One text for every taint, as kube-scheduler 1.36 says it (the taint itself is told by explain)."""
        return Code.UNRESOLVABLE, ("node(s) had untolerated taint(s)",)

    def tally(self, table: NodeTable, pod_class: PodClass, rows: IntArray) -> dict[str, int]:
        """The one reason, once per row."""
        return {self.reasons(table, pod_class, int(rows[0]))[1][0]: len(rows)} if len(rows) else {}
