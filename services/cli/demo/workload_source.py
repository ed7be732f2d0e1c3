"""What a demo submits: nodes, and pods with the moments at which they are due. Files are read here, nothing is sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from services.cli.demo.figures import EXTRA_PREFIX
from services.cli.train.trace_file import is_trace, packed_or_not, read_trace
from shared.errors import ConfigError
from shared.experiments.traces.openb import parse_nodes, parse_pods
from shared.experiments.traces.workload import GAP_S, KINDS, Arrival, arrivals, pod_json, stress_pod, thesis_nodes

Json = dict[str, Any]

NODE_LIST = "openb_node_list_gpu_node.csv"
POD_LIST = "openb_pod_list_default.csv"
REMEDY = "give the folder with the openb trace"
EXTRA_GAP_S = 0.1
EXTRA_RUN_S = 30.0


@dataclass(frozen=True, slots=True)
class Workload:
    """``timed``: pods arrive by schedule (virtual seconds) and finish; else as fast as possible, and none finishes."""

    name: str
    nodes: list[Json]
    pods: list[Arrival]
    timed: bool

    def extra(self) -> Iterator[Arrival]:
        """Further pods for as long as kills have not recovered; ``at_s`` is the gap before each."""
        number = 0
        kinds = sorted(KINDS)
        while True:
            name = f"{EXTRA_PREFIX}{number:04d}"
            if self.timed:
                yield Arrival(GAP_S, stress_pod(name, kinds[number % len(kinds)], EXTRA_RUN_S))
            else:
                yield Arrival(EXTRA_GAP_S, pod_json(name, {"cpu": "10m", "memory": "16Mi"}))
            number += 1


def load_workload(
    name: str, *, seed: int, nodes: int | None, trace_dir: Path | None, pod_list: str | None = None
) -> Workload:
    """The workload ``uniform``, ``random`` or ``openb``. ``ConfigError``: unknown, unreadable or malformed.

    ``pod_list`` names a file of ``trace_dir``; without it the default list counts, or the only one there is.
    """
    if name != "openb":
        given = "--trace-dir" if trace_dir is not None else "--pod-list" if pod_list is not None else ""
        if given:
            raise ConfigError(f"{given}: only the workload openb reads a trace; add --workload openb or leave it out")
        return Workload(name, thesis_nodes(nodes or 4), arrivals(name, Random(seed)), timed=True)
    if trace_dir is None:
        raise ConfigError(f"--trace-dir: the workload openb needs the folder with {NODE_LIST} and a pod list")
    node_file = packed_or_not(trace_dir / NODE_LIST)
    node_list = parse_nodes(read_trace("--trace-dir", node_file, REMEDY), str(node_file))
    if nodes is not None and nodes > len(node_list):
        raise ConfigError(f"--nodes: {nodes} is more than the trace's {len(node_list)}")
    pod_file = trace_dir / pod_list if pod_list is not None else _pod_list(trace_dir)
    pods = parse_pods(read_trace("--trace-dir", pod_file, REMEDY), str(pod_file))
    return Workload(name, node_list[:nodes], [Arrival(0.0, pod) for pod in pods], timed=False)


def _pod_list(trace_dir: Path) -> Path:
    """The default list, or the only one there is. ``ConfigError``: several, none of which is the default."""
    default = packed_or_not(trace_dir / POD_LIST)
    if default.exists():
        return default
    found = sorted(file for file in trace_dir.glob("openb_pod_list_*") if is_trace(file))
    if len(found) > 1:
        names = ", ".join(file.name for file in found)
        raise ConfigError(f"--pod-list: {trace_dir} holds {names} and no {POD_LIST}; name one of them")
    return found[0] if found else default
