"""The openb trace (Alibaba GPU cluster 2023, as used by FGD, ATC'23) as Kubernetes nodes and pods.

Two CSV files in: a node list (``sn,cpu_milli,memory_mib,gpu,model``) and a pod list, with or without ``gpu_spec``
(columns by name, as ``trace_cells`` reads them). A share of a GPU
becomes the extended resource ``conclave.io/gpu-milli``: ``gpu_milli`` of one device, or 1000 per device of several.
``gpu_spec`` becomes a required node affinity on the label ``conclave.io/gpu-model``. Times are dropped: replayed, the
trace knows no contention (data manifest). Nothing is guessed: a cell that cannot be read is a ``ConfigError``
that names file, line, column and remedy.
"""

from __future__ import annotations

from lab.traces.cells import (
    MAX_DEVICES,
    MILLI_PER_DEVICE,
    NODE_COLUMNS,
    POD_COLUMNS,
    POD_EXTRA_COLUMNS,
    gpu_models,
    gpu_request,
    rows,
    unique,
)
from lab.traces.workload import Json, node_json, pod_json
from shared.errors import ConfigError

GPU_MILLI = "conclave.io/gpu-milli"
GPU_MODEL_LABEL = "conclave.io/gpu-model"

PODS_PER_NODE = "1000"
"""High enough that the trace's own resources decide: the trace names no such limit."""


def parse_nodes(text: str, file: str) -> list[Json]:
    """Node objects of a node list; ``file`` is named in errors. ``ConfigError``: malformed, with line and column."""
    nodes: list[Json] = []
    seen: dict[str, int] = {}
    for row in rows(text, file, NODE_COLUMNS):
        name = unique(row["sn"].name(), row["sn"], seen)
        capacity = {
            "cpu": f"{row['cpu_milli'].number()}m",
            "memory": f"{row['memory_mib'].number()}Mi",
            "pods": PODS_PER_NODE,
        }
        devices = row["gpu"].number(MAX_DEVICES)
        labels: dict[str, str] = {}
        if devices:
            capacity[GPU_MILLI] = str(devices * MILLI_PER_DEVICE)
        if row["model"].text.strip():
            labels[GPU_MODEL_LABEL] = row["model"].label()
        elif devices:
            raise row["model"].bad("a node with GPUs must name their model")
        nodes.append(node_json(name, capacity, labels=labels))
    if not nodes:
        raise ConfigError(f"{file}, line 2, column 1 (sn): no node follows the header; give at least one")
    return nodes


def parse_pods(text: str, file: str, *, scheduler_name: str = "conclave", namespace: str = "default") -> list[Json]:
    """Pod objects of a pod list, in the file's order. ``ConfigError``: malformed, with line and column."""
    pods: list[Json] = []
    seen: dict[str, int] = {}
    for row in rows(text, file, POD_COLUMNS, POD_EXTRA_COLUMNS):
        name = unique(row["name"].name(), row["name"], seen)
        requests = {"cpu": f"{row['cpu_milli'].number()}m", "memory": f"{row['memory_mib'].number()}Mi"}
        devices, milli = gpu_request(row)
        gpu_milli = devices * milli
        if gpu_milli:
            requests[GPU_MILLI] = str(gpu_milli)
        pod = pod_json(name, requests, scheduler_name=scheduler_name, namespace=namespace)
        models = gpu_models(row["gpu_spec"]) if "gpu_spec" in row else []
        if models:
            pod["spec"]["affinity"] = _affinity(models)
        pods.append(pod)
    if not pods:
        raise ConfigError(f"{file}, line 2, column 1 (name): no pod follows the header; give at least one")
    return pods


def _affinity(models: list[str]) -> Json:
    expression = {"key": GPU_MODEL_LABEL, "operator": "In", "values": models}
    terms = [{"matchExpressions": [expression]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
