"""openb's node and pod lists, read as the arrays of the placement experiment (``shared/policy/rehearsal``).

It refuses, by file, line and column: what ``cells`` cannot read, a pod that asks for more of one resource than
the largest machine has, of the node list or of openb itself, whichever is larger, and a list that asks for so little
GPU that the demand is as good as never reached. A pod that merely fits no node of a shorter list, or whose GPU model
the list lacks, is part of the experiment: it is submitted and stays unplaced.
"""

from __future__ import annotations

from collections.abc import Sequence

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
from shared.model.gpu import ANY_MODEL, MAX_MODELS, GpuRequest
from shared.policy.rehearsal.submission import DEMAND, GpuNodes, GpuPods, empty_states, pods_of

LARGEST_CPU, LARGEST_MEMORY, LARGEST_DEVICES = 128_000, 1_048_576, 8
"""openb's largest machine by each resource (``openb_node_list_gpu_node.csv``)."""

MOST_SUBMITTED = 2_000_000
"""Pods of one episode; openb's lists need some 11,000. A list that needs more holds almost nothing but CPU pods."""


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
