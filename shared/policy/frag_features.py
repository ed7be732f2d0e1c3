"""What the learned placement policy sees of a node: its state against the demand it may still be asked to serve.

All features are of one node, so any number of nodes in any order is judged alike. The demand is the typical pods of
``fragmentation`` (the same knowledge FGD has) and the share of GPUs each model has in the cluster. It refuses nothing:
features of a full node are defined and its waste is zero by construction.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shared.model.gpu import ANY_MODEL, GpuStates
from shared.model.resources import MILLI_PER_DEVICE
from shared.policy.fragmentation import Demand, Meeting

Floats = NDArray[np.float64]

FEATURES = (
    "idle",
    "whole_devices",
    "largest_part",
    "part_devices",
    "cpu",
    "memory",
    "idle_with_cpu",
    "fragment",
    "runs_by_gpu",
    "runs_by_pod",
    "fill_by_one_kind",
    "runs_cpu_only",
    "cpu_per_idle",
    "cpu_short",
    "model_accepted",
    "devices",
    "demand_shared",
    "demand_several",
    "demand_cpu_by_gpu_pods",
    "demand_four_and_more",
    "fragment_whole",
    "fragment_shared",
    "fill_share",
    "model_wanted",
)
"""Names of the columns, in order; each is scaled to about 0..1."""

NODE_GPUS = 8.0
"""GPU counts are divided by this: openb's largest node."""
MEMORY_UNIT = 4 * 131_072.0
"""Memory in MiB is divided by this (512 GiB)."""
RATIO_LIMIT, MODEL_LIMIT = 4.0, 4.0
"""Where ratios are cut, so that no feature leaves the range it was trained in by much."""


class FragFeatures:
    """Features of node states under one demand.

    ``model_share``: float64 ``[models]``, share of all GPUs that nodes of each model code have.
    """

    def __init__(self, demand: Demand, model_share: Floats) -> None:
        self.meeting = Meeting(demand)
        gpu = demand.devices * demand.milli / MILLI_PER_DEVICE
        asked = demand.frequency * gpu
        whole = demand.milli == MILLI_PER_DEVICE
        total = max(float(asked.sum()), 1e-9)
        self._asks = demand.devices > 0
        self._by_gpu = asked / total
        self._gpu = gpu
        cpu = demand.frequency * demand.cpu
        self._cpu_of_gpu = max(float(cpu[self._asks].sum()) / total, 1.0)
        self._demand_cpu_by_gpu_pods = self._cpu_of_gpu / max(float(cpu.sum()) / total, 1.0)
        self._by_pod = np.where(self._asks, demand.frequency, 0.0)
        self._by_pod /= max(float(self._by_pod.sum()), 1e-9)
        self._cpu_only = np.where(self._asks, 0.0, demand.frequency)
        self._cpu_only /= max(float(self._cpu_only.sum()), 1e-9)
        self._whole_by_gpu = np.where(whole, self._by_gpu, 0.0)
        self._shared_by_gpu = self._by_gpu - self._whole_by_gpu
        self._demand_shared = float(self._shared_by_gpu.sum())
        self._demand_several = float(self._by_gpu[demand.devices > 1].sum())
        self._demand_four = float(self._by_gpu[demand.devices >= 4].sum())
        self._wanted = _model_wanted(demand, self._by_gpu, model_share)

    def constants(self) -> tuple[Floats, Floats]:
        """What training's loops need: demand by GPU float64 ``[typical]``, and the demand's constants.

        The constants: CPU per GPU, the demand's four figures, one over the frequency of GPU pods and of CPU-only pods,
        then ``model_wanted`` per model.
        """
        frequency = self.meeting.demand.frequency
        gpu_pods = max(float(frequency[self._asks].sum()), 1e-9)
        cpu_pods = float(frequency[~self._asks].sum())
        figures = (
            self._cpu_of_gpu, self._demand_shared, self._demand_several, self._demand_cpu_by_gpu_pods,
            self._demand_four, 1 / gpu_pods, 1 / cpu_pods if cpu_pods > 0 else 0.0,
        )  # fmt: skip
        return self._by_gpu, np.array([*figures, *self._wanted.tolist()])

    def of(self, states: GpuStates) -> Floats:
        """float64 ``[states, features]``."""
        demand, free = self.meeting.demand, states.free
        found = self.meeting.usable(states)
        idle_milli = free.sum(1)
        idle = idle_milli / MILLI_PER_DEVICE
        part = np.where(free < MILLI_PER_DEVICE, free, 0)
        cpu = states.cpu / self._cpu_of_gpu
        copies = np.minimum(found.slots, states.cpu[:, None] // np.maximum(demand.cpu, 1))
        runs = found.runs
        filled = np.where(runs, copies * self._gpu, 0.0)
        lost = np.where(runs, found.short, idle_milli[:, None]) / MILLI_PER_DEVICE
        accepted = ((demand.models[None, :] >> states.model[:, None]) & 1).astype(np.float64)
        some = np.maximum(idle, 1e-9)
        x = np.empty((len(states), len(FEATURES)))
        x[:, 0] = idle / NODE_GPUS
        x[:, 1] = (free == MILLI_PER_DEVICE).sum(1) / NODE_GPUS
        x[:, 2] = part.max(1) / MILLI_PER_DEVICE
        x[:, 3] = (part > 0).sum(1) / 4
        x[:, 4] = cpu / NODE_GPUS
        x[:, 5] = states.memory / MEMORY_UNIT
        x[:, 6] = np.minimum(cpu, idle) / NODE_GPUS
        x[:, 7] = self.meeting.fragment(states, found) / MILLI_PER_DEVICE / NODE_GPUS
        x[:, 8] = runs @ self._by_gpu
        x[:, 9] = runs @ self._by_pod
        x[:, 10] = filled @ self._by_gpu / NODE_GPUS
        x[:, 11] = (states.cpu[:, None] >= demand.cpu) @ self._cpu_only
        x[:, 12] = np.minimum(cpu / some, RATIO_LIMIT) / 2
        x[:, 13] = np.maximum(idle - cpu, 0.0) / 4
        x[:, 14] = accepted @ self._by_gpu
        x[:, 15] = states.devices / NODE_GPUS
        x[:, 16] = self._demand_shared
        x[:, 17] = self._demand_several
        x[:, 18] = self._demand_cpu_by_gpu_pods
        x[:, 19] = self._demand_four
        x[:, 20] = lost @ self._whole_by_gpu / NODE_GPUS
        x[:, 21] = lost @ self._shared_by_gpu / NODE_GPUS
        x[:, 22] = np.where(filled >= 0.999 * idle[:, None], 1.0, filled / some[:, None]) @ self._by_gpu
        x[:, 23] = self._wanted[np.minimum(states.model, len(self._wanted) - 1)]
        return x


def model_share(states: GpuStates) -> Floats:
    """float64 ``[models]``: share of all GPUs that nodes of each model code have."""
    devices = np.bincount(states.model, weights=states.devices)
    result: Floats = devices / max(float(devices.sum()), 1.0)
    return result


def _model_wanted(demand: Demand, by_gpu: Floats, model_share: Floats) -> Floats:
    """float64 ``[models]``: demand that names a model, over the share of GPUs it may use, summed per model, halved."""
    wanted = np.zeros(len(model_share))
    codes = np.arange(len(model_share))
    for mask, weight in zip(demand.models.tolist(), by_gpu.tolist(), strict=True):
        if mask == ANY_MODEL or weight <= 0:
            continue
        named = ((mask >> codes) & 1).astype(np.bool_)
        wanted[named] += min(MODEL_LIMIT, weight / max(float(model_share[named].sum()), 1e-6))
    return np.minimum(wanted, MODEL_LIMIT) / 2
