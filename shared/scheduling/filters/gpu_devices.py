"""ConclaveGpuDevices: a share of a GPU must fit on one device; whole GPUs need devices nobody shares.

kube-scheduler has no such rule for an extended resource: it sums a node. The sum is still checked by
NodeResourcesFit; this filter keeps each device at or below 1000 thousandths.
"""

from __future__ import annotations

from shared.model.constraints import PodClass
from shared.model.resources import GPU_MILLI, MILLI_PER_DEVICE
from shared.scheduling.cycle.framework import Code
from shared.scheduling.state.node_table import BoolArray, IntArray, NodeTable, Rows


def gpu_milli_of(pod_class: PodClass) -> int:
    """Thousandths of a device that the class asks for; 0 for none."""
    for name, amount in pod_class.requests:
        if name == GPU_MILLI:
            return amount
    return 0


class GpuDevices:
    """``conclave.io/gpu-milli`` per device."""

    name = "ConclaveGpuDevices"
    static = False

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
        return code, ("node(s) had no GPU device with enough free thousandths",)

    def tally(self, table: NodeTable, pod_class: PodClass, rows: IntArray) -> dict[str, int]:
        """The one reason, once per row."""
        return {self.reasons(table, pod_class, int(rows[0]))[1][0]: len(rows)} if len(rows) else {}
