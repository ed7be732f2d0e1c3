"""Room: how many more of the pods that this cluster gets would still fit, and what a placement takes of it.

    room(cluster) = sum over typical pods m of  share_m * fits_m(cluster) / fits_m(empty cluster)        0 to 1
    fits_m        = sum over nodes of how many of m fit by what is requested there

Sources: kubernetes-sigs/cluster-capacity counts the instances of a pod that still fit; Weng et al., "Beware of
Fragmentation", ATC 2023, section 4.1, takes the most frequent requests until 95 % of the pods are counted for typical.
Taking what no typical pod could use costs nothing, so it counts what is stranded whether pods are spread or packed.

By amounts alone: taints, affinity and ports of typical pods do not count. A GPU's share goes to the fullest device with
room, as the accounting gives it. Bounded: ``MOST_KNOWN`` requests are remembered, ``MOST_TYPICAL`` counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shared.model.constraints import PodClass
from shared.model.gpu import GpuRequest, GpuStates, options
from shared.model.load import DEFAULT, LoadParts
from shared.model.resources import GPU_MILLI, MILLI_PER_DEVICE
from shared.policy.power import NodePower
from shared.scheduling.state.node_table import PODS_COLUMN, IntArray, NodeTable

Floats = NDArray[np.float64]
Requests = tuple[tuple[str, int], ...]
"""(resource, amount), as ``PodClass.requests``."""
Typical = Sequence[tuple[Requests, float]]
"""Requests of typical pods and the share of each; shares sum to 1."""

TYPICAL_SHARE = 0.95
MOST_TYPICAL = 12
MOST_KNOWN = 256
HALVED_AT = 4096
"""Pods after which all counts are halved: what came an hour ago counts less than what comes now."""


class Arrivals:
    """Counts what the pods asked for that were placed."""

    def __init__(self) -> None:
        self._counts: Counter[Requests] = Counter()
        self._total = 0

    def placed(self, requests: Requests) -> None:
        """One more pod."""
        self._counts[requests] += 1
        self._total += 1
        if self._total >= HALVED_AT or len(self._counts) > MOST_KNOWN:
            self._counts = Counter({key: count // 2 for key, count in self._counts.items() if count > 1})
            self._total = self._counts.total()

    def typical(self) -> Typical:
        """The most frequent requests until 95 % of the pods are counted; equal counts in order of their amounts."""
        ranked = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))[:MOST_TYPICAL]
        kept, covered = [], 0
        for requests, count in ranked:
            if covered >= TYPICAL_SHARE * self._total:
                break
            kept.append((requests, count))
            covered += count
        return [(requests, count / covered) for requests, count in kept]


class RoomMeasure:
    """One measure: typical pods against the cluster as it was when this was made. Without any, the pod that is to be
    placed is the typical one. ``power``: what its nodes draw, ``load_parts``: of what their load is the mean, for the
    goals that ask."""

    def __init__(
        self, table: NodeTable, typical: Typical, power: NodePower | None = None, load_parts: LoadParts = DEFAULT
    ) -> None:
        self._pods = _scaled(table, typical)
        self.typical = typical
        self.power = NodePower() if power is None else power
        self.load_parts = load_parts
        self._table = table

    @cached_property
    def _gpus(self) -> RoomMeasure:
        """Of the typical pods that ask for GPUs."""
        asking = [(requests, share) for requests, share in self.typical if dict(requests).get(GPU_MILLI)]
        total = sum(share for _, share in asking)
        return RoomMeasure(self._table, [(requests, share / total) for requests, share in asking])

    def gpus_taken(self, table: NodeTable, pod_class: PodClass, rows: IntArray) -> Floats:
        """The same of the typical pods that ask for GPUs alone: what it makes of GPUs that they could use."""
        if not self._gpus.typical and not dict(pod_class.requests).get(GPU_MILLI):
            return np.zeros(len(rows))
        return self._gpus.taken(table, pod_class, rows)

    def taken(self, table: NodeTable, pod_class: PodClass, rows: IntArray) -> Floats:
        """float64 ``[rows]``: the part of the room that the pod would take on each row, all of which must have room."""
        pods = self._pods or _scaled(table, [(pod_class.requests, 1.0)])
        free = table.allocatable[:, rows] - table.requested[:, rows]
        after = free.copy()
        after[PODS_COLUMN] -= 1
        for name, amount in pod_class.requests:
            column = table.column_of.get(name)
            if column is not None:
                after[column] -= amount
        devices = left = _NONE
        if any(name == GPU_MILLI for requests, _ in pods for name, _ in requests):
            devices = _devices(table, rows)
            left = _without(devices, dict(pod_class.requests).get(GPU_MILLI, 0))
        taken = np.zeros(len(rows))
        for requests, weight in pods:
            taken += weight * (_fits(table, requests, free, devices) - _fits(table, requests, after, left))
        return taken


_NONE: IntArray = np.zeros((0, 0), np.int64)


def _scaled(table: NodeTable, typical: Typical) -> list[tuple[Requests, float]]:
    """Each typical pod with its share of the room per instance; one that would not fit an empty cluster is left out."""
    rows, found = table.live_rows(), []
    free = table.allocatable[:, rows]
    gpus = table.column_of.get(GPU_MILLI)
    for requests, share in typical:
        amount = dict(requests).get(GPU_MILLI, 0)
        devices = _NONE
        if amount and gpus is not None:
            count = free[gpus] // MILLI_PER_DEVICE
            width = int(count.max(initial=0))
            devices = np.where(np.arange(width) < count[:, None], MILLI_PER_DEVICE, 0)
        most = int(_fits(table, requests, free, devices).sum())
        if most:
            found.append((requests, share / most))
    return found


def _fits(table: NodeTable, requests: Requests, free: IntArray, devices: IntArray) -> IntArray:
    """int64 ``[rows]``: how many such pods fit beside each other. ``devices``: ``[rows, width]`` free thousandths."""
    found = free[PODS_COLUMN]
    for name, amount in requests:
        column = table.column_of.get(name)
        if column is None:
            return np.zeros(free.shape[1], np.int64)
        if name != GPU_MILLI:
            many = free[column] // amount
        elif amount < MILLI_PER_DEVICE:
            many = (devices // amount).sum(axis=1)
        else:
            many = (devices == MILLI_PER_DEVICE).sum(axis=1) // (amount // MILLI_PER_DEVICE)
        found = np.minimum(found, many)
    return np.asarray(np.maximum(found, 0), np.int64)


def _devices(table: NodeTable, rows: IntArray) -> IntArray:
    free = [table.device_free[row] for row in rows.tolist()]
    width = max((len(devices) for devices in free), default=0)
    padded = [[*devices, *(0,) * (width - len(devices))] for devices in free]
    return np.maximum(np.array(padded, np.int64).reshape(len(free), width), 0)


def _without(devices: IntArray, milli: int) -> IntArray:
    """The devices once a request of ``milli`` thousandths is there."""
    if not milli or not devices.shape[1]:
        return devices
    zeros = np.zeros(len(devices), np.int64)
    states = GpuStates(zeros, zeros, devices, zeros, zeros, zeros, zeros)
    count, each = (milli // MILLI_PER_DEVICE, MILLI_PER_DEVICE) if milli >= MILLI_PER_DEVICE else (1, milli)
    after: IntArray = options(states, GpuRequest(0, 0, count, each), fullest_only=True).after.free
    return after
