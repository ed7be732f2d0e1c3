"""What a rule is that needs more than one node: prepared once per unit (PreFilter), then a mask over all nodes.

    prepare(state, pod) -> None          skipped: this pod passes everywhere, and is never asked about again
                        -> Rejection     no node takes it, whatever the node (PreFilter)
                        -> ClusterRule   judges rows, and follows pods that come or go in a dry run

A prepared rule is a snapshot: later changes of the cluster do not show in it, ``adjust`` does. The coordinator keeps
one per unit; agents get the mask, or the small table per domain that it was made from. To add one: write
``filters/<rule>.py`` with ``prepare``, add it to ``prefilter.CLUSTER_RULES`` at kube-scheduler's place.
"""

from __future__ import annotations

from typing import Protocol, Self

from shared.model.pod import Pod
from shared.scheduling.cycle.framework import Code
from shared.scheduling.state.node_table import BoolArray, IntArray


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

    def curable(self, rows: IntArray) -> BoolArray:
        """``[len(rows)]``: True where evicting pods might help; of ``rows`` none passes. Agrees with ``verdict``."""
        ...

    def adjust(self, pod: Pod, row: int, sign: int) -> None:
        """Judge from now on as if ``pod`` came to ``row`` (1) or left it (-1): kube-scheduler's AddPod, RemovePod."""
        ...

    def copy(self) -> Self:
        """One that can be adjusted without touching this."""
        ...
