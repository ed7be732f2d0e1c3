"""Traces may be packed; a packed file that is cut, damaged or none is named, never half read."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from lab.cli.demo.workload import NODE_LIST, POD_LIST, load_workload
from services.cli.inputs import packed_or_not, read_trace
from shared.errors import ConfigError

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,1000,1024,0,\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,100,1,0,0\n"


def test_a_packed_trace_is_read_like_a_plain_one(tmp_path: Path) -> None:
    (tmp_path / f"{NODE_LIST}.gz").write_bytes(gzip.compress(NODES.encode()))
    (tmp_path / f"{POD_LIST}.gz").write_bytes(gzip.compress(PODS.encode()))
    load = load_workload("openb", seed=0, nodes=None, trace_dir=tmp_path)
    assert (len(load.nodes), len(load.pods)) == (1, 1)
    (tmp_path / NODE_LIST).write_text(NODES)
    assert packed_or_not(tmp_path / NODE_LIST) == tmp_path / NODE_LIST


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(gzip.compress(NODES.encode() * 99)[:-20], "cut or damaged", id="cut"),
        pytest.param(NODES.encode(), "pack it again, or give the .csv", id="not packed"),
        pytest.param(gzip.compress(b"a\nb\xff"), "line 2, column 1: not UTF-8", id="not text"),
    ],
)
def test_a_packed_file_that_is_not_whole_is_refused(tmp_path: Path, data: bytes, words: str) -> None:
    file = tmp_path / "pods.csv.gz"
    file.write_bytes(data)
    with pytest.raises(ConfigError, match=words) as caught:
        read_trace("--trace", file, "give a trace")
    assert str(caught.value).startswith(f"--trace: {file}")
