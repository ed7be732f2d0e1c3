"""What a Deep Sets policy sees of a node: shares, the load against the cluster's, latency against the pod's limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.model.node import Node
from shared.policy.deepsets.features import FEATURE_COUNT, FEATURES, LOAD_STEP, cluster_loads, node_features, node_load
from shared.policy.usage.kept_views import KeptViews
from shared.policy.usage.utilisation import UtilisationStore
from shared.policy.usage.views import NO_POD, SUMMARY, summary
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


@pytest.mark.parametrize("without", ["cpu", "memory"])
def test_a_node_that_offers_nothing_while_pods_stand_there_counts_as_one_full_node(without):
    """It registered anew with nothing allocatable: the others are compared with a mean that means something."""
    table = cluster(1, 1, 1, 3)
    offered = {"cpu": "4", "memory": "8Gi"} | {without: "0"}
    table.upsert(make_node("n3").allocatable(**offered).node())
    assert node_load(table, np.arange(4)).max() > 1e3
    view = KeptViews().of(table, table.live_rows(), NO_POD, UtilisationStore())
    for found in (cluster_loads(None, table), cluster_loads(summary(view), table)):
        assert found.load * LOAD_STEP == pytest.approx((3 * 0.1875 + 1) / 4, abs=LOAD_STEP)
        assert found.most * LOAD_STEP == 1


def test_load_is_told_against_the_clusters_mean():
    x = node_features(cluster(3, 1, 0), POD, np.arange(3))
    mean = round((0.5625 + 0.1875) / 3 / LOAD_STEP) * LOAD_STEP
    assert column(x, "above_mean") == pytest.approx([(load - mean) * 4 for load in (0.5625, 0.1875, 0)])
    assert column(x, "above_mean_with_pod") == pytest.approx([(load - mean) * 4 for load in (0.75, 0.375, 0.1875)])
    assert column(x, "cluster_load") == [mean] * 3
    assert column(x, "cluster_least") == [0] * 3
    assert column(x, "cluster_most") == [0.5625] * 3
    assert column(x, "cluster_in_use") == pytest.approx([2 / 3] * 3, abs=LOAD_STEP / 2)


@settings(max_examples=60, deadline=None)
@given(
    pods=st.lists(st.integers(0, 4), min_size=1, max_size=9),
    asked=st.data(),
    cpu=st.sampled_from(["10m", "250m", "3"]),
)
def test_a_node_looks_the_same_whichever_agent_looks_and_whatever_else_it_sees(pods, asked, cpu):
    """What the coordinator tells makes the part of an agent's nodes look as the whole does."""
    pod = make_pod().cpu(cpu).memory("64Mi").pod().pod_class
    whole = cluster(*pods)
    told = summary(KeptViews().of(whole, whole.live_rows(), NO_POD, UtilisationStore()))
    expected = node_features(whole, pod, np.arange(len(pods)))
    mine = sorted(asked.draw(st.sets(st.integers(0, len(pods) - 1), min_size=1)))
    part = cluster(*(pods[number] for number in mine))
    seen = node_features(part, pod, np.arange(len(mine)), cluster_loads(told, part))
    assert (seen == expected[mine]).all()


def test_what_an_older_coordinator_tells_is_too_little_and_the_own_nodes_stand_for_the_cluster():
    part = cluster(3, 1)
    assert cluster_loads(np.zeros(11), part) == cluster_loads(None, part) != cluster_loads(np.zeros(len(SUMMARY)), part)


def test_a_cordoned_node_is_no_part_of_the_cluster_that_others_are_compared_with():
    table = cluster(3, 1)
    table.upsert(replace(make_node("n0").node(), unschedulable=True))
    assert cluster_loads(None, table) == cluster_loads(None, cluster(1))


def test_a_small_change_of_the_cluster_is_none():
    """Nodes judged before stay judged while one pod more or less in many changes the mean."""
    full, one_more = cluster(*[2] * 40), cluster(3, *[2] * 39)
    assert cluster_loads(None, full)._replace(most=0) == cluster_loads(None, one_more)._replace(most=0)


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


def test_nodes_and_pods_without_anything_give_finite_features():
    table = NodeTable()
    table.upsert(Node(name="bare"))
    x = node_features(table, make_pod().pod().pod_class, np.arange(1))
    assert np.isfinite(x).all()
    assert node_features(table, POD, np.arange(0)).shape == (0, FEATURE_COUNT)


def test_load_is_the_mean_of_cpu_and_memory():
    assert node_load(cluster(2, 0), np.arange(2)).tolist() == [0.375, 0]
