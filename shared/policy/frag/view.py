"""A node's GPUs as policies see them, whoever shares them out, and what a pod asks of them.

The first that a node has any of: devices of ``conclave.io/gpu-milli``, devices that claims are given, units of
resources that count as GPUs (``shared/model/gpu_shares.py``).
"""

from __future__ import annotations

import numpy as np

from shared.model.constraints import PodClass, gpu_milli_of
from shared.model.gpu import Ints
from shared.model.gpu_shares import GpuShares, offered, whole_or_share
from shared.scheduling.state.node_table import NodeTable

GPU_MODEL_LABEL = "conclave.io/gpu-model"
MODEL_LABELS = (GPU_MODEL_LABEL, "nvidia.com/gpu.product")
"""Which label tells a node's GPU model: the first that it has."""


class GpuView:
    """Of one table, while it stands as it is."""

    def __init__(self, table: NodeTable, shares: GpuShares) -> None:
        self._table = table
        known = [(shares.unit(name), column) for name, column in table.column_of.items()]
        self._units = [unit for unit, _ in known if unit]
        self._columns = [column for unit, column in known if unit]

    def free(self, row: int) -> list[int]:
        """What is free of each device of a node, in thousandths."""
        table = self._table
        found = table.device_free[row] or table.claimed_free[row]
        if found or not self._columns:
            return found
        units = table.allocatable[self._columns, row]
        if not units.any():
            return found
        return offered(self._units, units.tolist(), (units - table.requested[self._columns, row]).tolist())


def asked_of(pod_class: PodClass, shares: GpuShares) -> tuple[int, int]:
    """(devices, thousandths of each) that a pod asks for."""
    milli = gpu_milli_of(pod_class)
    if milli:
        return whole_or_share(milli)
    return pod_class.claimed if pod_class.claimed[0] else shares.asked(pod_class.requests)


def model_codes(table: NodeTable) -> tuple[dict[str, int], Ints]:
    """Numbers of the models there are, by name, and int64 ``[rows]``: each row's; -1 where no label tells it."""
    models: dict[str, int] = {}
    found = np.full(table.rows, -1, np.int64)
    for label in MODEL_LABELS:
        codes = table.codes_of(label)
        if codes is None:
            continue
        known = table.label_values.get(label, {})
        for name in known:
            models.setdefault(name, len(models))
        number_of = np.full(max(known.values(), default=-1) + 2, -1, np.int64)
        for name, code in known.items():
            number_of[code] = models[name]
        found = np.where((found < 0) & (codes >= 0), number_of[np.maximum(codes, 0)], found)
    return models, found
