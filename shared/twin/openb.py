"""The openb trace (Alibaba GPU cluster 2023, as used by FGD, ATC'23) as Kubernetes nodes and pods.

Two CSV files in: a node list (``sn,cpu_milli,memory_mib,gpu,model``) and a pod list, in the long layout (with
``gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time``) or the short one without them. A share of a GPU
becomes the extended resource ``conclave.io/gpu-milli``: ``gpu_milli`` of one device, or 1000 per device of several.
``gpu_spec`` becomes a required node affinity on the label ``conclave.io/gpu-model``. Times are dropped: replayed, the
trace knows no contention (data manifest). It refuses to guess: a cell it cannot read is a ``ConfigError`` that names
file, line, column and remedy.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass

from shared.errors import ConfigError
from shared.twin.workload import Json, node_json, pod_json

GPU_MILLI = "conclave.io/gpu-milli"
GPU_MODEL_LABEL = "conclave.io/gpu-model"
MILLI_PER_DEVICE = 1000
MAX_DEVICES = 64

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
POD_EXTRA_COLUMNS = ("gpu_spec", "qos", "pod_phase", "creation_time", "deletion_time", "scheduled_time")

PODS_PER_NODE = "1000"
"""High enough that the trace's own resources decide: the trace names no such limit."""


@dataclass(frozen=True, slots=True)
class _Cell:
    file: str
    line: int
    column: str
    text: str

    def bad(self, remedy: str) -> ConfigError:
        return ConfigError(f"{self.file}, line {self.line}, column {self.column}: {self.text[:64]!r}: {remedy}")

    def number(self, highest: int = 2**53) -> int:
        text = self.text.strip()
        if not (text.isascii() and text.isdigit()) or len(text) > 16 or int(text) > highest:
            raise self.bad(f"give a whole number from 0 to {highest}")
        return int(text)

    def name(self) -> str:
        text = self.text.strip()
        plain = text.replace("-", "a").replace(".", "a")
        if not (plain.isascii() and plain.isalnum() and text == text.lower() and len(text) <= 253) or (
            text[0] in "-." or text[-1] in "-."
        ):
            raise self.bad("give a lower-case name of letters, digits, '-' and '.'")
        return text

    def label(self) -> str:
        text = self.text.strip()
        plain = text.replace("-", "a").replace(".", "a").replace("_", "a")
        if not (plain.isascii() and plain.isalnum() and len(text) <= 63 and text[0].isalnum() and text[-1].isalnum()):
            raise self.bad("give a model of letters and digits such as V100M16")
        return text


def _rows(text: str, file: str, layouts: tuple[tuple[str, ...], ...]) -> Iterator[dict[str, _Cell]]:
    """Each row as cells by column; the header must be one of ``layouts``."""
    reader = csv.reader(text.splitlines(), strict=True)
    try:
        header = tuple(name.strip().lstrip("\ufeff") for name in next(reader, []))
        if header not in layouts:
            column = _first_difference(header, layouts)
            raise ConfigError(
                f"{file}, line 1, column {column}: the header is not one this reads; it must be {','.join(layouts[0])}"
                + (f" or {','.join(layouts[1])}" if len(layouts) > 1 else "")
            )
        for row in reader:
            if not row:
                continue
            line = reader.line_num
            if len(row) != len(header):
                column = header[len(row)] if len(row) < len(header) else str(len(header) + 1)
                raise ConfigError(
                    f"{file}, line {line}, column {column}: {len(row)} cells where the header names {len(header)}; "
                    "the line is cut or has a comma too many"
                )
            yield {name: _Cell(file, line, name, cell) for name, cell in zip(header, row, strict=True)}
    except csv.Error as error:
        raise ConfigError(f"{file}, line {reader.line_num}, column 1: {error}; mend the quoting") from None


def _first_difference(header: tuple[str, ...], layouts: tuple[tuple[str, ...], ...]) -> str:
    best = max(layouts, key=lambda layout: sum(a == b for a, b in zip(header, layout, strict=False)))
    for number, name in enumerate(best):
        if number >= len(header) or header[number] != name:
            return f"{number + 1} ({name})"
    return str(len(best) + 1)


def parse_nodes(text: str, file: str) -> list[Json]:
    """Node objects of a node list; ``file`` is named in errors. ``ConfigError``: malformed, with line and column."""
    nodes: list[Json] = []
    seen: dict[str, int] = {}
    for row in _rows(text, file, (NODE_COLUMNS,)):
        name = _unique(row["sn"], seen)
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
    for row in _rows(text, file, (POD_COLUMNS + POD_EXTRA_COLUMNS, POD_COLUMNS)):
        name = _unique(row["name"], seen)
        requests = {"cpu": f"{row['cpu_milli'].number()}m", "memory": f"{row['memory_mib'].number()}Mi"}
        gpu_milli = _gpu_milli(row)
        if gpu_milli:
            requests[GPU_MILLI] = str(gpu_milli)
        pod = pod_json(name, requests, scheduler_name=scheduler_name, namespace=namespace)
        models = _models(row["gpu_spec"]) if "gpu_spec" in row else []
        if models:
            pod["spec"]["affinity"] = _affinity(models)
        pods.append(pod)
    if not pods:
        raise ConfigError(f"{file}, line 2, column 1 (name): no pod follows the header; give at least one")
    return pods


def _unique(cell: _Cell, seen: dict[str, int]) -> str:
    name = cell.name()
    if name in seen:
        raise cell.bad(f"the same name is on line {seen[name]}; names must differ")
    seen[name] = cell.line
    return name


def _gpu_milli(row: dict[str, _Cell]) -> int:
    devices, share = row["num_gpu"].number(MAX_DEVICES), row["gpu_milli"].number(MILLI_PER_DEVICE)
    if devices > 1:
        # The trace writes 1000 here; the data manifest says to take whole devices whatever it writes.
        return devices * MILLI_PER_DEVICE
    if devices == 1 and share == 0:
        raise row["gpu_milli"].bad("a pod with one GPU needs a share from 1 to 1000")
    if devices == 0 and share > 0:
        raise row["num_gpu"].bad("a share of a GPU needs num_gpu 1")
    return share


def _models(cell: _Cell) -> list[str]:
    if not cell.text.strip():
        return []
    parts = cell.text.strip().split("|")
    return list(dict.fromkeys(_Cell(cell.file, cell.line, cell.column, part or cell.text).label() for part in parts))


def _affinity(models: list[str]) -> Json:
    expression = {"key": GPU_MODEL_LABEL, "operator": "In", "values": models}
    terms = [{"matchExpressions": [expression]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
