"""PodTopologySpread: DoNotSchedule constraints keep the pods of a selector even over domains.

Source: kube-scheduler 1.36 ``plugins/podtopologyspread/filtering.go``. Only nodes that have every constraint's key
form domains. The dry run follows it in what it does not check again: a pod that comes or goes counts although it is
terminating, and although the selector is empty.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from shared.model.labels import selects
from shared.model.pod import Pod
from shared.model.relations import SpreadConstraint
from shared.scheduling.cluster_state import ClusterState
from shared.scheduling.domains import codes_or_absent, domains_present, per_domain
from shared.scheduling.framework import Code
from shared.scheduling.node_table import ABSENT, BoolArray, IntArray, NodeTable
from shared.scheduling.spread_domains import hard_constraints, included, pods_per_row

NAME = "PodTopologySpread"
SKEWED = "node(s) didn't match pod topology spread constraints"
NO_LABEL = "node(s) didn't match pod topology spread constraints (missing required label)"


def prepare(state: ClusterState, pod: Pod) -> TopologySpread | None:
    """The rule for one pod; None when it has no hard constraint."""
    constraints = hard_constraints(pod)
    if not constraints:
        return None
    table = state.table
    complete = table.present[: table.rows].copy()
    for constraint in constraints:
        complete &= codes_or_absent(table, constraint.topology_key) != ABSENT
    spreads = []
    for constraint in constraints:
        policy = included(state, pod, constraint)
        counted = complete if policy is None else complete & policy
        pods = per_domain(table, constraint.topology_key, pods_per_row(state, constraint, pod.namespace) * counted)
        domains = domains_present(table, constraint.topology_key, counted)
        spreads.append(_Spread(constraint, selects(constraint.selector, pod.labels), counted, pods, domains))
    return TopologySpread(table, pod.namespace, tuple(spreads))


@dataclass(slots=True)
class _Spread:
    """One constraint. ``counted [rows]``: nodes that form domains; ``pods``, ``domains [domains + 1]``: pods per
    domain, and which domains there are; ``self_match``: the pod matches its own selector."""

    constraint: SpreadConstraint
    self_match: bool
    counted: BoolArray
    pods: IntArray
    domains: BoolArray

    def highest_fitting(self) -> int:
        """The most pods that a domain may have now for one more to fit."""
        there = self.pods[self.domains]
        least = int(there.min()) if len(there) and len(there) >= self.constraint.min_domains else 0
        return self.constraint.max_skew + least - self.self_match


@dataclass(slots=True)
class TopologySpread:
    """Prepared for one pod of ``namespace``."""

    table: NodeTable
    namespace: str
    spreads: tuple[_Spread, ...]
    name: str = NAME

    def mask(self) -> BoolArray:
        """``[rows]``: True where no constraint is skewed too far."""
        passing: BoolArray = np.ones(self.table.rows, np.bool_)
        for spread in self.spreads:
            fitting = spread.pods <= spread.highest_fitting()
            fitting[ABSENT] = False
            passing &= fitting[codes_or_absent(self.table, spread.constraint.topology_key)]
        return passing

    def verdict(self, row: int) -> tuple[Code, tuple[str, ...]] | None:
        """The first constraint that fails; a node without its label cannot be cured."""
        for spread in self.spreads:
            code = codes_or_absent(self.table, spread.constraint.topology_key)[row]
            if code == ABSENT:
                return Code.UNRESOLVABLE, (NO_LABEL,)
            if spread.pods[code] > spread.highest_fitting():
                return Code.UNSCHEDULABLE, (SKEWED,)
        return None

    def adjust(self, pod: Pod, row: int, sign: int) -> None:
        """Count ``pod`` in its domain where a selector matches it."""
        if pod.namespace != self.namespace:
            return
        for spread in self.spreads:
            if spread.counted[row] and selects(spread.constraint.selector, pod.labels):
                spread.pods[codes_or_absent(self.table, spread.constraint.topology_key)[row]] += sign

    def copy(self) -> TopologySpread:
        """Counts are copied, the rest is shared."""
        return replace(self, spreads=tuple(replace(spread, pods=spread.pods.copy()) for spread in self.spreads))
