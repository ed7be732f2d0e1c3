"""What the nodes of a table draw, and what a pod would add: joules for each second that it runs.

By what is requested and by the curves in ``shared/model/power.py``. A row's figures depend on that row alone, so agents
agree, and each is worked out for all rows asked about at once. Of cpu and GPUs, as the curves are: disks and networks
cost nothing. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shared.model.constraints import PodClass
from shared.model.gpu import Ints
from shared.model.gpu_shares import DEFAULT, GpuShares
from shared.model.node import Node
from shared.model.power import PUBLISHED, WATTS, NodeWatts, PowerCurves
from shared.model.resources import MILLI_PER_DEVICE
from shared.policy.frag.view import MODEL_LABELS, GpuView, asked_of
from shared.scheduling.state.node_table import CPU_COLUMN, PODS_COLUMN, NodeTable

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


REFERENCE = 4.0
"""Watts per core (a thread, as Kubernetes counts) at full load that a node's efficiency is told against: about what
servers of the last ten years draw."""
MOST_EFFICIENT = 16.0
"""A node counts as so many times more or less efficient than the reference at most, far outside of what servers are."""


def watts_at(utilisation: ArrayLike, curve: Sequence[float] = WATTS) -> Floats:
    """Watts at each utilisation (1 is all of the CPU, above it a server draws no more), in the shape that came in.

    ``ValueError``: negative or not finite.
    """
    shares = np.asarray(utilisation, np.float64)
    if not np.isfinite(shares).all() or (shares < 0).any():
        raise ValueError("utilisation must be finite and not negative")
    found: Floats = np.interp(shares, np.linspace(0.0, 1.0, len(curve)), curve)
    return found


def node_watts(curve: NodeWatts, used: Floats, cores: Floats, empty: Bools) -> Floats:
    """float64 ``[nodes]``: watts without GPUs of nodes of ``cores``, of which so many are requested. ``empty``: those
    without pods."""
    used, cores = np.maximum(used, 0.0), np.maximum(cores, 1e-3)
    if curve.steps:
        packages = np.ceil(cores / curve.cores)
        busy = np.minimum(np.ceil(used / curve.cores), packages)
        found = curve.watts[0] * (packages - busy) + curve.watts[-1] * busy
    else:
        found = watts_at(used / cores, curve.watts)
        if curve.cores:
            found = found * (cores / curve.cores)
    return np.where(empty, 0.0, found) if curve.off_when_empty else found


def model_of(node: Node) -> str:
    """The model of the node's GPUs; "": nobody says."""
    return next((node.labels[label] for label in MODEL_LABELS if label in node.labels), "")


@dataclass(frozen=True, slots=True)
class AddedGpus:
    """What a pod changes of the GPUs of some rows. float64 ``[rows]``: ``begun``: devices that it is the first to use;
    ``there``: devices that the node has, where it is off."""

    begun: Floats
    there: Floats


class NodePower:
    """The curves of a table's rows, looked up again when labels change. ``shares``: what counts as a GPU."""

    def __init__(self, curves: PowerCurves = PUBLISHED, shares: GpuShares = DEFAULT) -> None:
        self.curves, self._shares = curves, shares
        self._table: NodeTable | None = None
        self._static = -1
        self._kinds: list[NodeWatts] = []
        self._kind: Ints = np.zeros(0, np.int64)
        self._gpu_idle: Floats = np.zeros(0)
        self._gpu_more: Floats = np.zeros(0)
        """Watts that a device draws more once it is used."""
        self._off: Bools = np.zeros(0, np.bool_)

    def added(self, table: NodeTable, rows: Ints, cpu_millis: int, gpus: AddedGpus | None = None) -> Floats:
        """float64 ``[rows]``: watts that a pod of so many milli-cores would add; ``gpus`` None: it asks for none, and
        those of nodes that are off count for nothing."""
        base = self._rows(table, rows)
        empty = table.requested[PODS_COLUMN, rows] == 0
        cores = table.allocatable[CPU_COLUMN, rows] / 1000
        used = table.requested[CPU_COLUMN, rows] / 1000
        there = np.zeros(len(rows), np.bool_)
        found: Floats = np.zeros(len(rows))
        kind = self._kind[base]
        for number in np.unique(kind).tolist():
            of, curve = kind == number, self._kinds[number]
            before = node_watts(curve, used[of], cores[of], empty[of])
            found[of] = node_watts(curve, used[of] + cpu_millis / 1000, cores[of], there[of]) - before
        if gpus is not None:
            found += gpus.begun * self._gpu_more[base]
            found += np.where(empty & self._off[base], gpus.there * self._gpu_idle[base], 0.0)
        return found

    def gpus(self, table: NodeTable, rows: Ints, pod_class: PodClass) -> AddedGpus:
        """What the pod changes of the GPUs of the rows: a share goes to a device in use where one has room."""
        view, (devices, milli) = GpuView(table, self._shares), asked_of(pod_class, self._shares)
        begun, there = np.full(len(rows), float(devices)), np.zeros(len(rows))
        base, empty = self._rows(table, rows), table.requested[PODS_COLUMN, rows] == 0
        shared = devices == 1 and milli < MILLI_PER_DEVICE
        for place in np.flatnonzero(shared | (empty & self._off[base])).tolist():  # of others nobody asks
            free = view.free(int(rows[place]))
            there[place] = len(free)
            if shared:
                begun[place] = not any(milli <= left < MILLI_PER_DEVICE for left in free)
        return AddedGpus(begun, there)

    def inefficiency(self, table: NodeTable, rows: Ints) -> Floats:
        """float64 ``[rows]``: how often twice the watts per core of ``REFERENCE`` a node draws at full load: 0 as many,
        1 twice as many, -1 half; without its GPUs."""
        base = self._rows(table, rows)
        kind, cores = self._kind[base], table.allocatable[CPU_COLUMN, rows] / 1000
        found: Floats = np.zeros(len(rows))
        for number in np.unique(kind).tolist():
            of, curve = kind == number, self._kinds[number]
            full = node_watts(curve, cores[of], cores[of], np.zeros(int(of.sum()), np.bool_))
            found[of] = _times(full / np.maximum(cores[of], 1e-3))
        return found

    def _rows(self, table: NodeTable, rows: Ints) -> Ints:
        """Where the nodes of ``rows`` stand in what is kept; of a table of copies, in the table that it is of."""
        whole = self._table
        if table.copied and whole is not None and all(name in whole.row_of for name in table.names):
            if whole.static_stamp != self._static:
                self._take(whole)
            return np.array([whole.row_of[name] for name in table.names], np.int64)[rows]
        forked = whole is not None and table.names is whole.names  # shares everything but the amounts
        if not (table is whole or forked) or table.static_stamp != self._static:
            self._take(table)
        return rows

    def _take(self, table: NodeTable) -> None:
        self._table, self._static = table, table.static_stamp
        self._kinds, known = [], dict[NodeWatts, int]()
        kind, idle, more = [], [], []
        for node in table.nodes[: table.rows]:
            model = "" if node is None else model_of(node)
            curve = self.curves.of_node({} if node is None else node.labels, model)
            if curve not in known:
                known[curve] = len(self._kinds)
                self._kinds.append(curve)
            gpu = self.curves.of_gpu(model)
            kind.append(known[curve])
            idle.append(gpu.idle)
            more.append(gpu.peak - gpu.idle)
        self._kind = np.array(kind, np.int64)
        self._gpu_idle, self._gpu_more = np.array(idle, np.float64), np.array(more, np.float64)
        off = np.array([curve.off_when_empty for curve in self._kinds], np.bool_)
        self._off = off[self._kind] if kind else np.zeros(0, np.bool_)


def _times(watts_per_core: Floats) -> Floats:
    ratio = np.maximum(watts_per_core, 1e-9) / REFERENCE
    found: Floats = np.log2(np.clip(ratio, 1 / MOST_EFFICIENT, MOST_EFFICIENT))
    return found
