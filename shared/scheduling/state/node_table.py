"""Nodes as a struct of arrays: the view that filters and scores run on, in every service alike.

One row per node; a freed row is reused. Every change of a row gives it a new *stamp* from the table's one counter, so
"what changed since I looked" is one array comparison. A row's *generation* is the stamp in the table where accounting
happens; an agent's table takes generations over from the coordinator's, so that a decision names the coordinator's.
The table knows amounts, not pods: who uses what is kept in ``cache.py`` (coordinator, binder) or comes over the wire
as numbers (agents).

Shapes: ``[resources, rows]`` int64 for amounts; CPU in milli-cores, the rest in whole units.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shared.model.constraints import HostPort, PodClass, Taint, gpu_milli_of
from shared.model.gpu import pick_devices, take_devices
from shared.model.node import UNKNOWN_LATENCY, Node
from shared.model.qos import CPU_NAMES, differ_in_lent_alone, is_lent
from shared.model.resources import CPU, EPHEMERAL_STORAGE, GPU_MILLI, MEMORY, MILLI_PER_DEVICE, PODS
from shared.scheduling.state.latencies import TargetLatencies
from shared.scheduling.state.measured_use import MeasuredUse

IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
Rows: TypeAlias = "IntArray | slice"

FIXED_RESOURCES = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)
CPU_COLUMN, MEMORY_COLUMN, PODS_COLUMN = 0, 1, 3
MAX_DEVICES = 64
ABSENT = -1


class NodeTable:
    """Amounts, labels, taints, ports and GPU devices of many nodes.

    ``stamp[row]``: the counter's value at the row's last change; ``static_stamp``: at the last change of anything but
    accounting and latencies (labels, taints, declared features, unschedulable, the set of nodes); ``latency_stamp``: at
    the last change of a latency; ``offered_stamp``: at the last change of what some node offers, devices included,
    but for how much it lends.
    """

    def __init__(self, capacity: int = 64) -> None:
        self.capacity = max(capacity, 1)
        self.rows = 0
        self.clock = 0
        self.static_stamp = 0
        self.latency_stamp = 0
        self.offered_stamp = 0
        self.names: list[str] = []
        self.row_of: dict[str, int] = {}
        self.nodes: list[Node | None] = []
        self.resource_names: list[str] = list(FIXED_RESOURCES)
        self.column_of: dict[str, int] = {name: i for i, name in enumerate(FIXED_RESOURCES)}
        self.allocatable: IntArray = np.zeros((len(FIXED_RESOURCES), self.capacity), np.int64)
        self.requested: IntArray = np.zeros((len(FIXED_RESOURCES), self.capacity), np.int64)
        self.score_requested: IntArray = np.zeros((2, self.capacity), np.int64)
        self.generation: IntArray = np.zeros(self.capacity, np.int64)
        self.stamp: IntArray = np.zeros(self.capacity, np.int64)
        self.present: BoolArray = np.zeros(self.capacity, np.bool_)
        self.unschedulable: BoolArray = np.zeros(self.capacity, np.bool_)
        self.drained: BoolArray = np.zeros(self.capacity, np.bool_)
        self.taint_set: IntArray = np.zeros(self.capacity, np.int64)
        self.taint_sets: list[tuple[Taint, ...]] = [()]
        self._taint_set_of: dict[tuple[Taint, ...], int] = {(): 0}
        self.feature_set: IntArray = np.zeros(self.capacity, np.int64)
        self.feature_sets: list[tuple[str, ...]] = [()]
        self.label_codes: dict[str, IntArray] = {}
        self.label_values: dict[str, dict[str, int]] = {}
        self.ports: list[dict[HostPort, int]] = []
        self.device_free: list[list[int]] = []
        self.claimed_free: list[list[int]] = []
        self.zones_free: dict[int, list[list[int]]] = {}
        """By row, where a kubelet that aligns strictly has GPUs in its zones: of each zone in order what is free of
        CPU, memory (-1: no zone tells) and GPUs (thousandths), how much of GPUs there is, and who lets pods on: the
        kubelet (0) or Katalyst's agent (1). As it was told, whatever is counted since."""
        """What claims leave of each device, in thousandths, for policies; the rules look at the claims themselves."""
        self.device_max_free: IntArray = np.zeros(self.capacity, np.int64)
        self.device_whole: IntArray = np.zeros(self.capacity, np.int64)
        self.latency_us: IntArray = np.full(self.capacity, UNKNOWN_LATENCY, np.int64)
        self.latencies = TargetLatencies(self.capacity)
        self.use = MeasuredUse(self.capacity)
        self.lent_columns: tuple[tuple[int, ...], tuple[int, ...]] = (), ()
        """Those of resources that are lent, whoever lends them: milli-cores, bytes."""
        self._free_rows: list[int] = []
        self._by_name: tuple[list[str], IntArray] | None = None
        self.copied = False
        """Made by ``with_copies``: nothing is to be remembered about it."""

    # --- nodes --------------------------------------------------------------------------------------------------

    def upsert(self, node: Node) -> int:
        """Add a node or take over its static half; accounting stays. Returns its row."""
        row = self.row_of.get(node.name)
        known = self.nodes[row] if row is not None else None
        if row is None:
            row = self._new_row(node.name)
        elif known == node:
            return row
        if known is not None and known.uid != node.uid:
            self.latencies.clear(row)  # another machine of that name
            self.use.clear(row)
            self.latency_stamp = self.clock + 1
        self.nodes[row] = node
        static_before = (known.labels, known.taints, known.closed, known.features) if known is not None else None
        if static_before != (node.labels, node.taints, node.closed, node.features):
            self._set_static(row, node, known)
        if known is None or not differ_in_lent_alone(known.allocatable, node.allocatable):
            self.offered_stamp = self.clock + 1
        self.drained[row] = bool(node.drained) and not node.unschedulable
        for name in node.allocatable:
            if name not in self.column_of:
                self._new_column(name)
        for name, column in self.column_of.items():
            self.allocatable[column, row] = node.allocatable.get(name, 0)
        self._resize_devices(row, node.allocatable.get(GPU_MILLI, 0) // MILLI_PER_DEVICE)
        if self.latency_us[row] != node.latency_us:
            self.latency_us[row] = node.latency_us
            self.latency_stamp = self.clock + 1
        self._touch(row)
        return row

    def remove(self, name: str) -> None:
        """Forget a node; an unknown name is fine."""
        row = self.row_of.pop(name, None)
        if row is None:
            return
        self._by_name = None
        node = self.nodes[row]
        self.nodes[row], self.names[row] = None, ""
        self.present[row] = False
        self.allocatable[:, row] = 0
        self.requested[:, row] = 0
        self.score_requested[:, row] = 0
        self.latency_us[row] = UNKNOWN_LATENCY
        self.latencies.clear(row)
        self.use.clear(row)
        self.ports[row] = {}
        self.device_free[row], self.claimed_free[row] = [], []
        self.zones_free.pop(row, None)
        self.device_max_free[row] = self.device_whole[row] = 0
        for key in node.labels if node is not None else ():
            self.label_codes[key][row] = ABSENT
        self._free_rows.append(row)
        self._touch(row)
        self.static_stamp = self.clock

    def live_rows(self) -> IntArray:
        """The rows of all nodes there are, ascending."""
        return np.flatnonzero(self.present[: self.rows])

    def totals(self) -> dict[str, int]:
        """What all nodes have together, by resource."""
        sums = self.allocatable[:, : self.rows].sum(axis=1).tolist()
        return {name: int(sums[column]) for name, column in self.column_of.items()}

    def by_name(self) -> tuple[list[str], IntArray]:
        """(names in order, their rows); sorted again only when nodes came or went. For reading only."""
        if self._by_name is None:
            names = sorted(self.row_of)
            self._by_name = names, np.fromiter((self.row_of[name] for name in names), np.int64, len(names))
        return self._by_name

    def changed_since(self, stamp: int) -> IntArray:
        """Rows (also of removed nodes) that changed after the counter stood at ``stamp``."""
        return (self.stamp[: self.rows] > stamp).nonzero()[0]  # not flatnonzero: it is eight calls of Python

    # --- accounting ---------------------------------------------------------------------------------------------

    def add_usage(self, row: int, pod_class: PodClass, devices: Sequence[int], *, sign: int = 1) -> None:
        """Count one pod of ``pod_class`` on ``devices`` of the row (``sign`` -1: no longer)."""
        requested = self.requested
        for name, amount in pod_class.requests:
            column = self.column_of.get(name)
            if column is None:
                self._new_column(name)
                requested, column = self.requested, self.column_of[name]
            requested[column, row] += sign * amount
            if name == GPU_MILLI and devices:
                self._use_devices(row, devices, sign * (amount // len(devices)))
        requested[PODS_COLUMN, row] += sign
        self.score_requested[0, row] += sign * pod_class.score_cpu_millis
        self.score_requested[1, row] += sign * pod_class.score_memory_bytes
        if pod_class.host_ports:
            ports = self.ports[row] = dict(self.ports[row])  # the old one may be a fork's
            for port in pod_class.host_ports:
                count = ports.get(port, 0) + sign
                if count > 0:
                    ports[port] = count
                else:
                    ports.pop(port, None)
        self._touch(row)

    def set_latency(self, row: int, latency_us: int) -> None:
        """The row's latency to the users from now on."""
        self.latency_us[row] = latency_us
        self._touch(row)
        self.latency_stamp = self.clock

    def latency_to(self, target: str, rows: IntArray) -> IntArray:
        """int64 [rows]: microseconds to a target, for "" to the users in general; ``UNKNOWN_LATENCY``: not known."""
        return self.latencies.to(target, rows) if target else self.latency_us.take(rows)

    def newest_latency(self, target: str, rows: Rows) -> IntArray:
        """The same as last measured, however little that differs from before: what limits are held against."""
        return self.latencies.newest(target, rows) if target else self.latency_us[rows]

    def set_latencies(self, row: int, latencies: Mapping[str, int]) -> dict[str, int]:
        """All that is measured of the row by target, and what changed (``TargetLatencies.put``). It is judged anew
        where that is anything; its accounting, and so its generation, stays."""
        if not latencies and not self.latencies:
            return {}
        changed = self.latencies.put(row, latencies)
        if changed:
            self.judge_anew(row)
            self.latency_stamp = self.clock
        return changed

    def judge_anew(self, row: int) -> None:
        """What was measured of the row has changed; its accounting, and so its generation, stays."""
        self.clock += 1
        self.stamp[row] = self.clock

    def decided_at(self, pod_class: PodClass) -> int:
        """The counter's value at the last change of what the static filters read for the class."""
        return max(self.static_stamp, self.latency_stamp) if pod_class.latency_strict else self.static_stamp

    def clear_usage(self, row: int) -> None:
        """Count nothing on the row any more; the caller counts its pods anew."""
        self.requested[:, row] = 0
        self.score_requested[:, row] = 0
        self.ports[row] = {}
        self.device_free[row] = [MILLI_PER_DEVICE] * len(self.device_free[row])
        self._count_devices(row)
        self._touch(row)

    def set_usage(
        self, row: int, requested: Mapping[str, int], score_requested: tuple[int, int], ports: Iterable[HostPort],
        device_free: Sequence[int], generation: int,
    ) -> None:  # fmt: skip
        """Take over a row's accounting as another service counted it, with that service's ``generation``."""
        for name in requested:
            if name not in self.column_of:
                self._new_column(name)
        self.requested[:, row] = 0
        for name, amount in requested.items():
            self.requested[self.column_of[name], row] = amount
        self.score_requested[:, row] = score_requested
        self.ports[row] = dict.fromkeys(ports, 1)
        if self.device_free[row] != device_free:
            self.device_free[row] = list(device_free)
            self._count_devices(row)
        self._touch(row)
        self.generation[row] = generation

    def set_claimed(self, row: int, free: list[int]) -> None:
        """What claims leave free of the row's devices now."""
        if self.claimed_free[row] != free:
            if len(self.claimed_free[row]) != len(free):
                self.offered_stamp = self.clock + 1
            self.claimed_free[row] = free
            self._touch(row)

    def set_zones(self, row: int, zones: list[list[int]]) -> None:
        """What is free in the row's zones now; [] where nobody is aligned by them, or they have no GPUs."""
        if self.zones_free.get(row, []) != zones:
            if zones:
                self.zones_free[row] = zones
            else:
                del self.zones_free[row]
            self._touch(row)

    def claim_fits(self, claimed: tuple[int, int]) -> BoolArray:
        """``[rows]``: whether claims leave (devices, thousandths of each) free. No filter: which of them a claim may
        have is not known here, and nothing at all of nodes whose devices nobody tells."""
        wanted = claimed[0] * claimed[1]
        return np.array([not free or bool(pick_devices(free, wanted)) for free in self.claimed_free[: self.rows]])

    def pick_devices(self, row: int, milli: int) -> tuple[int, ...]:
        """The devices a request of ``milli`` thousandths gets on the row (best fit: whole devices stay whole)."""
        return pick_devices(self.device_free[row], milli)

    def validate(self) -> Iterator[str]:
        """What is broken between rows, names and nodes; nothing while all is well."""
        for name, row in self.row_of.items():
            node = self.nodes[row]
            if node is None or node.name != name or self.names[row] != name or not self.present[row]:
                yield f"node-rows: row {row} is not that of {name}"
        if int(self.present.sum()) != len(self.row_of) or len(self._free_rows) != self.rows - len(self.row_of):
            yield f"node-rows: {len(self.row_of)} nodes and {len(self._free_rows)} free rows do not make {self.rows}"

    # --- thoughts -----------------------------------------------------------------------------------------------

    def fork(self) -> NodeTable:
        """The same nodes with accounting of their own, to count on in thought. Everything else is shared: only
        accounting may change there, and a fork is dropped before the table changes."""
        other = copy(self)
        other.column_of, other.resource_names = dict(self.column_of), list(self.resource_names)
        other.requested, other.score_requested = self.requested.copy(), self.score_requested.copy()
        other.generation, other.stamp = self.generation.copy(), self.stamp.copy()
        other.ports, other.device_free = list(self.ports), list(self.device_free)
        other.claimed_free = list(self.claimed_free)
        if GPU_MILLI in self.column_of:
            other.device_max_free, other.device_whole = self.device_max_free.copy(), self.device_whole.copy()
        return other

    def add_copies(self, rows: IntArray, copies: IntArray, pod_class: PodClass) -> None:
        """Count ``copies [len(rows)]`` pods of a class that asks for no ports; rows are distinct."""
        for name, amount in pod_class.requests:
            if name not in self.column_of:
                self._new_column(name)
            self.requested[self.column_of[name], rows] += copies * amount
        self.requested[PODS_COLUMN, rows] += copies
        self.score_requested[0, rows] += copies * pod_class.score_cpu_millis
        self.score_requested[1, rows] += copies * pod_class.score_memory_bytes
        self.clock += 1
        self.stamp[rows] = self.generation[rows] = self.clock
        if milli := gpu_milli_of(pod_class):
            for row, count in zip(rows.tolist(), copies.tolist(), strict=True):
                free = self.device_free[row] = list(self.device_free[row])  # the old one may be a fork's
                for _ in range(count):
                    devices = pick_devices(free, milli)
                    for device in devices:
                        free[device] -= milli // len(devices)
                self._count_devices(row)
        if pod_class.claimed[0]:
            for row, count in zip(rows.tolist(), copies.tolist(), strict=True):
                free = self.claimed_free[row] = list(self.claimed_free[row])
                for _ in range(count):
                    take_devices(free, pod_class.claimed)

    def with_copies(self, rows: IntArray, copies: IntArray, pod_class: PodClass) -> NodeTable:
        """A table of these rows alone, in this order, with ``copies [len(rows)]`` pods of a class counted on top; for
        reading. A row may stand there several times; what is not accounting is as here."""
        picked, other = rows.tolist(), copy(self)
        other.rows = other.capacity = len(picked)
        other.names = [self.names[row] for row in picked]
        other.row_of, other.copied = {}, True
        other.nodes = [self.nodes[row] for row in picked]
        other.column_of, other.resource_names = dict(self.column_of), list(self.resource_names)
        other.allocatable, other.requested = self.allocatable.take(rows, 1), self.requested.take(rows, 1)
        other.score_requested = self.score_requested.take(rows, 1)
        other.generation, other.stamp = self.generation[rows], self.stamp[rows]
        other.present, other.unschedulable, other.drained = (
            self.present[rows], self.unschedulable[rows], self.drained[rows],
        )  # fmt: skip
        other.taint_set, other.feature_set = self.taint_set[rows], self.feature_set[rows]
        other.label_codes = {key: codes[rows] for key, codes in self.label_codes.items()}
        other.ports, other.device_free = [self.ports[row] for row in picked], [self.device_free[row] for row in picked]
        other.device_max_free, other.device_whole = self.device_max_free[rows], self.device_whole[rows]
        other.claimed_free = [self.claimed_free[row] for row in picked]
        other.zones_free = {}  # what copies leave of zones nobody knows here
        other.latency_us = self.latency_us[rows]
        other.latencies = self.latencies.of_rows(rows)
        other.use = self.use.of_rows(rows)
        if not pod_class.host_ports:
            other.add_copies(np.arange(len(picked)), copies, pod_class)
            return other
        for row, count in enumerate(copies.tolist()):
            for _ in range(count):
                other.add_usage(row, pod_class, other.pick_devices(row, gpu_milli_of(pod_class)))
        return other

    # --- labels -------------------------------------------------------------------------------------------------

    def rows_named(self, name: str) -> list[int]:
        """The node's row, if it is there; of a table ``with_copies`` all of its rows."""
        if self.copied:
            return [row for row, other in enumerate(self.names) if other == name]
        row = self.row_of.get(name)
        return [] if row is None else [row]

    def codes_of(self, key: str) -> IntArray | None:
        """Value codes of label ``key`` per row, ``ABSENT`` where a node lacks it; None when no node ever had it."""
        codes = self.label_codes.get(key)
        return None if codes is None else codes[: self.rows]

    # --- inside -------------------------------------------------------------------------------------------------

    def _touch(self, row: int) -> None:
        self.clock += 1
        self.stamp[row] = self.generation[row] = self.clock

    def _new_row(self, name: str) -> int:
        if self._free_rows:
            row = self._free_rows.pop()
            self.names[row] = name
        else:
            row = self.rows
            if row == self.capacity:
                self._grow()
            self.rows += 1
            self.names.append(name)
            self.nodes.append(None)
            self.ports.append({})
            self.device_free.append([])
            self.claimed_free.append([])
        self.row_of[name] = row
        self._by_name = None
        self.present[row] = True
        return row

    def _set_static(self, row: int, node: Node, known: Node | None) -> None:
        self.unschedulable[row] = node.closed
        number = self._taint_set_of.get(node.taints)
        if number is None:
            number = self._taint_set_of[node.taints] = len(self.taint_sets)
            self.taint_sets.append(node.taints)
        self.taint_set[row] = number
        if node.features not in self.feature_sets:  # of a handful: there are few features
            self.feature_sets.append(node.features)
        self.feature_set[row] = self.feature_sets.index(node.features)
        for key in known.labels if known is not None else ():
            if key not in node.labels:
                self.label_codes[key][row] = ABSENT
        for key, value in node.labels.items():
            codes = self.label_codes.get(key)
            if codes is None:
                codes = self.label_codes[key] = np.full(self.capacity, ABSENT, np.int64)
                self.label_values[key] = {}
            values = self.label_values[key]
            codes[row] = values.setdefault(value, len(values))
        self.static_stamp = self.clock + 1

    def _new_column(self, name: str) -> None:
        self.column_of[name] = len(self.resource_names)
        self.resource_names.append(name)
        if is_lent(name):
            cpu, memory = self.lent_columns
            at = (self.column_of[name],)
            self.lent_columns = (cpu + at, memory) if name.rpartition("/")[2] in CPU_NAMES else (cpu, memory + at)
        empty = np.zeros((1, self.capacity), np.int64)
        self.allocatable = np.vstack((self.allocatable, empty))
        self.requested = np.vstack((self.requested, empty))

    def _grow(self) -> None:
        extra = self.capacity
        self.capacity += extra

        def longer(array: IntArray, fill: int = 0) -> IntArray:
            return np.concatenate((array, np.full(extra, fill, array.dtype)))

        self.allocatable = np.pad(self.allocatable, ((0, 0), (0, extra)))
        self.requested = np.pad(self.requested, ((0, 0), (0, extra)))
        self.score_requested = np.pad(self.score_requested, ((0, 0), (0, extra)))
        self.generation = longer(self.generation)
        self.stamp = longer(self.stamp)
        self.present = np.concatenate((self.present, np.zeros(extra, np.bool_)))
        self.unschedulable = np.concatenate((self.unschedulable, np.zeros(extra, np.bool_)))
        self.drained = np.concatenate((self.drained, np.zeros(extra, np.bool_)))
        self.taint_set = longer(self.taint_set)
        self.feature_set = longer(self.feature_set)
        self.device_max_free = longer(self.device_max_free)
        self.device_whole = longer(self.device_whole)
        self.latency_us = longer(self.latency_us, UNKNOWN_LATENCY)
        self.latencies.grow(extra)
        self.use.grow(extra)
        for key, codes in self.label_codes.items():
            self.label_codes[key] = longer(codes, ABSENT)

    def _resize_devices(self, row: int, count: int) -> None:
        free = self.device_free[row]
        count = min(count, MAX_DEVICES)
        if len(free) != count:
            self.device_free[row] = free[:count] + [MILLI_PER_DEVICE] * (count - len(free))
            self._count_devices(row)

    def _use_devices(self, row: int, devices: Sequence[int], milli: int) -> None:
        free = self.device_free[row] = list(self.device_free[row])  # the old one may be a fork's
        for device in devices:
            if 0 <= device < len(free):
                free[device] -= milli
        self._count_devices(row)

    def _count_devices(self, row: int) -> None:
        free = self.device_free[row]
        self.device_max_free[row] = max(free, default=0)
        self.device_whole[row] = free.count(MILLI_PER_DEVICE)
