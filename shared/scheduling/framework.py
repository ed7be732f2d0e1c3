"""What a filter, a score and a rule that needs more than one node are. Vectorised over rows of a ``NodeTable``.

Names are kube-scheduler's plugin names where the rule is its rule, so that reasons read as users know them. A rule that
needs more than one node is prepared once per unit (PreFilter), and then gives a mask over all nodes:

    prepare(state, pod) -> None          skipped: this pod passes everywhere, and is never asked about again
                        -> Rejection     no node takes it, whatever the node (PreFilter)
                        -> ClusterRule   judges rows, and follows pods that come or go in a dry run

A prepared rule is a snapshot: later changes of the cluster do not show in it, ``adjust`` does. The coordinator keeps
one per unit; agents get the mask, or the small table per domain that it was made from. To add a rule see
``docs/checklist-new-filter.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol, Self

import numpy as np

from shared.model.constraints import PodClass
from shared.model.pod import Pod
from shared.scheduling.state.node_table import BoolArray, IntArray, NodeTable, Rows


class Code(Enum):
    """Why a node was rejected, as kube-scheduler tells it."""

    UNSCHEDULABLE = "Unschedulable"
    """Evicting pods might help."""
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    """Nothing that happens to pods on this node helps: never a preemption candidate."""
    ERROR = "Error"
    """Something is wrong with what the pod names: kube-scheduler ends the whole cycle, on whatever node it shows."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a node does not take a pod: the first filter that says no."""

    plugin: str
    code: Code
    reasons: tuple[str, ...]


class Filter(Protocol):
    """A yes/no rule about (pod class, node)."""

    name: str
    static: bool
    """Depends on labels, taints, names, ``unschedulable`` and latencies alone: its mask outlives changes of accounting,
    and no eviction changes it."""

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


class OneReason:
    """A filter that has one reason for every node."""

    code = Code.UNRESOLVABLE
    reason: str

    def reasons(self, table: NodeTable, pod_class: PodClass, row: int) -> tuple[Code, tuple[str, ...]]:  # noqa: ARG002
        """That one."""
        return self.code, (self.reason,)

    def tally(self, table: NodeTable, pod_class: PodClass, rows: IntArray) -> dict[str, int]:  # noqa: ARG002
        """The same, once per row."""
        return {self.reason: len(rows)} if len(rows) else {}


class ClusterRule(Protocol):
    """One prepared rule for one pod."""

    name: str

    def mask(self) -> BoolArray:
        """``[rows]``: True where the node passes. Rows without a node may say anything."""
        ...

    def verdict(self, row: int) -> tuple[Code, tuple[str, ...]] | None:
        """Code and reasons of one row; None when it passes. Agrees with ``mask``."""
        ...

    def tally(self, rows: IntArray) -> dict[str, int]:
        """How often each reason applies over ``rows``, none of which passes. Agrees with ``verdict``."""
        ...

    def resolvable(self, rows: IntArray) -> BoolArray:
        """``[len(rows)]``: True where evicting pods might help; of ``rows`` none passes. Agrees with ``verdict``."""
        ...

    def adjust(self, pod: Pod, row: int, sign: int) -> None:
        """Judge from now on as if ``pod`` came to ``row`` (1) or left it (-1): kube-scheduler's AddPod, RemovePod."""
        ...

    def copy(self) -> Self:
        """One that can be adjusted without touching this."""
        ...


class Unmoved:
    """A prepared rule that pods which come or go change nothing about, so evicting helps nowhere."""

    __slots__ = ()

    def resolvable(self, rows: IntArray) -> BoolArray:
        """Nowhere."""
        return np.zeros(len(rows), np.bool_)

    def adjust(self, pod: Pod, row: int, sign: int) -> None:
        """Nothing to count."""

    def copy(self) -> Self:
        """Never written to."""
        return self
