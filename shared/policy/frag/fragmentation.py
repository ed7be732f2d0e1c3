"""GPU fragmentation by expected demand: the measure of FGD, and the demand it is taken over.

Source: Weng et al., "Beware of Fragmentation", ATC 2023, section 4. Typical pods are the most frequent requests until
95 % of all pods are counted (CPU, devices, thousandths, models; memory is left out). Of a node's idle GPU, what a
typical pod m could not use is its fragment: all of it when m cannot run there (CPU short, too few devices with enough
free, wrong model, or m asks for no GPU), else the devices whose free amount is below m's. The node's fragment is the
mean over typical pods by frequency.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from shared.model.gpu import MAX_MODELS, GpuRequest, GpuStates, Ints
from shared.model.resources import MILLI_PER_DEVICE

TYPICAL_SHARE = 0.95
"""Of all pods, the share that the typical ones must cover (ATC 2023, section 4.1)."""

NEVER = np.int64(1 << 40)
"""More than any device has."""

Floats = NDArray[np.float64]


class TypicalDemand(Struct, frozen=True):
    """Typical pods, most frequent first: int64 ``[typical]`` each; ``frequency`` float64, sums to 1."""

    cpu: Ints
    devices: Ints
    milli: Ints
    models: Ints
    frequency: Floats

    def __len__(self) -> int:
        return len(self.cpu)


def typical_demand(classes: Sequence[GpuRequest], counts: Ints) -> TypicalDemand:
    """The typical pods among ``counts`` pods of each class; equal counts in order of their amounts.

    ``ValueError`` when no pod is counted.
    """
    total: dict[tuple[int, int, int, int], int] = {}
    for request, count in zip(classes, counts.tolist(), strict=True):
        key = (request.cpu, request.devices, request.milli, request.models)
        if count > 0:
            total[key] = total.get(key, 0) + count
    if not total:
        raise ValueError("no pod is counted: demand is not defined")
    ranked = sorted(total.items(), key=lambda item: (-item[1], item[0]))
    number = np.array([count for _, count in ranked], np.float64)
    covered = np.cumsum(number)
    kept = int(np.searchsorted(covered, TYPICAL_SHARE * covered[-1])) + 1
    return demand_of([(GpuRequest(cpu, 0, *asked), count) for (cpu, *asked), count in ranked[:kept]])


def demand_of(typical: Sequence[tuple[GpuRequest, int]]) -> TypicalDemand:
    """Of typical pods, and how many there were of each; of equal ones they are added up, where the first stands."""
    pods: dict[tuple[int, int, int, int], int] = {}
    for request, count in typical:
        key = (request.cpu, request.devices, request.milli, request.models)
        pods[key] = pods.get(key, 0) + count
    table = np.array(list(pods), np.int64).reshape(-1, 4)
    cpu, devices, milli, models = (np.ascontiguousarray(column) for column in table.T)
    number = np.array(list(pods.values()), np.float64)
    return TypicalDemand(cpu, devices, milli, models, number / number.sum())


class Usable(Struct, frozen=True):
    """How typical pods meet node states, all ``[states, typical]``.

    ``slots`` int64: how many of the pod the devices alone could take; ``runs`` bool: one can run now; ``short`` int64:
    idle thousandths on devices whose free amount is below what the pod asks of one.
    """

    slots: Ints
    runs: NDArray[np.bool_]
    short: Ints


class Meeting:
    """Meets node states with one demand; what depends on the demand alone is prepared once."""

    def __init__(self, demand: TypicalDemand) -> None:
        self.demand = demand
        self.asks_gpu = demand.devices > 0
        self._millis, self._milli_of = np.unique(demand.milli, return_inverse=True)
        shared = (demand.devices == 1) & (demand.milli < MILLI_PER_DEVICE)
        self._devices = np.where(shared, 1, np.maximum(demand.devices, 1))
        self._least = np.where(self._millis > 0, self._millis, NEVER)
        self._each = np.maximum(self._millis, 1)
        self._parts = self._millis < MILLI_PER_DEVICE
        self._accepted = ((demand.models >> np.arange(MAX_MODELS + 1)[:, None]) & 1).astype(np.bool_) & self.asks_gpu

    def usable(self, states: GpuStates) -> Usable:
        """How each typical pod meets each of ``states``."""
        free = states.free[:, :, None]
        enough = free >= self._least
        many = np.where(self._parts, (free // self._each).sum(1), enough.sum(1))
        short = np.where(enough, 0, free).sum(1)
        slots = many[:, self._milli_of] // self._devices
        runs = (slots > 0) & (states.cpu[:, None] >= self.demand.cpu) & self._accepted[states.model]
        return Usable(slots, runs, short[:, self._milli_of])

    def fragment(self, states: GpuStates, usable: Usable | None = None) -> Floats:
        """float64 ``[states]``: the expected fragment in thousandths of a device (FGD's F)."""
        found = self.usable(states) if usable is None else usable
        total = states.free.sum(1)
        useful = np.where(found.runs, total[:, None] - found.short, 0)
        result: Floats = total - useful @ self.demand.frequency
        return result
