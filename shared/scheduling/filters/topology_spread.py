"""PodTopologySpread: DoNotSchedule constraints keep the pods of a selector even over domains.

Source: kube-scheduler 1.36 ``plugins/podtopologyspread/filtering.go``. Only nodes that have every constraint's key
form domains. The dry run follows it in what it does not check again: a pod that comes or goes counts although it is
terminating. An empty selector counts all pods of the namespace, as the API says and kube-scheduler does since 1.38.

Stricter than kube-scheduler in one thing: the least filled domain is found among pods that were seen bound, while the
domain that a pod is to join counts those on their way too. Bindings land in any order; so none of these orders breaks
the constraint, where kube-scheduler's skew may be too large until the last has landed. A pod that would fit by
kube-scheduler's count has to wait for Bindings only (``settled``). Members of the pod's own group are no part of that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from shared.model.pod import Pod
from shared.model.terms.labels import selects
from shared.model.terms.relations import SpreadConstraint
from shared.scheduling.framework import Code
from shared.scheduling.matching.domains import codes_or_absent, domains_present, per_domain
from shared.scheduling.matching.spread_domains import counts_anybody, hard_constraints, included, pods_per_row
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.node_table import ABSENT, BoolArray, IntArray, NodeTable

NAME = "PodTopologySpread"
SKEWED = "node(s) didn't match pod topology spread constraints"
NO_LABEL = "node(s) didn't match pod topology spread constraints (missing required label)"


def prepare(state: ClusterState, pod: Pod) -> TopologySpread | None:
    """The rule for one pod; None when it has no hard constraint."""
    constraints = hard_constraints(state, pod)
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
        key, namespace = constraint.topology_key, pod.namespace
        pods = per_domain(table, key, pods_per_row(state, constraint, namespace) * counted)
        seen = pods
        if state.index.assumed:
            rows = pods_per_row(state, constraint, namespace, seen_only=True)
            seen = per_domain(table, key, _with_fellows(state, pod, constraint, rows) * counted)
        domains = domains_present(table, key, counted)
        spreads.append(_Spread(constraint, selects(constraint.selector, pod.labels), counted, pods, seen, domains))
    return TopologySpread(table, pod.namespace, tuple(spreads))


def _with_fellows(state: ClusterState, pod: Pod, constraint: SpreadConstraint, rows: IntArray) -> IntArray:
    """``rows [rows]``, pods seen bound, and members of the pod's own group that are on their way: those are committed
    with it, or are the reason why it may go. Else a gang could never spread over more than a round of its domains."""
    uids = state.members.get(pod.group) if pod.group else None
    if not uids or not counts_anybody(state, constraint):
        return rows
    rows, accounts = rows.copy(), state.cache.accounts
    for uid in uids:
        account, fellow = accounts.get(uid), state.index.get(uid)
        if account is None or account.assumed_at is None or fellow is None or fellow.terminating:
            continue
        row = state.table.row_of.get(account.node_name)
        if row is not None and fellow.namespace == pod.namespace and selects(constraint.selector, fellow.labels):
            rows[row] += 1
    return rows


@dataclass(slots=True)
class _Spread:
    """One constraint. ``counted [rows]``: nodes that form domains; ``pods``, ``seen``, ``domains [domains + 1]``: pods
    per domain, those of them seen bound, and which domains there are; ``self_match``: the pod matches its own
    selector."""

    constraint: SpreadConstraint
    self_match: bool
    counted: BoolArray
    pods: IntArray
    seen: IntArray
    domains: BoolArray

    def highest_fitting(self) -> int:
        """The most pods that a domain may have now for one more to fit."""
        there = self.seen[self.domains]
        least = int(there.min()) if len(there) and len(there) >= self.constraint.min_domains else 0
        return self.constraint.max_skew + least - self.self_match

    def copy(self) -> _Spread:
        """Counts are copied, the rest is shared."""
        pods = self.pods.copy()
        return replace(self, pods=pods, seen=pods if self.seen is self.pods else self.seen.copy())


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
        """The first constraint that fails; evicting opens no node that lacks its label."""
        for spread in self.spreads:
            code = codes_or_absent(self.table, spread.constraint.topology_key)[row]
            if code == ABSENT:
                return Code.UNRESOLVABLE, (NO_LABEL,)
            if spread.pods[code] > spread.highest_fitting():
                return Code.UNSCHEDULABLE, (SKEWED,)
        return None

    def tally(self, rows: IntArray) -> dict[str, int]:
        """By which of the two texts each row is rejected."""
        skewed = int(self.resolvable(rows).sum())
        return {text: count for text, count in ((SKEWED, skewed), (NO_LABEL, len(rows) - skewed)) if count}

    def resolvable(self, rows: IntArray) -> BoolArray:
        """Where the first constraint that fails is one whose label the node has."""
        undecided: BoolArray = np.ones(len(rows), np.bool_)
        skewed: BoolArray = np.zeros(len(rows), np.bool_)
        for spread in self.spreads:
            codes = codes_or_absent(self.table, spread.constraint.topology_key)[rows]
            lacks = codes == ABSENT
            fails = ~lacks & (spread.pods[codes] > spread.highest_fitting())
            skewed |= undecided & fails
            undecided &= ~(fails | lacks)
        return skewed

    def adjust(self, pod: Pod, row: int, sign: int) -> None:
        """Count ``pod`` in its domain where a selector matches it."""
        if pod.namespace != self.namespace:
            return
        for spread in self.spreads:
            if spread.counted[row] and selects(spread.constraint.selector, pod.labels):
                code = codes_or_absent(self.table, spread.constraint.topology_key)[row]
                spread.pods[code] += sign
                if spread.seen is not spread.pods:
                    spread.seen[code] += sign

    def copy(self) -> TopologySpread:
        """Counts are copied, the rest is shared."""
        return replace(self, spreads=tuple(spread.copy() for spread in self.spreads))

    def settled(self) -> TopologySpread | None:
        """The rule as it will be once everything on its way has landed; None where nothing is on its way."""
        if all(spread.seen is spread.pods or (spread.seen == spread.pods).all() for spread in self.spreads):
            return None
        return replace(self, spreads=tuple(replace(spread, seen=spread.pods) for spread in self.spreads))
