"""openb as arrays: what a row asks for, what is impossible, and the order of submission."""

from __future__ import annotations

import numpy as np
import pytest

from lab.traces.gpu_trace import parse_gpu_nodes, parse_gpu_pods
from shared.errors import ConfigError
from shared.model.gpu import ANY_MODEL
from shared.policy.rehearsal.submission import submission
from tests.small_trace import NODES_HEADER, PODS_HEADER, small_trace

NODES = parse_gpu_nodes(NODES_HEADER + "a,64000,262144,2,P100\nb,32000,1024,0,\nc,96000,4096,8,G2\n", "n.csv")


def pods(*rows: str):
    return parse_gpu_pods(PODS_HEADER + "".join(f"{row},LS,Running,0,1,0\n" for row in rows), "p.csv", NODES)


def test_a_node_has_whole_devices_and_none_beyond_its_number():
    assert NODES.states.free.tolist() == [[1000] * 2 + [0] * 6, [0] * 8, [1000] * 8]
    assert NODES.capacity == 10_000


def test_several_devices_are_whole_whatever_the_row_says():
    (request,) = pods("x,1,1,4,0,").classes
    assert (request.devices, request.milli, request.gpu) == (4, 1000, 4000)


def test_a_model_the_list_lacks_accepts_no_node_and_no_model_accepts_all():
    named, lacking, free = pods("x,1,1,1,500,G2|H100", "y,1,1,1,500,H100", "z,1,1,1,500,").classes
    assert NODES.states.accepted_by(named.models).tolist() == [False, False, True]
    assert not NODES.states.accepted_by(lacking.models).any()
    assert free.models == ANY_MODEL


def test_pods_that_name_other_models_are_other_pods_though_the_list_lacks_them():
    found = pods("x,1,1,1,500,G2", "y,1,1,1,500,G2|H100", "z,1,1,1,500,A10", "w,1,1,1,500,H100", "v,1,1,1,500,H100")
    assert found.of.tolist() == [0, 1, 2, 3, 3]
    assert [NODES.states.accepted_by(kind.models).sum() for kind in found.classes] == [1, 1, 0, 0]
    assert "H100" not in NODES.models


def test_models_beyond_what_a_mask_holds_accept_no_node():
    names = [f"M{number}" for number in range(80)]
    found = pods(*(f"p{number},1,1,1,500,{name}" for number, name in enumerate(names)), "q,1,1,1,500,M79|G2")
    assert all(not NODES.states.accepted_by(kind.models).any() for kind in found.classes[:-1])
    assert NODES.states.accepted_by(found.classes[-1].models).tolist() == [False, False, True]


def test_equal_rows_share_a_class():
    found = pods("x,1,1,1,500,", "y,2,1,1,500,", "z,1,1,1,500,")
    assert found.of.tolist() == [0, 1, 0]
    assert found.counts.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("row", "where"),
    [
        ("x,128001,1,1,500,", "line 2, column cpu_milli"),
        ("x,1,1048577,1,500,", "line 2, column memory_mib"),
        ("x,1,1,9,1000,", "line 2, column num_gpu"),
        ("x,1,1,1,1001,", "line 2, column gpu_milli"),
        ("x,1,1,1,0,", "line 2, column gpu_milli"),
        ("x,-1,1,1,500,", "line 2, column cpu_milli"),
        (",1,1,1,500,", "line 2, column name"),
        ("x,1,1,0,0,", "line 2, column num_gpu"),
    ],
)
def test_an_impossible_pod_is_refused_by_line_and_column(row, where):
    with pytest.raises(ConfigError) as caught:
        pods(row)
    assert f"p.csv, {where}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_pod_that_only_openbs_largest_machine_holds_is_no_error_on_a_shorter_list():
    (request,) = pods("x,120200,640000,8,1000,").classes
    assert request.cpu == 120_200


def test_a_node_list_without_gpus_is_refused():
    with pytest.raises(ConfigError, match="no node has a GPU"):
        parse_gpu_nodes(NODES_HEADER + "a,64000,262144,0,\n", "n.csv")


def test_every_pod_is_submitted_once_before_any_is_drawn_again():
    trace = small_trace(nodes=60)
    order = submission(trace.pods, trace.nodes.capacity, 42)
    first = order[: len(trace.pods.of)]
    assert sorted(first.tolist()) == list(range(len(trace.pods.of)))
    assert len(order) > len(first)


@pytest.mark.parametrize("nodes", [8, 60])
def test_submission_ends_with_the_pod_that_reaches_130_percent(nodes):
    trace = small_trace(nodes=nodes)
    asked = np.cumsum(trace.pods.gpu[submission(trace.pods, trace.nodes.capacity, 7)])
    assert asked[-1] >= 1.3 * trace.nodes.capacity > asked[-2]


def test_the_seed_alone_decides_the_order():
    trace = small_trace(nodes=60)
    one, same, other = (submission(trace.pods, trace.nodes.capacity, seed) for seed in (42, 42, 43))
    assert np.array_equal(one, same)
    assert not np.array_equal(one[: len(trace.pods.of)], other[: len(trace.pods.of)])


def test_a_node_may_have_any_name_that_fits_a_cell():
    assert parse_gpu_nodes(NODES_HEADER + "openb-node-0001_2,64000,262144,2,P100\n", "n.csv").names == (
        "openb-node-0001_2",
    )


@pytest.mark.parametrize("name", ["", "a b", '"a,b"', "a;b"])
def test_a_node_name_that_would_garble_the_placements_is_refused(name):
    with pytest.raises(ConfigError, match=r"n\.csv, line 2, column sn"):
        parse_gpu_nodes(NODES_HEADER + f"{name},64000,262144,2,P100\n", "n.csv")


def test_a_list_that_as_good_as_never_reaches_the_demand_is_refused():
    idle = [f"c{number},1,1,0,0," for number in range(2_000)]
    with pytest.raises(ConfigError, match=r"p\.csv, line 2, column num_gpu: 26013000 such pods"):
        pods(*idle, "x,1,1,1,1,")
