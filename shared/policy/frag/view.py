"""A node's GPUs as policies see them, whoever shares them out, and what a pod asks of them.

The first that a node has any of: devices of ``conclave.io/gpu-milli``, devices that claims are given, units of
resources that count as GPUs (``shared/model/gpu_shares.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from shared.model.constraints import PodClass, gpu_milli_of
from shared.model.gpu import ANY_MODEL, GpuRequest, Ints
from shared.model.gpu_shares import GpuShares, offered, whole_or_share
from shared.model.node_topology import PodNeeds
from shared.model.resources import MILLI_PER_DEVICE
from shared.scheduling.state.node_table import NodeTable

MIB = 1 << 20
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

    def devices(self) -> Ints:
        """int64 ``[rows]``: how many devices each node has, as many as ``free`` tells of."""
        table = self._table
        own, claimed = (
            np.fromiter(map(len, lists), np.int64, table.rows) for lists in (table.device_free, table.claimed_free)
        )
        milli = table.allocatable[self._columns, : table.rows] * np.array(self._units, np.int64)[:, None]
        units = (-(-milli // MILLI_PER_DEVICE)).sum(0)
        return np.where(own > 0, own, np.where(claimed > 0, claimed, units))

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


def zone_state(
    zones: Sequence[Sequence[int]], request: GpuRequest, needs: PodNeeds, node: tuple[int, int]
) -> tuple[int, int, list[int]] | None:
    """(CPU, memory in bytes, what is free of each GPU) of the zone that an aligned pod gets: the first that has room
    for all of it, as kubelets choose. None: no one has, or the pod gets zones as a whole, or nobody there aligns it;
    then the node as a whole counts. ``node``: its CPU and memory free, of which pods that nothing aligns take too."""
    alone = needs.dedicated is not None and needs.dedicated.exclusive
    for cpu, memory, gpus, there, katalyst, *_ in zones:
        if not (needs.of_katalyst and not alone if katalyst else needs.of_kubelet):
            return None
        room = cpu < 0 or cpu >= request.cpu, memory < 0 or memory >= request.memory * MIB
        if all(room) and gpus >= request.devices * request.milli:
            return _least(cpu, node[0]), _least(memory, node[1]), offered((1,), (there,), (gpus,))
    return None


def _least(zone: int, node: int) -> int:
    return node if zone < 0 else min(zone, node)


def asked_of(pod_class: PodClass, shares: GpuShares) -> tuple[int, int]:
    """(devices, thousandths of each) that a pod asks for."""
    milli = gpu_milli_of(pod_class)
    if milli:
        return whole_or_share(milli)
    return pod_class.claimed if pod_class.claimed[0] else shares.asked(pod_class.requests)


def models_named(pod_class: PodClass) -> tuple[str, ...]:
    """The models that the pod wants one of; (): any.

    Models count where a node selector or a single required affinity term names them by ``In``; anything else accepts
    any model here and is left to the filters.
    """
    named = [value for key, value in pod_class.node_selector if key in MODEL_LABELS]
    if pod_class.affinity_terms is not None and len(pod_class.affinity_terms) == 1:
        for expression in pod_class.affinity_terms[0].expressions:
            if expression.key in MODEL_LABELS and expression.operator == "In":
                named += expression.values
    return tuple(dict.fromkeys(named))


def mask_of(names: Sequence[str], models: Mapping[str, int]) -> int:
    """Of models by name, those that have a code; without names any."""
    return sum(1 << models[name] for name in names if name in models) if names else ANY_MODEL


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
