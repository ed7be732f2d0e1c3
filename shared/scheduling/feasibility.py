"""Which nodes pass all filters, per pod class, kept up to date cheaply; and why the others do not.

Static filters (labels, taints, cordons) are judged once per class until a node's static half changes; the others are
judged again only on rows that changed. Most pods come from templates, so the work per pod is a few changed rows.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shared.model.constraints import PodClass
from shared.scheduling.filters import FILTERS
from shared.scheduling.framework import Code, Filter
from shared.scheduling.node_table import BoolArray, NodeTable, Rows

CACHE_BYTES = 2 * 1024 * 1024
FEWEST_CLASSES = 64


def class_limit(rows: int, bytes_per_row: int, *, budget: int = CACHE_BYTES) -> int:
    """How many classes are remembered (the least recently used is forgotten): as many as fit into ``budget`` bytes,
    so that an agent stays small whether it owns ten nodes or ten thousand."""
    return max(FEWEST_CLASSES, budget // max(1, rows * bytes_per_row + 512))


@dataclass(slots=True)
class Feasibility:
    """The verdict for one class: ``mask [rows]`` is complete up to table stamp ``seen``. ``static_mask`` may be other
    classes' too: nobody writes to it."""

    pod_class: PodClass
    static_mask: BoolArray
    mask: BoolArray
    seen: int
    static_seen: int
    filters: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why one node does not take a class: the first filter that says no."""

    plugin: str
    code: Code
    reasons: tuple[str, ...]


class FeasibilityCache:
    """Feasibility per pod class over one table."""

    def __init__(self, table: NodeTable, *, filters: Sequence[Filter] = FILTERS, limit: int | None = None) -> None:
        self.table = table
        self.filters = tuple(filters)
        self._limit = limit
        self._classes: OrderedDict[PodClass, Feasibility] = OrderedDict()
        self._everywhere: BoolArray = np.zeros(0, np.bool_)
        self._everywhere_seen = -1

    def of(self, pod_class: PodClass) -> Feasibility:
        """The class's feasibility as of now."""
        entry = self._classes.get(pod_class)
        table = self.table
        if entry is None or entry.static_seen < table.static_stamp or len(entry.mask) != table.rows:
            entry = self._classes[pod_class] = self._judge(pod_class)
            limit = class_limit(table.rows, 2) if self._limit is None else self._limit
            while len(self._classes) > limit:
                self._classes.popitem(last=False)
            return entry
        self._classes.move_to_end(pod_class)
        if entry.seen < table.clock:
            rows = table.changed_since(entry.seen)
            if len(rows):
                entry.mask[rows] = entry.static_mask[rows] & self._dynamic(entry.filters, pod_class, rows)
            entry.seen = table.clock
        return entry

    def static_mask(self, pod_class: PodClass) -> BoolArray:
        """``[rows]``: the static filters' verdict alone, without bringing the rest up to date."""
        entry = self._classes.get(pod_class)
        table = self.table
        if entry is None or entry.static_seen < table.static_stamp or len(entry.static_mask) != table.rows:
            return self.of(pod_class).static_mask
        return entry.static_mask

    def rejection(self, pod_class: PodClass, row: int) -> Rejection | None:
        """Why the row does not take the class; None when it does."""
        rows = np.array([row])
        for rule in self.filters:
            if rule.applies(self.table, pod_class) and not rule.mask(self.table, pod_class, rows)[0]:
                code, reasons = rule.reasons(self.table, pod_class, row)
                return Rejection(rule.name, code, reasons)
        return None

    def diagnosis(self, pod_class: PodClass) -> Diagnosis:
        """Counts of reasons over all nodes, as kube-scheduler's ``0/N nodes are available`` tells them."""
        reasons: Counter[str] = Counter()
        plugins: set[str] = set()
        rows = self.table.live_rows()
        for rule in self.filters:
            if not rule.applies(self.table, pod_class):
                continue
            passing = rule.mask(self.table, pod_class, rows)
            if not passing.all():
                plugins.add(rule.name)
                reasons.update(rule.tally(self.table, pod_class, rows[~passing]))
            rows = rows[passing]
        return Diagnosis(len(self.table.row_of), len(rows), dict(reasons), frozenset(plugins))

    def _judge(self, pod_class: PodClass) -> Feasibility:
        table = self.table
        present, dynamic = self._present(), []
        static_mask = present
        for rule in self.filters:
            if not rule.applies(table, pod_class):
                continue
            if rule.static:
                static_mask = static_mask & rule.mask(table, pod_class, slice(None))
            else:
                dynamic.append(rule)
        if np.array_equal(static_mask, present):
            static_mask = present  # as of most classes; held once
        mask = static_mask & self._dynamic(tuple(dynamic), pod_class, slice(None))
        return Feasibility(pod_class, static_mask, mask, table.clock, table.clock, tuple(dynamic))

    def _present(self) -> BoolArray:
        """The rows that hold a node: one array for all classes that may go to any of them."""
        table = self.table
        if self._everywhere_seen != table.static_stamp or len(self._everywhere) != table.rows:
            self._everywhere_seen = table.static_stamp
            self._everywhere = table.present[: table.rows].copy()
        return self._everywhere

    def _dynamic(self, filters: tuple[Filter, ...], pod_class: PodClass, rows: Rows) -> BoolArray:
        passing: BoolArray | None = None
        for rule in filters:
            mask = rule.mask(self.table, pod_class, rows)
            passing = mask if passing is None else passing & mask
        return np.ones(self.table.rows, np.bool_)[rows] if passing is None else passing


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """``nodes`` looked at, how many were feasible, and how often each reason was given by which plugins.

    ``prefiltered``: what was said of the pod before any node was looked at; then no node's reasons are told.
    """

    nodes: int
    feasible: int
    reasons: dict[str, int]
    plugins: frozenset[str]
    prefiltered: str = ""


def failure_message(diagnosis: Diagnosis) -> str:
    """What kube-scheduler says of a pod that no node takes (``framework/types.go`` FitError), without preemption."""
    if diagnosis.prefiltered and diagnosis.nodes:
        return f"0/{diagnosis.nodes} nodes are available: {diagnosis.prefiltered}."
    return unavailable_message(diagnosis.nodes, diagnosis.reasons)


def unavailable_message(nodes: int, reasons: dict[str, int]) -> str:
    """kube-scheduler's FitError text: ``0/12 nodes are available: 3 Insufficient cpu, 9 Too many pods.``"""
    if nodes == 0:
        return "no nodes available to schedule pods"
    parts = sorted(f"{count} {reason}" for reason, count in reasons.items())
    return f"0/{nodes} nodes are available: {', '.join(parts)}." if parts else f"0/{nodes} nodes are available."
