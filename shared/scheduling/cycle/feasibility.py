"""Which nodes pass all filters, per pod class, kept up to date cheaply; and why the others do not.

Static filters (labels, taints, cordons, strict limits of latency) are judged once for all classes that differ in
amounts alone, the others once per class; from then on both are judged again only on rows that changed. Most pods come
from templates, so the work per pod is a few changed rows.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from msgspec import Struct, structs

from shared.model.constraints import PodClass
from shared.scheduling.cycle.profile import DEFAULT, PluginSet
from shared.scheduling.filters import LAST
from shared.scheduling.framework import Filter, Rejection
from shared.scheduling.reasons import UNSCHEDULABLE
from shared.scheduling.state.node_table import BoolArray, IntArray, NodeTable, Rows

CACHE_BYTES = 2 * 1024 * 1024
FEWEST_CLASSES = 64


def class_limit(rows: int, bytes_per_row: int, *, budget: int = CACHE_BYTES) -> int:
    """How many classes are remembered (the least recently used is forgotten): as many as fit into ``budget`` bytes,
    so that an agent stays small whether it owns ten nodes or ten thousand."""
    return max(FEWEST_CLASSES, budget // max(1, rows * bytes_per_row + 512))


STATIC_LIMIT = 1024
"""Static verdicts remembered beside those that a remembered class uses."""


@dataclass(slots=True)
class StaticVerdict:
    """The static filters' verdict for every class of one static half: ``mask [rows]``, complete up to stamp ``seen``.

    ``half``: such a class, without what static filters do not read.
    """

    half: PodClass
    mask: BoolArray
    seen: int


@dataclass(slots=True)
class Feasibility:
    """The verdict for one class: ``mask [rows]`` is complete up to table stamp ``seen``. ``static_mask`` may be other
    classes' too: nobody writes to it."""

    pod_class: PodClass
    static: StaticVerdict
    mask: BoolArray
    seen: int
    filters: tuple[Filter, ...]
    changed: int = 0
    """The table's stamp when the mask last became another."""

    @property
    def static_mask(self) -> BoolArray:
        """``[rows]``: the static filters' verdict alone."""
        return self.static.mask


class FeasibilityCache:
    """Feasibility per pod class over one table."""

    def __init__(self, table: NodeTable, *, profile: PluginSet = DEFAULT, cache_bytes: int = CACHE_BYTES) -> None:
        self.table = table
        self.profile = profile
        self.filters = profile.filters
        self._static_filters = tuple(rule for rule in self.filters if rule.static)
        self._cache_bytes = cache_bytes
        self._classes: OrderedDict[PodClass, Feasibility] = OrderedDict()
        self._statics: OrderedDict[PodClass, StaticVerdict] = OrderedDict()
        self.yielding: object | None = None
        """What pods leave to those nominated (``nominated.py``), as far as somebody asked."""

    def of(self, pod_class: PodClass) -> Feasibility:
        """The class's feasibility as of now."""
        entry = self._classes.get(pod_class)
        table = self.table
        if entry is None:
            entry = self._classes[pod_class] = self._judge(pod_class)
            limit = class_limit(table.rows, 2, budget=self._cache_bytes)
            while len(self._classes) > limit:
                # I10: classes are other people's text, and there may be one a pod.
                self._classes.popitem(last=False)
            return entry
        self._classes.move_to_end(pod_class)
        if entry.seen < table.clock:
            self._follow(entry.static)
            if len(entry.mask) < table.rows:
                entry.mask, entry.changed = _longer(entry.mask, table.rows), table.clock
            rows = table.changed_since(entry.seen)
            if len(rows):
                passing = entry.static.mask[rows] & _passing(entry.filters, table, pod_class, rows)
                # Else `changed` stays: what others keep rests on which nodes are feasible, not on how full those are.
                if not np.array_equal(entry.mask[rows], passing):
                    entry.mask[rows] = passing
                    entry.changed = table.clock
            entry.seen = table.clock
        return entry

    def of_copies(self, table: NodeTable, pod_class: PodClass) -> BoolArray:
        """``[rows]`` of a table ``with_copies`` of feasible rows: which of them take one more of the class."""
        return _passing(self.of(pod_class).filters, table, pod_class, slice(None))

    def static_verdict(self, pod_class: PodClass) -> StaticVerdict:
        """The static filters' verdict as of now, without bringing the rest up to date; the same object for all classes
        that they judge alike."""
        entry = self._classes.get(pod_class)
        if entry is not None:
            self._follow(entry.static)
            return entry.static
        return self._static(static_half(pod_class))

    def fork(self, table: NodeTable, classes: Iterable[PodClass]) -> FeasibilityCache:
        """These classes' verdicts over a fork of the table, just made: what is counted there does not show here."""
        other = FeasibilityCache(table, profile=self.profile, cache_bytes=self._cache_bytes)
        for pod_class in classes:
            known = self.of(pod_class)
            # A copy, as of the fork: what is counted there in thought must not show in the live verdict.
            other._classes[pod_class] = replace(known, mask=known.mask.copy(), seen=table.clock)
        return other

    def rejection(self, pod_class: PodClass, row: int, *, static_only: bool = False) -> Rejection | None:
        """Why the row does not take the class (``static_only``: whatever is accounted there); None when it does."""
        rows = np.array([row])
        for rule in self.filters:
            if static_only and not rule.static:
                continue
            if rule.applies(self.table, pod_class) and not rule.mask(self.table, pod_class, rows)[0]:
                code, reasons = rule.reasons(self.table, pod_class, row)
                return Rejection(rule.name, code, reasons)
        return None

    def diagnosis(self, pod_class: PodClass) -> Diagnosis:
        """Counts of reasons over all nodes, as kube-scheduler's ``0/N nodes are available`` tells them."""
        reasons, plugins = Counter[str](), set[str]()
        rows = self.table.live_rows()
        for last in (False, True):
            rows = self.sift(pod_class, rows, reasons, plugins, last=last)
        return Diagnosis(len(self.table.row_of), len(rows), dict(reasons), frozenset(plugins))

    def sift(
        self, pod_class: PodClass, rows: IntArray, reasons: Counter[str], plugins: set[str], *, last: bool
    ) -> IntArray:
        """The rows that pass; of the others reasons and plugins are counted. ``last``: by the filter that comes after
        the rules which need the whole cluster, or by those before them."""
        for rule in self.filters:
            if (rule.name == LAST) is not last or not rule.applies(self.table, pod_class):
                continue
            passing = rule.mask(self.table, pod_class, rows)
            if not passing.all():
                plugins.add(rule.name)
                reasons.update(rule.tally(self.table, pod_class, rows[~passing]))
            rows = rows[passing]
        return rows

    def _judge(self, pod_class: PodClass) -> Feasibility:
        table = self.table
        static = self._static(static_half(pod_class))
        dynamic = tuple(rule for rule in self.filters if not rule.static and rule.applies(table, pod_class))
        mask = static.mask & _passing(dynamic, table, pod_class, slice(None))
        return Feasibility(pod_class, static, mask, table.clock, dynamic, table.clock)

    def _static(self, half: PodClass) -> StaticVerdict:
        found = self._statics.get(half)
        if found is None:
            found = StaticVerdict(half, np.zeros(self.table.rows, np.bool_), -1)
            self._statics[half] = found
            while len(self._statics) > STATIC_LIMIT:
                self._statics.popitem(last=False)
        else:
            self._statics.move_to_end(half)
        self._follow(found)
        return found

    def _follow(self, static: StaticVerdict) -> None:
        """Judge the rows whose static half may have changed: those that changed at all, if any did so."""
        table = self.table
        if static.seen >= table.decided_at(static.half) and len(static.mask) == table.rows:
            return
        everything = static.seen < 0
        rows: Rows = slice(None) if everything else table.changed_since(static.seen)
        mask = static.mask if len(static.mask) == table.rows else _longer(static.mask, table.rows)
        # A copy: the filters below write into it, and a slice is the table's own.
        passing: BoolArray = table.present[: table.rows][rows].copy()
        for rule in self._static_filters:
            if rule.applies(table, static.half):
                passing &= rule.mask(table, static.half, rows)
        mask[rows] = passing
        static.mask, static.seen = mask, table.clock


def _passing(filters: tuple[Filter, ...], table: NodeTable, pod_class: PodClass, rows: Rows) -> BoolArray:
    passing: BoolArray | None = None
    for rule in filters:
        mask = rule.mask(table, pod_class, rows)
        passing = mask if passing is None else passing & mask
    return np.ones(table.rows, np.bool_)[rows] if passing is None else passing


def static_half(pod_class: PodClass) -> PodClass:
    """The class without what no static filter reads: amounts, ports and what only scores look at; a limit of latency
    that is no more than a wish is such."""
    # Whatever is left out here no static filter may read: classes that differ in it alone share one verdict.
    strict = pod_class.latency_strict
    return structs.replace(
        pod_class,
        requests=(),
        score_cpu_millis=0,
        score_memory_bytes=0,
        preferred_terms=(),
        host_ports=(),
        latency_soft_us=0,
        latency_hard_us=pod_class.latency_hard_us if strict else 0,
        latency_target=pod_class.latency_target if strict else "",
        workload="",
        labels=(),
        needs=None,
    )


def _longer(mask: BoolArray, rows: int) -> BoolArray:
    """The mask with a place for every row; new ones do not pass until they are judged."""
    return np.concatenate((mask, np.zeros(rows - len(mask), np.bool_)))


class Diagnosis(Struct, frozen=True):
    """``nodes`` looked at, how many were feasible, and how often each reason was given by which plugins.

    ``prefiltered``: what was said of the pod before any node was looked at; then no node's reasons are told.
    ``reason``: of a pod group's member, whether a further node would help it, as the condition PodScheduled has it.
    """

    nodes: int
    feasible: int
    reasons: dict[str, int]
    plugins: frozenset[str]
    prefiltered: str = ""
    reason: str = UNSCHEDULABLE


def failure_message(diagnosis: Diagnosis) -> str:
    """What kube-scheduler says of a pod that no node takes (``framework/types.go`` FitError), without preemption."""
    if diagnosis.prefiltered and diagnosis.nodes:
        return f"0/{diagnosis.nodes} nodes are available: {diagnosis.prefiltered}."
    return unavailable_message(diagnosis.nodes, diagnosis.reasons)


def unavailable_message(nodes: int, reasons: dict[str, int]) -> str:
    """kube-scheduler's FitError text: ``0/12 nodes are available: 3 Insufficient cpu, 9 Too many pods.``"""
    if nodes == 0:
        return "no nodes available to schedule pods"
    # As text, as upstream sorts them: "10 ..." stands before "9 ...".
    parts = sorted(f"{count} {reason}" for reason, count in reasons.items())
    return f"0/{nodes} nodes are available: {', '.join(parts)}." if parts else f"0/{nodes} nodes are available."
