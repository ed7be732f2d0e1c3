"""Made traces: the same by seed, read by the trace's own readers, and small enough for their cluster."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from lab.traces.maker import FILL, MOST_NODES, make_trace
from lab.traces.openb import GPU_MILLI, parse_nodes, parse_pods
from services.cli.__main__ import run
from shared.errors import ConfigError

SHIPPED = Path(__file__).parents[4] / "docs" / "examples" / "trace"


@pytest.mark.parametrize(("nodes", "pods", "seed"), [(1, 1, 0), (1, 500, 1), (60, 600, 42), (300, 20, 7)])
def test_a_made_trace_is_read_and_fits_its_nodes_in_sum(nodes: int, pods: int, seed: int) -> None:
    made = make_trace(Random(seed), nodes=nodes, pods=pods)
    assert made == make_trace(Random(seed), nodes=nodes, pods=pods)
    assert made != make_trace(Random(seed + 1), nodes=nodes, pods=pods) or nodes == pods == 1
    read_nodes, read_pods = parse_nodes(made[0], "nodes.csv"), parse_pods(made[1], "pods.csv")
    assert len(read_nodes) == nodes
    assert 0 < len(read_pods) <= pods
    offered = sum(int(node["status"]["allocatable"].get(GPU_MILLI, 0)) for node in read_nodes)
    asked = sum(int(pod["spec"]["containers"][0]["resources"]["requests"].get(GPU_MILLI, 0)) for pod in read_pods)
    assert asked <= FILL * offered


def test_more_than_anybody_reads_is_refused() -> None:
    with pytest.raises(ConfigError, match="--nodes"):
        make_trace(Random(0), nodes=MOST_NODES + 1, pods=1)
    with pytest.raises(ConfigError, match="--pods"):
        make_trace(Random(0), nodes=1, pods=0)


def test_the_shipped_trace_is_what_the_command_makes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["twin", "trace", "--out", str(tmp_path / "made")]) == 0
    assert "60 rows" in capsys.readouterr().out
    made = {file.name: file.read_bytes() for file in (tmp_path / "made").iterdir()}
    assert made == {file.name: file.read_bytes() for file in SHIPPED.iterdir()}
    assert sum(map(len, made.values())) < 200_000
