"""openb's node and pod lists as arrays, and the order in which the experiment submits the pods.

The experiment (FGD, Weng et al., ATC 2023, section 6.1): pods are shuffled by the seed, the list is filled up by pods
drawn with replacement until they ask for 130 % of all GPUs, or cut there when it asks for more; none departs.

It refuses, by file, line and column: what ``trace_cells`` cannot read, a pod that asks for more of one resource than
the largest machine has, of the node list or of openb itself, whichever is larger, and a list that asks for so little
GPU that the demand is as good as never reached. A pod that merely fits no node of a shorter list, or whose GPU model
the list lacks, is part of the experiment: it is submitted and stays unplaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lab.traces.cells import (
    MAX_DEVICES,
    NODE_COLUMNS,
    POD_COLUMNS,
    POD_EXTRA_COLUMNS,
    gpu_models,
    gpu_request,
    rows,
    unique,
)
from shared.errors import ConfigError
from shared.model.gpu import ANY_MODEL, MAX_MODELS, GpuRequest, GpuStates, Ints
from shared.model.resources import MILLI_PER_DEVICE

DEMAND = 1.3
"""GPU demand of the submitted pods over the GPUs there are."""

LARGEST_CPU, LARGEST_MEMORY, LARGEST_DEVICES = 128_000, 1_048_576, 8
"""openb's largest machine by each resource (``openb_node_list_gpu_node.csv``)."""

MOST_SUBMITTED = 2_000_000
"""Pods of one episode; openb's lists need some 11,000. A list that needs more holds almost nothing but CPU pods."""

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


def parse_gpu_nodes(text: str, file: str) -> GpuNodes:
    """The nodes of a node list; ``file`` is named in errors. ``ConfigError``: malformed, with line and column."""
    names: list[str] = []
    amounts: list[tuple[int, int, int, int]] = []
    models: dict[str, int] = {}
    seen: dict[str, int] = {}
    for row in rows(text, file, NODE_COLUMNS):
        names.append(unique(row["sn"].mark(), row["sn"], seen))
        devices = row["gpu"].number(MAX_DEVICES)
        model = row["model"].label() if row["model"].text.strip() else ""
        if devices and not model:
            raise row["model"].bad("a node with GPUs must name their model")
        code = models.setdefault(model, len(models))
        if code >= MAX_MODELS:
            raise row["model"].bad(f"more than {MAX_MODELS} different models; merge some")
        amounts.append((row["cpu_milli"].number(), row["memory_mib"].number(), devices, code))
    if not names:
        raise ConfigError(f"{file}, line 2, column 1 (sn): no node follows the header; give at least one")
    table = np.array(amounts, np.int64)
    if not table[:, 2].any():
        raise ConfigError(f"{file}, line 2, column gpu: no node has a GPU; give a list with GPU nodes")
    return GpuNodes(tuple(names), empty_states(table), models)


def empty_states(table: Ints) -> GpuStates:
    """States of empty nodes from int64 ``[nodes, 4]``: CPU, memory, devices, model code."""
    cpu, memory, devices, model = (np.ascontiguousarray(column) for column in table.T)
    free = (np.arange(int(devices.max())) < devices[:, None]) * np.int64(MILLI_PER_DEVICE)
    return GpuStates(cpu.copy(), memory.copy(), free, devices, model, cpu, memory)


def parse_gpu_pods(text: str, file: str, nodes: GpuNodes) -> GpuPods:
    """The pods of a pod list. ``ConfigError``: malformed or impossible, with line and column."""
    largest = (
        ("cpu_milli", "milli-cores", max(LARGEST_CPU, int(nodes.states.cpu_total.max()))),
        ("memory_mib", "MiB", max(LARGEST_MEMORY, int(nodes.states.memory_total.max()))),
        ("num_gpu", "GPUs", max(LARGEST_DEVICES, int(nodes.states.devices.max()))),
    )
    requests: list[GpuRequest] = []
    codes = dict(nodes.models)
    for row in rows(text, file, POD_COLUMNS, POD_EXTRA_COLUMNS):
        if not row["name"].text.strip():
            raise row["name"].bad("a pod needs a name")
        devices, milli = gpu_request(row)
        for column, unit, most in largest:
            if row[column].number() > most:
                raise row[column].bad(f"impossible: the largest machine has {most} {unit}; ask for at most that")
        models = gpu_models(row["gpu_spec"]) if "gpu_spec" in row else []
        mask = _mask(models, codes) if models else ANY_MODEL
        requests.append(GpuRequest(row["cpu_milli"].number(), row["memory_mib"].number(), devices, milli, mask))
    if not requests:
        raise ConfigError(f"{file}, line 2, column 1 (name): no pod follows the header; give at least one")
    pods = pods_of(requests)
    if not pods.gpu.any():
        raise ConfigError(f"{file}, line 2, column num_gpu: no pod asks for a GPU; demand could never be reached")
    needed = DEMAND * nodes.capacity * len(requests) / int(pods.gpu.sum())
    if needed > MOST_SUBMITTED:
        raise ConfigError(
            f"{file}, line 2, column num_gpu: {needed:.0f} such pods would have to be submitted until they ask for "
            f"130 % of the GPUs, {MOST_SUBMITTED} at most are; give more pods with GPUs, or fewer nodes"
        )
    return pods


def _mask(models: Sequence[str], codes: dict[str, int]) -> int:
    """The models' bits. One that no node has gets a code of its own while there are any: pods that name other models
    are other pods, also to a measure that counts kinds of pods."""
    for model in models:
        if model not in codes and len(codes) < MAX_MODELS:
            codes[model] = len(codes)
    return sum(1 << codes[model] for model in models if model in codes)


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
