"""The openb trace for tests: read once, skipped with a clear line where it is missing."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from lab.traces.gpu_trace import parse_gpu_nodes, parse_gpu_pods
from shared.policy.rehearsal.submission import GpuNodes, GpuPods

DATA = Path(os.environ.get("CONCLAVE_SHARED", Path(__file__).parents[1].parent / "shared")) / "data"


def needs(file: Path) -> Path:
    """``file``, or the test is skipped."""
    if not file.exists():
        pytest.skip(f"no trace: {file} is missing (CONCLAVE_SHARED names the folder)")
    return file


@cache
def openb_nodes() -> GpuNodes:
    file = needs(DATA / "openb" / "openb_node_list_gpu_node.csv")
    return parse_gpu_nodes(file.read_text(), file.name)


@cache
def openb_pods(trace: str) -> GpuPods:
    file = needs(DATA / "openb" / f"openb_pod_list_{trace}.csv")
    return parse_gpu_pods(file.read_text(), file.name, openb_nodes())
