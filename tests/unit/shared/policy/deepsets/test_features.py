"""What a Deep Sets policy sees of a node: shares, ranks in steps of the pod, latency against the pod's limits."""

from __future__ import annotations

import numpy as np
import pytest

from shared.model.node import Node
from shared.policy.deepsets.features import FEATURE_COUNT, FEATURES, node_features, node_load
from shared.scheduling.state.node_table import NodeTable
from tests.builders import make_node, make_pod

POD = make_pod().cpu("1").memory("1Gi").pod().pod_class
LIMITED = (
    make_pod()
    .cpu("1")
    .memory("1Gi")
    .set(annotations={"latencySoftConstraint": "20", "latencyHardConstraint": "30"})
    .pod()
    .pod_class
)


def cluster(*pods: int, latency_us: tuple[int, ...] = ()) -> NodeTable:
    """Nodes of 4 CPU and 8 GiB that hold so many of ``POD``."""
    table = NodeTable()
    for number, count in enumerate(pods):
        row = table.upsert(make_node(f"n{number}").node())
        for _ in range(count):
            table.add_usage(row, POD, ())
        if latency_us:
            table.set_latency(row, latency_us[number])
    return table


def column(x: np.ndarray, name: str) -> list[float]:
    return x[:, FEATURES.index(name)].tolist()


def test_shares_and_load_with_the_pod():
    x = node_features(cluster(2, 0), POD, np.arange(2))
    assert x.shape == (2, FEATURE_COUNT)
    assert x.dtype == np.float32
    assert column(x, "cpu_share") == [0.5, 0]
    assert column(x, "memory_share") == [0.25, 0]
    assert column(x, "load_after") == pytest.approx([(0.75 + 0.375) / 2, (0.25 + 0.125) / 2])
    assert column(x, "in_use") == [1, 0]


def test_rank_is_told_in_steps_of_the_pod_and_clipped():
    table = cluster(3, 1, 0)
    x = node_features(table, POD, np.arange(3))
    assert column(x, "steps_above_least") == pytest.approx([3 / 8, 1 / 8, 0])
    assert column(x, "steps_below_fullest") == pytest.approx([0, 2 / 8, 3 / 8])
    small = make_pod().cpu("10m").memory("1Mi").pod().pod_class
    assert column(node_features(table, small, np.arange(3)), "steps_above_least") == [1, 1, 0]


def test_rank_is_among_the_candidates_alone():
    x = node_features(cluster(3, 1, 0), POD, np.array([0, 1]))
    assert column(x, "steps_above_least") == pytest.approx([2 / 8, 0])


def test_latency_against_the_limits():
    table = cluster(0, 0, 0, 0, latency_us=(20_000, 25_000, 90_000, -1))
    x = node_features(table, LIMITED, np.arange(4))
    assert column(x, "within_soft") == [1, 0, 0, 0]
    assert column(x, "within_hard") == [1, 1, 0, 0]
    assert column(x, "latency_to_soft") == pytest.approx([0.5, 0.625, 1, 1])
    assert column(x, "latency_to_hard") == pytest.approx([1 / 3, 25 / 60, 1, 1])


def test_without_limits_latency_does_not_count():
    near, far = (node_features(cluster(1, latency_us=(value,)), POD, np.arange(1)) for value in (1, 10**9))
    assert (near == far).all()
    assert column(near, "within_hard") == [1]


def test_a_buffer_is_filled_whole():
    table = cluster(1, 2, latency_us=(5_000, 50_000))
    out = np.full((2, FEATURE_COUNT), np.nan, np.float32)
    for pod in (POD, LIMITED):
        assert (node_features(table, pod, np.arange(2), out) == node_features(table, pod, np.arange(2))).all()


def test_nodes_and_pods_without_anything_give_finite_features():
    table = NodeTable()
    table.upsert(Node(name="bare"))
    x = node_features(table, make_pod().pod().pod_class, np.arange(1))
    assert np.isfinite(x).all()
    assert node_features(table, POD, np.arange(0)).shape == (0, FEATURE_COUNT)


def test_load_is_the_mean_of_cpu_and_memory():
    assert node_load(cluster(2, 0), np.arange(2)).tolist() == [0.375, 0]
