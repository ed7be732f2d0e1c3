"""What a demo submits, and what follows it while kills have not recovered."""

from __future__ import annotations

import itertools

import pytest

from lab.cli.demo.workload import load_workload
from shared.errors import ConfigError

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,1000,1024,0,\nn1,1000,1024,0,\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,100,1,0,0\n"


def test_the_thesis_workload_is_105_pods_on_four_nodes_and_timed():
    load = load_workload("uniform", seed=1, nodes=None, trace_dir=None)
    assert (len(load.nodes), len(load.pods), load.timed) == (4, 105, True)
    assert len(load_workload("random", seed=1, nodes=7, trace_dir=None).nodes) == 7


def test_a_trace_is_sent_at_once(tmp_path):
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(NODES)
    (tmp_path / "openb_pod_list_gpuspec10.csv").write_text(PODS)
    load = load_workload("openb", seed=1, nodes=1, trace_dir=tmp_path)
    assert (len(load.nodes), len(load.pods), load.timed) == (1, 1, False)
    with pytest.raises(ConfigError, match="--nodes: 3"):
        load_workload("openb", seed=1, nodes=3, trace_dir=tmp_path)
    (tmp_path / "openb_pod_list_other.csv").write_text(PODS)
    with pytest.raises(ConfigError, match=r"--pod-list: .*gpuspec10\.csv, openb_pod_list_other\.csv"):
        load_workload("openb", seed=1, nodes=1, trace_dir=tmp_path)


def test_a_pod_list_is_chosen_by_name(tmp_path):
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(NODES)
    (tmp_path / "openb_pod_list_default.csv").write_text(PODS)
    (tmp_path / "openb_pod_list_multigpu20.csv").write_text(PODS + "p1,100,1,0,0\n")
    for name, count in ((None, 1), ("openb_pod_list_multigpu20.csv", 2)):
        load = load_workload("openb", seed=1, nodes=1, trace_dir=tmp_path, pod_list=name)
        assert len(load.pods) == count
    with pytest.raises(ConfigError, match=r"absent\.csv"):
        load_workload("openb", seed=1, nodes=1, trace_dir=tmp_path, pod_list="absent.csv")


def test_further_pods_never_share_a_name_with_the_workload():
    for name in ("uniform", "random"):
        load = load_workload(name, seed=1, nodes=None, trace_dir=None)
        extra = [a.pod["metadata"]["name"] for a in itertools.islice(load.extra(), 50)]
        assert len(set(extra)) == 50
        assert not set(extra) & {a.pod["metadata"]["name"] for a in load.pods}


@pytest.mark.parametrize(("given", "flag"), [({"pod_list": "x.csv"}, "--pod-list"), ({}, "--trace-dir")])
def test_a_trace_that_no_workload_reads_is_refused(tmp_path, given, flag):
    folder = None if given else tmp_path
    with pytest.raises(ConfigError, match=f"{flag}: only the workload openb"):
        load_workload("uniform", seed=1, nodes=None, trace_dir=folder, **given)
