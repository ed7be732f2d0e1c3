"""The trace parser: both layouts, what becomes of GPUs, and errors that name line and column."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.audit.rules import GPU_MILLI, pod_requests
from lab.traces.openb import parse_nodes, parse_pods
from shared.errors import ConfigError

NODES = "sn,cpu_milli,memory_mib,gpu,model\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"
LONG = PODS.strip() + ",gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"


def test_a_node_offers_its_devices_in_thousandths_and_its_model_as_a_label():
    (gpu, plain) = parse_nodes(NODES + "n0,64000,262144,2,P100\nn1,32000,1024,0,\n", "n.csv")
    assert gpu["status"]["allocatable"][GPU_MILLI] == "2000"
    assert gpu["metadata"]["labels"]["conclave.io/gpu-model"] == "P100"
    assert GPU_MILLI not in plain["status"]["allocatable"]
    assert plain["status"]["allocatable"]["cpu"] == "32000m"


def test_a_share_is_taken_as_written_and_several_devices_as_whole():
    pods = parse_pods(PODS + "a,1,1,1,460\nb,1,1,1,1000\nc,1,1,8,0\nd,1,1,0,0\n", "p.csv")
    assert [pod_requests(pod["spec"]).get(GPU_MILLI, 0) for pod in pods] == [460, 1000, 8000, 0]
    assert pods[0]["spec"]["containers"][0]["resources"]["limits"] == {GPU_MILLI: "460"}


def test_gpu_spec_becomes_a_required_affinity_on_the_model_label():
    (pod,) = parse_pods(LONG + "a,1,1,1,1000,V100M16|V100M32|V100M32,LS,Running,0,1,0\n", "p.csv")
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (expression,) = required["nodeSelectorTerms"][0]["matchExpressions"]
    assert expression == {"key": "conclave.io/gpu-model", "operator": "In", "values": ["V100M16", "V100M32"]}


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (PODS + "a,1,1,0,0\nb,x,1,0,0\n", "line 3, column cpu_milli"),
        (PODS + "a,1,1,0,0\nb,-1,1,0,0\n", "line 3, column cpu_milli"),
        (PODS + "a,1,1,0\n", "line 2, column gpu_milli"),
        (PODS + "a,1,1,0,0,0\n", "line 2, column 6"),
        (PODS + "a,1,1,1,0\n", "line 2, column gpu_milli"),
        (PODS + "a,1,1,1,1001\n", "line 2, column gpu_milli"),
        (PODS + "a,1,1,0,5\n", "line 2, column num_gpu"),
        (PODS + "a,1,1,0,0\na,1,1,0,0\n", "line 3, column name"),
        (PODS + "A_b,1,1,0,0\n", "line 2, column name"),
        (PODS + '"a,1,1,0,0\n', "line 2"),
        (LONG + "a,1,1,1,1000,V100||T4,LS,Running,0,1,0\n", "line 2, column gpu_spec"),
        (PODS.replace("num_gpu", "gpus") + "a,1,1,0,0\n", "line 1, column 4 (num_gpu)"),
        (PODS.replace("name", "name,cpu_milli") + "a,1,1,1,0,0\n", "line 1, column 3 (cpu_milli)"),
        (PODS.strip() + ",GPU Spec\na,1,1,1,1000,T4\n", "line 1, column 6: 'GPU Spec' is not read; write gpu_spec"),
        ("", "line 1, column 1 (name)"),
        (PODS, "line 2, column 1 (name)"),
    ],
)
def test_a_malformed_pod_list_names_file_line_and_column(text, where):
    with pytest.raises(ConfigError) as caught:
        parse_pods(text, "p.csv")
    assert f"p.csv, {where}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "gpu_spec,gpu_milli,num_gpu,memory_mib,cpu_milli,name\nT4,500,1,2,3,a\n",
        PODS.strip() + ",gpu_spec\na,3,2,1,500,T4\n",
        "user," + LONG + "u,a,3,2,1,500,T4,,,,,\n",
        "\ufeff" + '"name","cpu_milli","memory_mib","num_gpu","gpu_milli","gpu_spec"\r\n"a","3","2","1","500","T4"\r\n',
    ],
    ids=["another order", "one optional column", "a column more and empty cells", "quoted, CRLF, byte order mark"],
)
def test_columns_are_read_by_their_names(text):
    assert parse_pods(text, "p.csv") == parse_pods(LONG + "a,3,2,1,500,T4,LS,Running,0,1,0\n", "p.csv")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (NODES + "n0,1,1,2,\n", "line 2, column model"),
        (NODES + "n0,1,1,65,T4\n", "line 2, column gpu"),
        (NODES + "n0,1,1,1,T 4\n", "line 2, column model"),
        (NODES, "line 2, column 1 (sn)"),
    ],
)
def test_a_malformed_node_list_names_file_line_and_column(text, where):
    with pytest.raises(ConfigError) as caught:
        parse_nodes(text, "n.csv")
    assert f"n.csv, {where}" in str(caught.value)


def test_the_given_trace_parses_to_its_known_totals():
    folder = Path(os.environ.get("CONCLAVE_SHARED", "../shared")) / "data" / "openb"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there: the trace is not part of the project")
    nodes = parse_nodes((folder / "openb_node_list_gpu_node.csv").read_text(), "nodes")
    assert len(nodes) == 1213
    assert sum(int(n["status"]["allocatable"].get(GPU_MILLI, 0)) for n in nodes) == 6_212_000
    for name, count in (("default", 8152), ("multigpu20", 8324), ("gpuspec10", 8152), ("cpu200", 8832)):
        pods = parse_pods((folder / f"openb_pod_list_{name}.csv").read_text(), name)
        assert len(pods) == count
        assert name != "gpuspec10" or sum("affinity" in pod["spec"] for pod in pods) == 732
