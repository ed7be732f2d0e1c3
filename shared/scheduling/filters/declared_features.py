"""NodeDeclaredFeatures: a node has to declare every feature that the pod's spec needs of it.

Nodes share few distinct sets of features, so each set is judged once and the verdict is taken by index.
"""

from __future__ import annotations

import numpy as np

from shared.model.constraints import PodClass
from shared.scheduling.cycle.framework import Code
from shared.scheduling.state.node_table import BoolArray, IntArray, NodeTable, Rows

NAME = "NodeDeclaredFeatures"


class DeclaredFeatures:
    """``status.declaredFeatures`` against what the pod needs."""

    name = NAME
    static = True

    def applies(self, table: NodeTable, pod_class: PodClass) -> bool:  # noqa: ARG002
        """Only classes that need some feature."""
        return bool(pod_class.features)

    def mask(self, table: NodeTable, pod_class: PodClass, rows: Rows) -> BoolArray:
        """True where all of them are declared."""
        needed = set(pod_class.features)
        verdicts = np.fromiter((needed.issubset(s) for s in table.feature_sets), np.bool_, len(table.feature_sets))
        return verdicts[table.feature_set[: table.rows][rows]]

    def reasons(self, table: NodeTable, pod_class: PodClass, row: int) -> tuple[Code, tuple[str, ...]]:  # noqa: ARG002
        """Always the one reason."""
        return Code.UNRESOLVABLE, ("node(s) didn't match Pod's required features",)

    def tally(self, table: NodeTable, pod_class: PodClass, rows: IntArray) -> dict[str, int]:
        """The one reason, once per row."""
        return {self.reasons(table, pod_class, int(rows[0]))[1][0]: len(rows)} if len(rows) else {}
