"""What a filter and a score are. Rules are vectorised over rows of a ``NodeTable``; one rule per file.

Names are kube-scheduler's plugin names where the rule is its rule, so that reasons read as users know them.
To add a rule: write ``filters/<rule>.py``, append it to ``filters.FILTERS`` at kube-scheduler's place, see
``docs/checklist-new-filter.md``.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from shared.model.constraints import PodClass
from shared.scheduling.state.node_table import BoolArray, IntArray, NodeTable, Rows


class Code(Enum):
    """Why a node was rejected, as kube-scheduler tells it."""

    UNSCHEDULABLE = "Unschedulable"
    """Evicting pods might help."""
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    """Nothing that happens to pods on this node helps: never a preemption candidate."""


class Filter(Protocol):
    """A yes/no rule about (pod class, node)."""

    name: str
    static: bool
    """Depends on labels, taints, names and ``unschedulable`` alone: its mask outlives changes of accounting."""

    def applies(self, table: NodeTable, pod_class: PodClass) -> bool:
        """False: this class passes on every node; the mask need not be computed."""
        ...

    def mask(self, table: NodeTable, pod_class: PodClass, rows: Rows) -> BoolArray:
        """``[len(rows)]``: True where the node passes."""
        ...

    def reasons(self, table: NodeTable, pod_class: PodClass, row: int) -> tuple[Code, tuple[str, ...]]:
        """Code and every reason for a row that does not pass."""
        ...

    def tally(self, table: NodeTable, pod_class: PodClass, rows: IntArray) -> dict[str, int]:
        """How often each reason applies over ``rows``, none of which passes."""
        ...


class Score(Protocol):
    """A ranking rule of one profile plugin; ``weight`` multiplies the normalised 0..100."""

    name: str
    weight: int

    def raw(self, table: NodeTable, pod_class: PodClass, rows: Rows) -> IntArray:
        """``[len(rows)]`` int64 before normalisation; depends on each row alone."""
        ...
