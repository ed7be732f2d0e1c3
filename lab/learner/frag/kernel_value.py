"""The learned value of one node state, as loops: features, network, and a table of values already known.

The same formulas as ``shared.policy.frag.features`` and ``frag_value``, which agents run; a test holds them equal. Here
they are loops over one state because an episode of training asks for one state at a time and thousands of times.
Arrays: ``typical`` int64 ``[typical, 4]``: CPU, devices, milli, models; ``by_gpu``, ``by_pod``, ``frequency`` float64
``[typical]``; ``demand`` float64: the two prices of ``frag_value``, the demand's constants, ``model_wanted`` per model.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

DEVICE = 1000
FRAGMENT_PRICE, MODEL_PRICE, CPU_OF_GPU, SHARED, SEVERAL, CPU_BY_GPU_PODS = range(6)
FOUR, PER_GPU_POD, PER_CPU_POD, WANTED = range(6, 10)
TABLE = 1 << 18
"""Slots of the table of known values; a full neighbourhood is overwritten, so it bounds memory and never errs."""
PROBES = 8
NUMBA = importlib.util.find_spec("numba") is not None
F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """``function``, compiled at its first call. Without numba (extra ``learn``) it runs some hundred times slower."""
    if not NUMBA:
        return function
    njit: Callable[..., Callable[[F], F]] = importlib.import_module("numba").njit
    return njit(cache=True, fastmath=True)(function)


@compiled
def features(
    cpu: int, memory: int, free: Ints, devices: int, model: int, typical: Ints, frequency: Floats, by_gpu: Floats,
    demand: Floats, out: Floats,
) -> None:  # fmt: skip
    """Fill ``out`` float64 ``[24]``; see ``frag_features.FEATURES``."""
    idle = 0
    whole = 0
    largest = 0
    parts = 0
    for i in range(devices):
        idle += free[i]
        if free[i] == DEVICE:
            whole += 1
        elif free[i] > 0:
            parts += 1
            largest = max(largest, free[i])
    gpus = idle / 1000.0
    fragment = 0.0
    lost_whole = 0.0
    lost_shared = 0.0
    runs_gpu = 0.0
    runs_pod = 0.0
    fill = 0.0
    cpu_only = 0.0
    accepted = 0.0
    fill_share = 0.0
    for m in range(typical.shape[0]):
        number = typical[m, 1]
        milli = typical[m, 2]
        p = frequency[m]
        w = by_gpu[m]
        if number == 0:
            fragment += p * idle
            if cpu >= typical[m, 0]:
                cpu_only += p
            continue
        fits = ((typical[m, 3] >> model) & 1) != 0
        if fits:
            accepted += w
        slots = 0
        short = 0
        if milli == DEVICE:
            slots = whole // number
            short = idle - DEVICE * whole
        else:
            for i in range(devices):
                if free[i] < milli:
                    short += free[i]
                else:
                    slots += free[i] // milli
        copies = slots
        if typical[m, 0] > 0:
            copies = min(slots, cpu // typical[m, 0])
        lost = gpus
        if fits and copies > 0:
            fragment += p * short
            lost = short / 1000.0
            runs_gpu += w
            runs_pod += p
            filled = copies * number * milli / 1000.0
            fill += w * filled
            fill_share += w * (1.0 if filled >= 0.999 * gpus else filled / gpus)
        else:
            fragment += p * idle
        if milli == DEVICE:
            lost_whole += w * lost
        else:
            lost_shared += w * lost
    cpu_gpus = cpu / demand[CPU_OF_GPU]
    out[0] = gpus / 8
    out[1] = whole / 8.0
    out[2] = largest / 1000.0
    out[3] = parts / 4.0
    out[4] = cpu_gpus / 8
    out[5] = memory / 524288.0
    out[6] = min(cpu_gpus, gpus) / 8
    out[7] = fragment / 8000.0
    out[8] = runs_gpu
    out[9] = runs_pod * demand[PER_GPU_POD]
    out[10] = fill / 8
    out[11] = cpu_only * demand[PER_CPU_POD]
    out[12] = min(cpu_gpus / gpus, 4.0) / 2 if gpus > 0 else 2.0
    out[13] = max(0.0, gpus - cpu_gpus) / 4
    out[14] = accepted
    out[15] = devices / 8.0
    out[16] = demand[SHARED]
    out[17] = demand[SEVERAL]
    out[18] = demand[CPU_BY_GPU_PODS]
    out[19] = demand[FOUR]
    out[20] = lost_whole / 8
    out[21] = lost_shared / 8
    out[22] = fill_share
    out[23] = demand[WANTED + model]


@compiled
def network(x: Floats, weights: Floats, first: int, second: int, hidden: Floats) -> float:
    """sigmoid of the ReLU MLP [inputs, first, second, 1]; ``weights``: per layer w [in, out] row by row, then b."""
    inputs = x.shape[0]
    end = inputs * first
    for j in range(first):
        hidden[j] = weights[end + j]
    for i in range(inputs):
        value = x[i]
        for j in range(first):
            hidden[j] += value * weights[i * first + j]
    start = end + first
    end = start + first * second
    for j in range(second):
        hidden[first + j] = weights[end + j]
    for i in range(first):
        value = hidden[i]
        if value > 0.0:
            for j in range(second):
                hidden[first + j] += value * weights[start + i * second + j]
    start = end + second
    logit = weights[start + second]
    for i in range(second):
        if hidden[first + i] > 0.0:
            logit += hidden[first + i] * weights[start + i]
    return 1.0 / (1.0 + math.exp(-logit))


@compiled
def state_key(cpu: int, memory: int, free: Ints, devices: int, model: int, ordered: Ints) -> Any:
    """A 64-bit hash of the state, the same for any order of devices (FNV-1a, mixed at the end)."""
    for i in range(devices):
        ordered[i] = free[i]
    for i in range(1, devices):
        value = ordered[i]
        j = i - 1
        while j >= 0 and ordered[j] > value:
            ordered[j + 1] = ordered[j]
            j -= 1
        ordered[j + 1] = value
    prime = np.uint64(1099511628211)
    shift = np.uint64(29)
    key = np.uint64(1469598103934665603)
    key = (key ^ np.uint64(cpu)) * prime
    key = key ^ (key >> shift)
    key = (key ^ np.uint64(memory)) * prime
    key = key ^ (key >> shift)
    key = (key ^ np.uint64(model + 1 + 64 * devices)) * prime
    key = key ^ (key >> shift)
    for i in range(devices):
        key = (key ^ np.uint64(ordered[i] + 13)) * prime
        key = key ^ (key >> shift)
    key = key * np.uint64(11400714819323198485)
    return key ^ (key >> np.uint64(32))


@compiled
def idle_of(free: Ints, devices: int) -> int:
    """Idle thousandths of a node's devices."""
    idle = 0
    for i in range(devices):
        idle += free[i]
    return idle


@compiled
def slot_of(key: Any, keys: Any) -> Any:
    """Where ``key`` stands among ``keys``, or where it may be put."""
    mask = np.uint64(keys.shape[0] - 1)
    slot = key & mask
    for _ in range(PROBES):
        if keys[slot] == key or keys[slot] == np.uint64(0):
            break
        slot = (slot + np.uint64(1)) & mask
    return slot


@compiled
def waste(
    cpu: int, memory: int, free: Ints, devices: int, model: int, typical: Ints, frequency: Floats, by_gpu: Floats,
    demand: Floats, weights: Floats, first: int, second: int, keys: Any, values: Floats, x: Floats, hidden: Floats,
    ordered: Ints,
) -> float:  # fmt: skip
    """Cost of the state in GPUs (``frag_value``), from the table or anew."""
    idle = idle_of(free, devices)
    if idle == 0:
        return 0.0
    key = state_key(cpu, memory, free, devices, model, ordered)
    slot = slot_of(key, keys)
    if keys[slot] == key:
        return float(values[slot])
    features(cpu, memory, free, devices, model, typical, frequency, by_gpu, demand, x)
    value: float = (
        idle / 1000.0 * (network(x, weights, first, second, hidden) - demand[MODEL_PRICE] * demand[WANTED + model])
    )
    value += demand[FRAGMENT_PRICE] * 8.0 * x[7]
    keys[slot] = key
    values[slot] = value
    return value
