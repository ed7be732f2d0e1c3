"""The GPU cluster: what fits, what a placement takes, and that equal states share a number."""

from __future__ import annotations

import pytest

from lab.traces.gpu_trace import parse_gpu_nodes
from shared.model.gpu import GpuRequest
from shared.policy.rehearsal.gpu_cluster import GpuCluster
from tests.small_trace import NODES_HEADER


def cluster() -> GpuCluster:
    text = NODES_HEADER + "a,8000,8000,2,T4\nb,8000,8000,2,T4\nc,8000,8000,0,\nd,8000,8000,2,G2\n"
    return GpuCluster(parse_gpu_nodes(text, "n.csv"))


HALF, WHOLE, TWO = (GpuRequest(1000, 1000, devices, milli) for devices, milli in ((1, 500), (1, 1000), (2, 1000)))


def test_whole_devices_need_devices_nobody_shares():
    gpus = cluster()
    gpus.place(0, HALF, 1)
    assert gpus.feasible(WHOLE).tolist() == [True, True, False, True]
    assert gpus.feasible(TWO).tolist() == [False, True, False, True]
    assert gpus.feasible(GpuRequest(0, 0, 1, 501)).tolist() == [True, True, False, True]


def test_cpu_memory_and_model_count_too():
    gpus = cluster()
    assert not gpus.feasible(GpuRequest(8001, 0, 0, 0)).any()
    assert not gpus.feasible(GpuRequest(0, 8001, 0, 0)).any()
    assert gpus.feasible(GpuRequest(0, 0, 1, 100, models=0b100)).tolist() == [False, False, False, True]


def test_a_placement_takes_its_amounts_and_names_its_devices():
    gpus = cluster()
    assert gpus.place(0, HALF, 1) == (1,)
    assert gpus.place(0, WHOLE) == (0,)
    assert gpus.place(3, TWO) == (0, 1)
    assert gpus.states.free[:, :2].tolist() == [[0, 500], [1000, 1000], [0, 0], [0, 0]]
    assert gpus.states.cpu.tolist() == [6000, 8000, 8000, 7000]
    assert gpus.allocated == 3500


def test_the_node_list_stays_as_it_was():
    gpus = cluster()
    gpus.place(0, TWO)
    assert gpus.nodes.states.free[0].tolist() == [1000, 1000]
    assert gpus.nodes.states.cpu[0] == 8000


@pytest.mark.parametrize(
    ("request_", "device"), [(TWO, -1), (HALF, 0), (HALF, 5), (GpuRequest(0, 0, 1, 100, models=0b100), 1)]
)
def test_what_does_not_fit_is_not_placed(request_, device):
    gpus = cluster()
    gpus.place(0, GpuRequest(0, 0, 1, 900), 0)
    before = gpus.states.free.copy(), gpus.allocated
    with pytest.raises(ValueError, match="has no room"):
        gpus.place(0, request_, device)
    assert (gpus.states.free == before[0]).all()
    assert gpus.allocated == before[1]


def test_nodes_in_the_same_state_share_its_number_and_others_do_not():
    gpus = cluster()
    assert gpus.state_of[0] == gpus.state_of[1]
    assert len({int(number) for number in gpus.state_of}) == 3
    gpus.place(0, HALF, 0)
    assert gpus.state_of[0] != gpus.state_of[1]
    gpus.place(1, HALF, 0)
    assert gpus.state_of[0] == gpus.state_of[1]
