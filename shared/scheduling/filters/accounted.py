"""Filters that read what is accounted on a node: amounts, host ports, GPU devices. The reasons are kube-scheduler's.

``conflicts.fits`` states all of them once more for one row; a property test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from shared.model.constraints import HostPort, PodClass, fitted, gpu_milli_of
from shared.model.resources import MILLI_PER_DEVICE
from shared.scheduling.framework import Code, OneReason
from shared.scheduling.state.node_table import PODS_COLUMN, BoolArray, IntArray, NodeTable, Rows

ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - the value Kubernetes uses, not an address we bind


def conflicts(wanted: Iterable[HostPort], used: Iterable[HostPort]) -> bool:
    """Whether any wanted port is taken."""
    taken = list(used)
    for port in wanted:
        for other in taken:
            same_port = port.port == other.port and port.protocol == other.protocol
            if same_port and (port.ip == other.ip or ANY_ADDRESS in (port.ip, other.ip)):
                return True
    return False


class ResourceFit:
    """Requests of all pods on a node stay within its allocatable, and so does their number."""

    name = "NodeResourcesFit"
    static = False

    def applies(self, table: NodeTable, pod_class: PodClass) -> bool:  # noqa: ARG002
        """Always: the pod count is checked for every pod."""
        return True

    def mask(self, table: NodeTable, pod_class: PodClass, rows: Rows) -> BoolArray:
        """True where the pod and every request above zero fit beside what is there."""
        allocatable, requested = table.allocatable, table.requested
        count, by_class = table.rows, pod_class.by_class
        passing: BoolArray = requested[PODS_COLUMN, :count][rows] < allocatable[PODS_COLUMN, :count][rows]
        for name, amount in fitted(pod_class):
            column = table.column_of.get(name)
            if by_class and name in by_class:
                if column is not None:
                    total = allocatable[column, :count][rows]
                    passing &= (total == 0) | (total - requested[column, :count][rows] >= amount)
                continue
            if column is None:
                return np.zeros_like(passing)
            passing &= allocatable[column, :count][rows] - requested[column, :count][rows] >= amount
        return passing

    def reasons(self, table: NodeTable, pod_class: PodClass, row: int) -> tuple[Code, tuple[str, ...]]:
        """Every resource that is short; unresolvable when one (never the pod count) is short even on an empty node."""
        reasons, code = [], Code.UNSCHEDULABLE
        if int(table.requested[PODS_COLUMN, row]) + 1 > int(table.allocatable[PODS_COLUMN, row]):
            reasons.append("Too many pods")
        for name, amount in fitted(pod_class):
            column = table.column_of.get(name)
            total = 0 if column is None else int(table.allocatable[column, row])
            used = 0 if column is None else int(table.requested[column, row])
            if amount > total - used and (total or name not in pod_class.by_class):
                reasons.append(f"Insufficient {name}")
                if amount > total:
                    code = Code.UNRESOLVABLE
        return code, tuple(reasons)

    def tally(self, table: NodeTable, pod_class: PodClass, rows: IntArray) -> dict[str, int]:
        """Per resource, the rows on which it is short."""
        full = table.requested[PODS_COLUMN, rows] + 1 > table.allocatable[PODS_COLUMN, rows]
        counts = {"Too many pods": int(full.sum())}
        for name, amount in fitted(pod_class):
            column = table.column_of.get(name)
            if column is None:
                counts[f"Insufficient {name}"] = 0 if name in pod_class.by_class else len(rows)
            else:
                total = table.allocatable[column, rows]
                short = total - table.requested[column, rows] < amount
                if name in pod_class.by_class:
                    short &= total > 0
                counts[f"Insufficient {name}"] = int(short.sum())
        return {reason: count for reason, count in counts.items() if count}


class NodePorts(OneReason):
    """A host port can be held once per protocol and address; 0.0.0.0 overlaps every address."""

    name = "NodePorts"
    static = False
    code = Code.UNSCHEDULABLE
    reason = "node(s) didn't have free ports for the requested pod ports"

    def applies(self, table: NodeTable, pod_class: PodClass) -> bool:  # noqa: ARG002
        """Only classes that ask for host ports."""
        return bool(pod_class.host_ports)

    def mask(self, table: NodeTable, pod_class: PodClass, rows: Rows) -> BoolArray:
        """True where no wanted port is taken."""
        indices = np.arange(table.rows)[rows]
        return np.fromiter(
            (not (table.ports[i] and conflicts(pod_class.host_ports, table.ports[i])) for i in indices.tolist()),
            np.bool_,
            len(indices),
        )


class GpuDevices(OneReason):
    """A share of a GPU (``conclave.io/gpu-milli``) must fit on one device; whole GPUs need devices nobody shares.

    kube-scheduler has no such rule for an extended resource: it sums a node. The sum is still checked by
    NodeResourcesFit; this filter keeps each device at or below 1000 thousandths.
    """

    name = "ConclaveGpuDevices"
    static = False
    reason = "node(s) had no GPU device with enough free thousandths"

    def applies(self, table: NodeTable, pod_class: PodClass) -> bool:  # noqa: ARG002
        """Only classes that ask for GPU thousandths."""
        return gpu_milli_of(pod_class) > 0

    def mask(self, table: NodeTable, pod_class: PodClass, rows: Rows) -> BoolArray:
        """True where one device has the share free, or enough devices are wholly free."""
        milli = gpu_milli_of(pod_class)
        if milli < MILLI_PER_DEVICE:
            return table.device_max_free[: table.rows][rows] >= milli
        return table.device_whole[: table.rows][rows] >= milli // MILLI_PER_DEVICE

    def reasons(self, table: NodeTable, pod_class: PodClass, row: int) -> tuple[Code, tuple[str, ...]]:
        """Unresolvable when the node has too few devices even when empty."""
        milli = gpu_milli_of(pod_class)
        needed = max(1, milli // MILLI_PER_DEVICE)
        code = Code.UNSCHEDULABLE if len(table.device_free[row]) >= needed else Code.UNRESOLVABLE
        return code, (self.reason,)
