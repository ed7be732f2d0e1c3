"""Nodes and pods of the placement experiment as arrays, and the order in which it submits the pods.

The experiment (FGD, Weng et al., ATC 2023, section 6.1): pods are shuffled by the seed, the list is filled up by pods
drawn with replacement until they ask for 130 % of all GPUs, or cut there when it asks for more; none departs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shared.model.gpu import GpuRequest, GpuStates, Ints
from shared.model.resources import MILLI_PER_DEVICE

DEMAND = 1.3
"""GPU demand of the submitted pods over the GPUs there are."""

PODS_STREAM, NAMES_STREAM, CHOICE_STREAM = 0, 1, 2
"""Independent streams of one seed: the order of pods, the renaming of nodes, a policy's own draws."""


def generator(seed: int, stream: int) -> np.random.Generator:
    """The random numbers of one ``stream`` of ``seed``."""
    return np.random.default_rng([seed, stream])


@dataclass(frozen=True, slots=True)
class GpuNodes:
    """``names``, the empty nodes' states in the same order, and the code of each GPU model."""

    names: tuple[str, ...]
    states: GpuStates
    models: dict[str, int]

    @property
    def capacity(self) -> int:
        """Thousandths of a device in all."""
        return int(self.states.devices.sum()) * MILLI_PER_DEVICE

    def take(self, order: Ints) -> GpuNodes:
        """These nodes in this order."""
        return GpuNodes(tuple(self.names[i] for i in order.tolist()), self.states.take(order), self.models)


@dataclass(frozen=True, slots=True)
class GpuPods:
    """``classes``: the distinct requests; ``of``: int64 ``[pods]``, the class of each pod of the list."""

    classes: tuple[GpuRequest, ...]
    of: Ints

    @property
    def gpu(self) -> Ints:
        """int64 ``[pods]``: thousandths of a device each pod asks for."""
        return np.array([request.gpu for request in self.classes], np.int64)[self.of]

    @property
    def counts(self) -> Ints:
        """int64 ``[classes]``: how many pods of the list each class has."""
        return np.bincount(self.of, minlength=len(self.classes))


def empty_states(table: Ints) -> GpuStates:
    """States of empty nodes from int64 ``[nodes, 4]``: CPU, memory, devices, model code."""
    cpu, memory, devices, model = (np.ascontiguousarray(column) for column in table.T)
    free = (np.arange(int(devices.max())) < devices[:, None]) * np.int64(MILLI_PER_DEVICE)
    return GpuStates(cpu.copy(), memory.copy(), free, devices, model, cpu, memory)


def pods_of(requests: Sequence[GpuRequest]) -> GpuPods:
    """Pods with their classes, numbered as they first appear."""
    number: dict[GpuRequest, int] = {}
    of = np.array([number.setdefault(request, len(number)) for request in requests], np.int64)
    return GpuPods(tuple(number), of)


def submission(pods: GpuPods, capacity: int, seed: int, *, demand: float = DEMAND) -> Ints:
    """int64 ``[submitted]``: rows of the pod list in the order they are submitted.

    ``capacity``: thousandths of a device the nodes have. Each pod counts what it asks for, placed or not.
    """
    rng = generator(seed, PODS_STREAM)
    gpu = pods.gpu
    target = demand * capacity
    order = rng.permutation(len(gpu)).astype(np.int64)
    reached = np.cumsum(gpu[order])
    if reached[-1] >= target:
        return order[: int(np.searchsorted(reached, target)) + 1]
    parts, total = [order], int(reached[-1])
    while total < target:
        more = rng.integers(len(gpu), size=len(gpu)).astype(np.int64)
        sums = total + np.cumsum(gpu[more])
        if sums[-1] >= target:
            more = more[: int(np.searchsorted(sums, target)) + 1]
        parts.append(more)
        total += int(gpu[more].sum())
    return np.concatenate(parts)
