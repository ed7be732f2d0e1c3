"""InterPodAffinity: required affinity and anti-affinity of the pod, and anti-affinity of pods that stand.

Source: kube-scheduler 1.36 ``plugins/interpodaffinity/filtering.go``. Terminating pods count. When the pod has no
required terms and no standing pod's anti-affinity means it, the rule is skipped for the whole cycle, so that
anti-affinity of pods which are only nominated is not looked at either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from shared.model.pod import Pod
from shared.model.terms.relations import NO_RELATIONS, AffinityTerm
from shared.scheduling.framework import Code
from shared.scheduling.matching.domains import codes_or_absent, domain_slots, per_domain
from shared.scheduling.matching.pod_terms import anti_affinity_against, means, own_matcher
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.node_table import ABSENT, BoolArray, IntArray, NodeTable
from shared.scheduling.state.pod_index import Matcher

NAME = "InterPodAffinity"
AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"

Counts = dict[str, IntArray]
"""Per topology key: pods per domain, with a last slot for nodes without the label that is always 0."""


def prepare(state: ClusterState, pod: Pod) -> InterPodAffinity | None:
    """The rule for one pod; None when nothing can reject it."""
    relations = pod.relations or NO_RELATIONS
    table, index = state.table, state.index
    own_labels = state.namespaces.get(pod.namespace, {})
    index.sync()
    existing: Counts = {}
    for term, carried in anti_affinity_against(index, pod, own_labels):
        _add(table, existing, term.topology_key, carried.amounts[: table.rows])
    existing = {key: counts for key, counts in existing.items() if counts.any()}
    if not existing and not relations.affinity and not relations.anti_affinity:
        return None
    affinity: Counts = {}
    everyone = own_matcher(relations.affinity, state.namespaces)
    if relations.affinity:
        found = index.counts(everyone)
        for term in relations.affinity:
            _add(table, affinity, term.topology_key, found)
    anti_affinity: Counts = {}
    avoided = []
    for term in relations.anti_affinity:
        matcher = own_matcher((term,), state.namespaces)
        avoided.append((term.topology_key, matcher))
        _add(table, anti_affinity, term.topology_key, index.counts(matcher))
    return InterPodAffinity(
        table, pod, own_labels, relations.affinity, everyone, tuple(avoided), existing, affinity, anti_affinity
    )


def blank(state: ClusterState, pod: Pod) -> InterPodAffinity:
    """The rule for a pod that nothing can reject as things stand, but perhaps once others are placed (``adjust``)."""
    labels = state.namespaces.get(pod.namespace, {})
    return InterPodAffinity(state.table, pod, labels, (), own_matcher((), state.namespaces), (), {}, {}, {})


@dataclass(slots=True)
class InterPodAffinity:
    """Prepared for one pod. ``everyone`` matches pods that all of its affinity terms mean."""

    table: NodeTable
    pod: Pod
    namespace_labels: Mapping[str, str]
    terms: tuple[AffinityTerm, ...]
    everyone: Matcher
    avoided: tuple[tuple[str, Matcher], ...]
    existing: Counts
    affinity: Counts
    anti_affinity: Counts
    name: str = NAME

    def mask(self) -> BoolArray:
        """``[rows]``: True where every required term holds, the pod's own and the others'."""
        table = self.table
        passing: BoolArray = np.ones(table.rows, np.bool_)
        first = self._is_first()
        for key, counts in self.affinity.items():
            codes = codes_or_absent(table, key)
            passing &= (codes != ABSENT) if first else (counts > 0)[codes]
        for counted in (self.anti_affinity, self.existing):
            for key, counts in counted.items():
                passing &= (counts <= 0)[codes_or_absent(table, key)]
        return passing

    def verdict(self, row: int) -> tuple[Code, tuple[str, ...]] | None:
        """Evicting pods resolves anti-affinity, never affinity."""
        if self.affinity and not self._attracted(row):
            return Code.UNRESOLVABLE, (AFFINITY,)
        if self._repelled(self.anti_affinity, row):
            return Code.UNSCHEDULABLE, (ANTI_AFFINITY,)
        if self._repelled(self.existing, row):
            return Code.UNSCHEDULABLE, (EXISTING,)
        return None

    def tally(self, rows: IntArray) -> dict[str, int]:
        """The first kind of term that fails decides about a row."""
        attracted, repelled = self._attracted_rows(rows), self._repelled_rows(self.anti_affinity, rows)
        counts = (
            (AFFINITY, int((~attracted).sum())),
            (ANTI_AFFINITY, int((attracted & repelled).sum())),
            (EXISTING, int((attracted & ~repelled).sum())),
        )
        return {text: count for text, count in counts if count}

    def resolvable(self, rows: IntArray) -> BoolArray:
        """Where the pod's affinity holds."""
        return self._attracted_rows(rows)

    def adjust(self, pod: Pod, row: int, sign: int) -> None:
        """Count what ``pod`` means for the incoming pod, both ways."""
        for term in (pod.relations or NO_RELATIONS).anti_affinity:
            if means(term, self.pod, self.namespace_labels):
                self._change(self.existing, term.topology_key, row, sign)
        if self.terms and self.everyone.matches(pod.namespace, pod.labels):
            for term in self.terms:
                self._change(self.affinity, term.topology_key, row, sign)
        for key, matcher in self.avoided:
            if matcher.matches(pod.namespace, pod.labels):
                self._change(self.anti_affinity, key, row, sign)

    def copy(self) -> InterPodAffinity:
        """Counts are copied, the rest is shared."""
        return replace(
            self,
            existing=_copied(self.existing),
            affinity=_copied(self.affinity),
            anti_affinity=_copied(self.anti_affinity),
        )

    def _is_first(self) -> bool:
        """No pod anywhere is meant by all terms, and the pod itself is: it may start the group."""
        if any(counts.any() for counts in self.affinity.values()):
            return False
        return self.everyone.matches(self.pod.namespace, self.pod.labels)

    def _attracted(self, row: int) -> bool:
        codes = [(counts, int(codes_or_absent(self.table, key)[row])) for key, counts in self.affinity.items()]
        if any(code == ABSENT for _, code in codes):
            return False
        return all(counts[code] > 0 for counts, code in codes) or self._is_first()

    def _attracted_rows(self, rows: IntArray) -> BoolArray:
        """``[len(rows)]``: ``_attracted``."""
        labelled: BoolArray = np.ones(len(rows), np.bool_)
        near: BoolArray = np.ones(len(rows), np.bool_)
        for key, counts in self.affinity.items():
            codes = codes_or_absent(self.table, key)[rows]
            labelled &= codes != ABSENT
            near &= counts[codes] > 0
        return labelled & (near | self._is_first()) if self.affinity else labelled

    def _repelled_rows(self, counted: Counts, rows: IntArray) -> BoolArray:
        """``[len(rows)]``: ``_repelled``."""
        repelled: BoolArray = np.zeros(len(rows), np.bool_)
        for key, counts in counted.items():
            repelled |= counts[codes_or_absent(self.table, key)[rows]] > 0
        return repelled

    def _repelled(self, counted: Counts, row: int) -> bool:
        return any(counts[codes_or_absent(self.table, key)[row]] > 0 for key, counts in counted.items())

    def _change(self, counted: Counts, key: str, row: int, sign: int) -> None:
        code = codes_or_absent(self.table, key)[row]
        if code == ABSENT:
            return
        if key not in counted:
            counted[key] = np.zeros(domain_slots(self.table, key), np.int64)
        counted[key][code] += sign


def _add(table: NodeTable, counted: Counts, key: str, amounts: IntArray) -> None:
    counts = per_domain(table, key, amounts)
    counts[ABSENT] = 0
    counted[key] = counted[key] + counts if key in counted else counts


def _copied(counted: Mapping[str, IntArray]) -> Counts:
    return {key: counts.copy() for key, counts in counted.items()}
