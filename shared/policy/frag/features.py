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
from shared.policy.frag.fragmentation import Meeting, TypicalDemand

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
"""Names of the columns, in order; each is scaled to about 0..1 by ``SCALE``."""

SCALE: Floats = 1.0 / np.array(
    [8, 8, 1000, 4, 8, 524_288, 8, 8000, 1, 1, 8, 1, 2, 4, 1, 8, 1, 1, 1, 1, 8000, 8000, 1, 1], np.float64
)
"""What each column is divided by: 8 GPUs and 512 GiB are a large node of openb, 8000 thousandths its GPUs."""

RATIO_LIMIT, MODEL_LIMIT = 4.0, 4.0
"""Where ratios are cut, so that no feature leaves the range it was trained in by much."""

NO_LIMIT = np.int64(1 << 40)


class FragFeatures:
    """Features of node states under one demand.

    ``model_share``: float64 ``[models]``, share of all GPUs that nodes of each model code have.
    """

    def __init__(self, demand: TypicalDemand, model_share: Floats) -> None:
        self.meeting = Meeting(demand)
        frequency, gpu = demand.frequency, demand.devices * demand.milli / MILLI_PER_DEVICE
        asks = demand.devices > 0
        total = max(float((frequency * gpu).sum()), 1e-9)
        by_gpu = frequency * gpu / total
        shared_by_gpu = np.where(demand.milli < MILLI_PER_DEVICE, by_gpu, 0.0)
        cpu = frequency * demand.cpu
        self._gpu_pods = max(float(frequency[asks].sum()), 1e-9)
        self._cpu_pods = max(float(frequency[~asks].sum()), 1e-9)
        self._gpu, self._by_gpu = gpu, by_gpu
        self._cpu_of_gpu = max(float(cpu[asks].sum()) / total, 1.0)
        self._cpu_each = np.maximum(demand.cpu, 1)
        self._cpu_no_limit = np.where(demand.cpu > 0, 0, NO_LIMIT)
        self._runs_weights = np.stack((by_gpu, np.where(asks, frequency, 0.0) / self._gpu_pods), 1)
        self._lost_weights = np.stack((by_gpu - shared_by_gpu, shared_by_gpu), 1)
        self._cpu_only = np.where(asks, 0.0, frequency) / self._cpu_pods
        self._demand_figures = np.array(
            [
                shared_by_gpu.sum(),
                by_gpu[demand.devices > 1].sum(),
                self._cpu_of_gpu / max(float(cpu.sum()) / total, 1.0),
                by_gpu[demand.devices >= 4].sum(),
            ]
        )
        codes = np.arange(len(model_share))
        self._accepted = ((demand.models[None, :] >> codes[:, None]) & 1).astype(np.float64) @ by_gpu
        self._wanted = _model_wanted(demand, by_gpu, model_share)

    def constants(self) -> tuple[Floats, Floats]:
        """What training's loops need: demand by GPU float64 ``[typical]``, and the demand's constants.

        The constants: CPU per GPU, the demand's four figures, one over the frequency of GPU pods and of CPU-only pods,
        then ``model_wanted`` per model.
        """
        figures = (self._cpu_of_gpu, *self._demand_figures.tolist(), 1 / self._gpu_pods, 1 / self._cpu_pods)
        return self._by_gpu, np.array([*figures, *self._wanted.tolist()])

    def of(self, states: GpuStates) -> Floats:
        """float64 ``[states, features]``."""
        demand, free = self.meeting.demand, states.free
        found = self.meeting.usable(states)
        idle_milli = free.sum(1)
        idle = idle_milli / MILLI_PER_DEVICE
        whole = free == MILLI_PER_DEVICE
        parts = np.where(whole, 0, free)
        cpu = states.cpu / self._cpu_of_gpu
        copies = np.minimum(found.slots, states.cpu[:, None] // self._cpu_each + self._cpu_no_limit)
        filled = found.runs * copies * self._gpu
        lost = np.where(found.runs, found.short, idle_milli[:, None])
        some = np.maximum(idle, 1e-9)
        x = np.empty((len(FEATURES), len(states))).T  # a column is written at once, so let it lie together
        x[:, 0] = idle
        x[:, 1] = whole.sum(1)
        x[:, 2] = parts.max(1)
        x[:, 3] = (parts > 0).sum(1)
        x[:, 4] = cpu
        x[:, 5] = states.memory
        x[:, 6] = np.minimum(cpu, idle)
        x[:, 7] = lost @ demand.frequency
        x[:, 8:10] = found.runs.astype(np.float64) @ self._runs_weights
        x[:, 10] = filled @ self._by_gpu
        x[:, 11] = (states.cpu[:, None] >= demand.cpu) @ self._cpu_only
        x[:, 12] = np.minimum(cpu / some, RATIO_LIMIT)
        x[:, 13] = np.maximum(idle - cpu, 0.0)
        x[:, 14] = self._accepted[states.model]
        x[:, 15] = states.devices
        x[:, 16:20] = self._demand_figures
        x[:, 20:22] = lost @ self._lost_weights
        x[:, 22] = np.where(filled >= 0.999 * idle[:, None], 1.0, filled / some[:, None]) @ self._by_gpu
        x[:, 23] = self._wanted[states.model]
        x *= SCALE
        return x


def model_share(states: GpuStates) -> Floats:
    """float64 ``[models]``: share of all GPUs that nodes of each model code have."""
    devices = np.bincount(states.model, weights=states.devices)
    result: Floats = devices / max(float(devices.sum()), 1.0)
    return result


def _model_wanted(demand: TypicalDemand, by_gpu: Floats, model_share: Floats) -> Floats:
    """float64 ``[models]``: demand that names a model, over the share of GPUs it may use, summed per model, halved."""
    wanted = np.zeros(len(model_share))
    codes = np.arange(len(model_share))
    for mask, weight in zip(demand.models.tolist(), by_gpu.tolist(), strict=True):
        if mask == ANY_MODEL or weight <= 0:
            continue
        named = ((mask >> codes) & 1).astype(np.bool_)
        wanted[named] += min(MODEL_LIMIT, weight / max(float(model_share[named].sum()), 1e-6))
    return np.minimum(wanted, MODEL_LIMIT) / 2
