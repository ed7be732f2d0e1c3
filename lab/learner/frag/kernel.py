"""One episode of the placement experiment as loops: what training plays thousands of times.

The same experiment as ``shared.policy.rehearsal.episode`` with the learned value or FGD, bar the order
of equals among devices. An episode can also explore (a pod goes to any feasible node at random) and take snapshots of
all nodes, from which the value is learned: how much of a node's idle GPU is still idle at the end.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.learner.frag.kernel_value import TABLE, compiled, idle_of, slot_of, state_key, waste

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

FGD, LEARNED = 0, 1
DEVICE = 1000
WIDTH = 8
"""Devices of a node that the kernel has room for: openb's largest."""


@compiled
def fragment(
    cpu: int, memory: int, free: Ints, devices: int, model: int, typical: Ints, frequency: Floats, keys: Any,
    values: Floats, ordered: Ints,
) -> float:  # fmt: skip
    """FGD's expected fragment of the state in GPUs, from the table or anew."""
    idle = idle_of(free, devices)
    if idle == 0:
        return 0.0
    key = state_key(cpu, memory, free, devices, model, ordered)
    slot = slot_of(key, keys)
    if keys[slot] == key:
        return float(values[slot])
    total = 0.0
    for m in range(typical.shape[0]):
        number = typical[m, 1]
        enough = 0
        short = 0
        for i in range(devices):
            if free[i] >= typical[m, 2]:
                enough += 1
            else:
                short += free[i]
        runs = number > 0 and cpu >= typical[m, 0] and ((typical[m, 3] >> model) & 1) != 0 and enough >= number
        total += frequency[m] * (short if runs else idle)
    keys[slot] = key
    values[slot] = total / 1000.0
    return total / 1000.0


@compiled
def episode(
    policy: int, node_cpu: Ints, node_memory: Ints, node_devices: Ints, node_model: Ints, classes: Ints, pods: Ints,
    typical: Ints, frequency: Floats, by_gpu: Floats, demand: Floats, weights: Floats, first: int, second: int,
    step: float, explore: float, seed: int, snapshots: int, seen: Ints, seen_free: Ints,
) -> tuple[float, float, Ints, int]:  # fmt: skip
    """Place ``pods`` (classes in order) on the nodes, which stand in the order that breaks ties.

    ``classes`` int64 ``[classes, 5]``: CPU, memory, devices, milli, models. ``step``: what scores are rounded to, in
    GPUs. ``seen`` int64 ``[rows, 3]`` (CPU, memory, node) and ``seen_free`` int64 ``[rows, 8]`` get the nodes with idle
    GPU at ``snapshots`` moments. Returns the percent allocated at the end and when 100 % had been asked for, idle
    thousandths per node at the end, rows written.
    """
    np.random.seed(seed)
    nodes = node_cpu.shape[0]
    kinds = classes.shape[0]
    cpu = node_cpu.copy()
    memory = node_memory.copy()
    free = np.zeros((nodes, WIDTH), np.int64)
    capacity = 0
    for n in range(nodes):
        for i in range(node_devices[n]):
            free[n, i] = DEVICE
        capacity += DEVICE * node_devices[n]
    stamp = np.zeros(nodes, np.int64)
    scored_at = np.full((kinds, nodes), -1, np.int64)
    score = np.zeros((kinds, nodes))
    device_of = np.zeros((kinds, nodes), np.int64)
    own = np.zeros(nodes)
    own_at = np.full(nodes, -1, np.int64)
    keys = np.zeros(TABLE, np.uint64)
    values = np.zeros(TABLE)
    ordered = np.zeros(WIDTH, np.int64)
    after = np.zeros(WIDTH, np.int64)
    x = np.zeros(24)
    hidden = np.zeros(first + second)
    allocated = 0
    arrived = 0
    early = 0
    rows = 0
    next_snapshot = 0
    for t in range(pods.shape[0]):
        if snapshots > 0 and t * snapshots >= next_snapshot * pods.shape[0]:
            next_snapshot += 1
            for n in range(nodes):
                if idle_of(free[n], node_devices[n]) > 0 and rows < seen.shape[0]:
                    seen[rows, 0] = cpu[n]
                    seen[rows, 1] = memory[n]
                    seen[rows, 2] = n
                    for i in range(WIDTH):
                        seen_free[rows, i] = free[n, i]
                    rows += 1
        if arrived <= capacity:
            early = allocated
        c = pods[t]
        pod_cpu = classes[c, 0]
        pod_memory = classes[c, 1]
        number = classes[c, 2]
        milli = classes[c, 3]
        arrived += number * milli
        share = number == 1 and milli < DEVICE
        wander = explore > 0.0 and np.random.random() < explore
        best = -1e300
        chosen = -1
        feasible = 0
        for n in range(nodes):
            if cpu[n] < pod_cpu or memory[n] < pod_memory:
                continue
            if (classes[c, 4] >> node_model[n]) & 1 == 0:
                continue
            if number > 0:
                enough = 0
                for i in range(node_devices[n]):
                    if free[n, i] >= milli:
                        enough += 1
                if enough < number:
                    continue
            feasible += 1
            if wander:
                if np.random.random() * feasible < 1.0:
                    chosen = n
                continue
            if scored_at[c, n] != stamp[n]:
                if own_at[n] != stamp[n]:
                    own_at[n] = stamp[n]
                    if policy == FGD:
                        own[n] = fragment(
                            cpu[n], memory[n], free[n], node_devices[n], node_model[n], typical, frequency, keys,
                            values, ordered,
                        )  # fmt: skip
                    else:
                        own[n] = waste(
                            cpu[n], memory[n], free[n], node_devices[n], node_model[n], typical, frequency, by_gpu,
                            demand, weights, first, second, keys, values, x, hidden, ordered,
                        )  # fmt: skip
                top = -1e300
                where = -1
                ways = node_devices[n] if share else 1
                for d in range(ways):
                    if share:
                        if free[n, d] < milli:
                            continue
                        seen_before = False
                        for j in range(d):
                            if free[n, j] == free[n, d]:
                                seen_before = True
                        if seen_before:
                            continue
                    left = number
                    for j in range(WIDTH):
                        after[j] = free[n, j]
                        if share:
                            if j == d:
                                after[j] -= milli
                        elif left > 0 and after[j] == DEVICE:
                            after[j] = 0
                            left -= 1
                    if policy == FGD:
                        growth = (
                            fragment(
                                cpu[n] - pod_cpu, memory[n] - pod_memory, after, node_devices[n], node_model[n],
                                typical, frequency, keys, values, ordered,
                            )
                            - own[n]
                        )  # fmt: skip
                        value = float(math.floor(100.0 / (1.0 + math.exp(growth))))
                    else:
                        value = own[n] - waste(
                            cpu[n] - pod_cpu, memory[n] - pod_memory, after, node_devices[n], node_model[n], typical,
                            frequency, by_gpu, demand, weights, first, second, keys, values, x, hidden, ordered,
                        )  # fmt: skip
                    if value > top:
                        top = value
                        where = d
                if policy == LEARNED and step > 0.0:
                    top = float(math.floor(top / step))
                score[c, n] = top
                device_of[c, n] = where
                scored_at[c, n] = stamp[n]
            if score[c, n] > best:
                best = score[c, n]
                chosen = n
        if chosen < 0:
            continue
        n = chosen
        cpu[n] -= pod_cpu
        memory[n] -= pod_memory
        allocated += number * milli
        stamp[n] += 1
        if share:
            d = device_of[c, n]
            if wander:
                feasible = 0
                for i in range(node_devices[n]):
                    if free[n, i] >= milli:
                        feasible += 1
                        if np.random.random() * feasible < 1.0:
                            d = i
            free[n, d] -= milli
        else:
            left = number
            for j in range(node_devices[n]):
                if left > 0 and free[n, j] == DEVICE:
                    free[n, j] = 0
                    left -= 1
    idle_end = np.zeros(nodes, np.int64)
    for n in range(nodes):
        idle_end[n] = idle_of(free[n], node_devices[n])
    return 100.0 * allocated / capacity, 100.0 * early / capacity, idle_end, rows
