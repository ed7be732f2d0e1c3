"""FGD's measure by hand, the features against the loops that training uses, and that only the state counts."""

from __future__ import annotations

import numpy as np
import pytest

from lab.learner.frag.kernel_value import features as loops
from lab.traces.gpu_trace import parse_gpu_nodes
from shared.model.gpu import GpuRequest, fullest, options
from shared.policy.frag.features import FEATURES, FragFeatures, model_share
from shared.policy.frag.fragmentation import Meeting, typical_demand
from shared.policy.frag.value import PRICES
from shared.policy.rehearsal.gpu_cluster import GpuCluster
from shared.policy.rehearsal.submission import empty_states
from tests.small_trace import NODES_HEADER, small_trace

HALF, WHOLE, TWO, PLAIN = (
    GpuRequest(4000, 0, devices, milli) for devices, milli in ((1, 500), (1, 1000), (2, 1000), (0, 0))
)


def states(*free: list[int], cpu: int = 8000):
    found = empty_states(np.array([(cpu, 9000, len(row), 0) for row in free], np.int64))
    for index, row in enumerate(free):
        found.free[index, : len(row)] = row
    return found


def fragment(state, *requests: GpuRequest) -> float:
    demand = typical_demand(requests, np.ones(len(requests), np.int64))
    return float(Meeting(demand).fragment(state)[0])


def test_devices_below_the_share_are_fragments_of_a_pod_that_runs():
    assert fragment(states([400, 700, 1000]), HALF) == 400


def test_all_idle_is_fragment_where_the_pod_cannot_run():
    assert fragment(states([400, 700]), WHOLE) == 1100
    assert fragment(states([1000, 700]), TWO) == 1700
    assert fragment(states([1000, 1000], cpu=3999), WHOLE) == 2000
    assert fragment(states([1000]), GpuRequest(0, 0, 1, 1000, models=0b10)) == 1000


def test_all_idle_is_fragment_for_a_pod_without_gpu():
    assert fragment(states([400, 700]), PLAIN) == 1100


def test_the_fragment_is_the_mean_over_typical_pods():
    assert fragment(states([400, 700, 1000]), HALF, WHOLE, PLAIN) == pytest.approx((400 + 1100 + 2100) / 3)


def test_typical_pods_are_the_most_frequent_until_95_percent():
    requests = [GpuRequest(1000 * index, 0, 1, 500) for index in range(1, 4)]
    assert len(typical_demand(requests, np.array([950, 30, 20]))) == 1
    assert typical_demand(requests, np.array([940, 40, 20])).frequency.tolist() == pytest.approx([940 / 980, 40 / 980])


def test_memory_does_not_make_two_typical_pods_of_one():
    same = [GpuRequest(1000, 5, 1, 500), GpuRequest(1000, 6, 1, 500)]
    assert len(typical_demand(same, np.array([1, 1]))) == 1


def test_a_share_has_one_way_per_different_device_and_whole_devices_one():
    state = states([300, 700, 700, 1000])
    ways = options(state, HALF)
    assert ways.device.tolist() == [1, 3]
    assert ways.after.free.tolist() == [[300, 200, 700, 1000], [300, 700, 700, 500]]
    assert options(state, WHOLE).after.free.tolist() == [[300, 700, 700, 0]]
    assert options(state, PLAIN).after.cpu.tolist() == [4000]
    assert options(state, HALF, fullest_only=True).device.tolist() == fullest(state, HALF).tolist() == [1]


def used_states(seed: int):
    """States of a cluster that was filled at random, and the trace's demand."""
    trace, rng = small_trace(nodes=12), np.random.default_rng(seed)
    cluster = GpuCluster(trace.nodes)
    for which in rng.integers(len(trace.pods.classes), size=60).tolist():
        request = trace.pods.classes[which]
        where = np.flatnonzero(cluster.feasible(request))
        if len(where):
            node = int(rng.choice(where))
            cluster.place(node, request, int(fullest(cluster.states, request)[node]))
    return cluster.states, FragFeatures(trace.demand, model_share(trace.nodes.states))


@pytest.mark.parametrize("seed", range(4))
def test_features_equal_the_loops_that_training_uses(seed):
    found, features = used_states(seed)
    demand = features.meeting.demand
    typical = np.stack((demand.cpu, demand.devices, demand.milli, demand.models), 1)
    by_gpu, figures = features.constants()
    constants = np.concatenate((PRICES, figures))
    expected = np.zeros((len(found), len(FEATURES)))
    for row in range(len(found)):
        loops(
            int(found.cpu[row]), int(found.memory[row]), found.free[row], int(found.devices[row]),
            int(found.model[row]), typical, demand.frequency, by_gpu, constants, expected[row],
        )  # fmt: skip
    busy = found.free.sum(1) > 0
    assert features.of(found)[busy] == pytest.approx(expected[busy], abs=1e-9)


def test_neither_the_order_of_devices_nor_of_nodes_changes_the_features():
    found, features = used_states(9)
    x = features.of(found)
    order = np.random.default_rng(1).permutation(len(found))
    assert np.array_equal(features.of(found.take(order)), x[order])
    found.free[:] = found.free[:, ::-1].copy()
    assert features.of(found) == pytest.approx(x, abs=1e-12)


def test_features_are_finite_for_a_demand_without_gpus_and_nodes_without_them():
    nodes = parse_gpu_nodes(NODES_HEADER + "a,8000,8000,2,T4\nc,8000,8000,0,\n", "n.csv")
    features = FragFeatures(typical_demand([PLAIN], np.array([3])), model_share(nodes.states))
    assert np.isfinite(features.of(nodes.states)).all()
