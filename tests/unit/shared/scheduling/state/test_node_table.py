"""A table of copies: some rows of another, again and again, each with what was counted on top."""

from __future__ import annotations

import numpy as np
import pytest

from shared.scheduling.state.cache import ClusterCache
from shared.scheduling.state.node_table import PODS_COLUMN, NodeTable
from tests.builders import make_node, make_pod


def cluster() -> ClusterCache:
    cache = ClusterCache()
    for index in range(3):
        node = make_node(f"n{index}").gpus(1).label(zone="xyz"[index])
        cache.upsert_node(node.taint("dear", "PreferNoSchedule").node() if index else node.node())
    return cache


def test_a_table_with_copies_has_the_rows_in_order_with_so_many_pods_more() -> None:
    table, pod_class = cluster().table, make_pod().cpu("500m").pod().pod_class
    copies = table.with_copies(np.array([2, 0, 2]), np.array([1, 0, 3]), pod_class)
    assert copies.rows == 3
    assert copies.names == ["n2", "n0", "n2"]
    assert copies.requested[0].tolist() == [500, 0, 1500]
    assert copies.requested[PODS_COLUMN].tolist() == [1, 0, 3]
    assert copies.taint_set.tolist() == [table.taint_set[2], table.taint_set[0], table.taint_set[2]]
    codes = copies.codes_of("zone")
    assert codes is not None
    assert [list(copies.label_values["zone"])[code] for code in codes] == ["z", "x", "z"]
    assert table.requested.sum() == 0


def test_devices_and_ports_of_copies_are_their_own() -> None:
    table, pod_class = cluster().table, make_pod().gpu_milli(400).port(80).pod().pod_class
    copies = table.with_copies(np.array([1, 1]), np.array([1, 2]), pod_class)
    assert copies.device_free == [[600], [200]]
    assert [list(ports.values()) for ports in copies.ports] == [[1], [2]]
    assert table.device_free == [[1000]] * 3
    assert table.ports == [{}] * 3


def test_every_copy_of_a_node_goes_by_its_name() -> None:
    table = cluster().table
    copies = table.with_copies(np.array([2, 0, 2]), np.array([0, 0, 0]), make_pod().pod().pod_class)
    assert (table.rows_named("n2"), table.rows_named("n9")) == ([2], [])
    assert (copies.rows_named("n2"), copies.rows_named("n0"), copies.rows_named("n9")) == ([0, 2], [1], [])


@pytest.mark.parametrize("milli", [300, 1000, 3000, 9000])
def test_copies_take_the_devices_that_pods_one_after_the_other_would(milli: int) -> None:
    def table() -> NodeTable:
        made = NodeTable()
        made.upsert(make_node("n").gpus(8).node())
        made.add_usage(0, make_pod().gpu_milli(600).pod().pod_class, (2,))
        return made

    pod_class, one_by_one = make_pod().gpu_milli(milli).pod().pod_class, table()
    for count in range(4):
        copies = table().with_copies(np.array([0]), np.array([count]), pod_class)
        assert copies.device_free == one_by_one.device_free
        assert (copies.device_max_free[0], copies.device_whole[0]) == (
            one_by_one.device_max_free[0], one_by_one.device_whole[0],
        )  # fmt: skip
        assert (copies.requested[:, 0] == one_by_one.requested[:, 0]).all()
        one_by_one.add_usage(0, pod_class, one_by_one.pick_devices(0, milli))
