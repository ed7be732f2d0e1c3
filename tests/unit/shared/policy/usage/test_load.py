"""A node's load: the mean of what is watched, measured where somebody measures, else requested."""

from __future__ import annotations

import numpy as np
import pytest

from shared.model.constraints import PodClass
from shared.model.load import DEFAULT, PARTS
from shared.policy.deepsets.features import FEATURES, node_features
from shared.policy.usage.load import added_load, node_load, room_by_use, used_shares
from shared.scheduling.state.node_table import NodeTable
from tests.builders import make_node, make_pod

GIB = 1 << 30
POD = make_pod("p").cpu("1").memory("1Gi").pod().pod_class
ROWS = np.array([0])
CPU, MEMORY, DISK = (PARTS.index(part) for part in ("cpu", "memory", "disk"))


def table_of(pods: int = 4, nodes: int = 1) -> NodeTable:
    """Nodes of 10 cores and 10 GiB, with so many pods that ask for a tenth."""
    table = NodeTable(1)
    for number in range(nodes):
        row = table.upsert(make_node(f"n{number}").allocatable(cpu="10", memory="10Gi", pods="100").node())
        for _ in range(pods):
            table.add_usage(row, POD, ())
    return table


def measured(table: NodeTable, *shares: float, unmeasured: int = 0, pods: int = 4, row: int = 0) -> NodeTable:
    """As a sample from when so many pods stood there."""
    table.use.put(row, shares, unmeasured, [1000 * pods, GIB * pods])
    return table


def test_without_measurements_it_is_what_is_requested_and_of_disk_and_network_the_mean_of_both():
    shares = used_shares(table_of(), ROWS)[:, 0]
    np.testing.assert_allclose(shares, [0.4, 0.4, 0.4, 0.4, 0.04])
    assert node_load(table_of(), ROWS) == pytest.approx([0.4])
    assert node_load(table_of(), ROWS, ("pods",)) == pytest.approx([0.04])


def test_what_is_measured_counts_and_what_is_not_is_requested():
    table = measured(table_of(), 0.1, 0.0, 0.7, 0.0, unmeasured=0b1010)
    np.testing.assert_allclose(used_shares(table, ROWS)[:4, 0], [0.1, 0.4, 0.7, 0.4])
    assert node_load(table, ROWS) == pytest.approx([0.25])
    assert node_load(table, ROWS, ("cpu", "disk", "pods")) == pytest.approx([(0.1 + 0.7 + 0.04) / 3])


def on_lent(**amounts: str) -> PodClass:
    found = {f"kubernetes.io/{name.replace('_', '-')}": amount for name, amount in amounts.items()}
    return make_pod("offline").request(**found).pod().pod_class


@pytest.mark.parametrize("domain", ["kubernetes.io/batch-cpu", "resource.katalyst.kubewharf.io/reclaimed_millicpu"])
def test_a_pod_on_what_is_lent_counts_since_a_measurement_as_one_of_plain_requests(domain: str):
    offline = PodClass(requests=((domain, 4000),))
    table = measured(table_of(), 0.1, 0.8, 0.2, 0.0)
    table.add_usage(0, offline, ())
    np.testing.assert_allclose(used_shares(table, ROWS)[:, 0], [0.5, 0.8, 0.4, 0.2, 0.05])
    assert added_load(table, offline, ROWS) == pytest.approx([0.2])
    table.use.put(0, [0.45, 0.8, 0.2, 0.0], 0, [8000, 4 * GIB])
    np.testing.assert_allclose(used_shares(table, ROWS)[:2, 0], [0.45, 0.8], err_msg="once it is measured, not twice")
    table.add_usage(0, offline, (), sign=-1)
    np.testing.assert_allclose(used_shares(table, ROWS)[:2, 0], [0.225, 0.8], err_msg="it takes its part along")


def test_where_nothing_is_measured_what_is_lent_counts_for_nothing_as_in_kube_scheduler():
    offline = on_lent(batch_cpu="4000", batch_memory="4Gi")
    table = table_of()
    table.add_usage(0, offline, ())
    np.testing.assert_allclose(used_shares(table, ROWS)[:, 0], [0.4, 0.4, 0.4, 0.4, 0.05])
    assert added_load(table, offline, ROWS) == pytest.approx([0.0])
    table = measured(table_of(), 0.1, 0.8, 0.2, 0.0, unmeasured=0b0010)
    table.add_usage(0, offline, ())
    np.testing.assert_allclose(used_shares(table, ROWS)[:2, 0], [0.5, 0.4])


def test_a_burst_of_offline_pods_between_two_measurements_is_seen_node_by_node():
    """Alike but for what came since; none that is measured full is chosen."""
    table = table_of(nodes=2)
    for row in (0, 1):
        measured(table, 0.2, 0.2, 0.0, 0.0, row=row)
    offline = on_lent(batch_cpu="4000")
    table.add_usage(0, offline, ())
    load = node_load(table, np.array([0, 1]))
    assert load[0] > load[1]
    table.add_usage(0, offline, ())
    assert room_by_use(table, offline, np.array([0, 1])).tolist() == [False, True]


def test_an_online_pod_does_not_wait_for_offline_ones_that_came_since_but_for_what_is_measured():
    """They are in the measurement already, and count once more until it is known to show them."""
    table, offline = measured(table_of(), 0.6, 0.2, 0.0, 0.0), on_lent(batch_cpu="4000")
    table.add_usage(0, offline, ())
    assert room_by_use(table, POD, ROWS).tolist() == [True]
    assert room_by_use(table, on_lent(batch_cpu="1000"), ROWS).tolist() == [False]
    table.use.put(0, [0.95, 0.2, 0.0, 0.0], 0, [8000, 4 * GIB])
    assert room_by_use(table, POD, ROWS).tolist() == [False]
    table.use.put(0, [0.6, 0.2, 0.0, 0.0], 0, [4000, 4 * GIB])
    for _ in range(4):
        table.add_usage(0, POD, ())
    assert room_by_use(table, POD, ROWS).tolist() == [False], "online pods that came since count"


def test_a_pod_that_came_since_counts_by_its_requests_and_one_that_left_takes_its_part_along_at_most_its_request():
    table = measured(table_of(), 0.1, 0.8, 0.2, 0.0)
    table.add_usage(0, POD, ())
    np.testing.assert_allclose(used_shares(table, ROWS)[:4, 0], [0.2, 0.9, 0.3, 0.1])
    for _ in range(3):
        table.add_usage(0, POD, (), sign=-1)
    np.testing.assert_allclose(used_shares(table, ROWS)[:4, 0], [0.05, 0.6, 0.1, 0.0])
    for _ in range(2):
        table.add_usage(0, POD, (), sign=-1)
    np.testing.assert_allclose(used_shares(table, ROWS)[:4, 0], [0.0, 0.4, 0.0, 0.0], atol=1e-12)


@pytest.mark.parametrize(("pods", "gone", "left"), [(1, 1, 0.8), (2, 1, 0.8), (2, 2, 0.7)])
def test_what_nobody_requested_stays_when_the_pods_leave(pods, gone, left):
    table = measured(table_of(pods), 0.9, 0.9, 0.9, 0.9, pods=pods)
    for _ in range(gone):
        table.add_usage(0, POD, (), sign=-1)
    np.testing.assert_allclose(used_shares(table, ROWS)[:4, 0], left)


@pytest.mark.parametrize("factor", [1e3, 1e300, float("inf"), float("nan"), -1.0])
def test_a_share_that_cannot_be_is_bounded(factor):
    table = measured(table_of(), 0.3 * factor, 0.3, 0.0, 0.0)
    load = node_load(table, ROWS)
    counts = 0 < factor < float("inf")  # else nobody measured it
    assert load == pytest.approx([0.65 if counts else 0.35])


def test_a_node_without_room_to_its_name_is_no_division_by_zero():
    table = NodeTable(1)
    table.upsert(make_node("n").allocatable(cpu="0", memory="0", pods="0").node())
    with np.errstate(all="raise"):
        assert node_load(measured(table, 0.2, 0.4, 0.0, 0.0, pods=0), ROWS, PARTS)[0] < 1


def test_another_machine_of_the_name_and_a_row_that_is_used_again_know_no_measurement():
    table = measured(table_of(), 0.9, 0.9, 0.9, 0.9)
    table.remove("n0")
    assert not table.use
    assert table.upsert(make_node("other").allocatable(cpu="10", memory="10Gi", pods="100").node()) == 0
    assert node_load(table, ROWS).tolist() == [0.0]


def test_copies_of_rows_and_more_rows_keep_what_was_measured():
    table = measured(table_of(nodes=3), 0.1, 0.1, 0.0, 0.0, row=1)
    copies = table.with_copies(np.array([1, 0, 1]), np.array([0, 0, 1]), POD)
    np.testing.assert_allclose(node_load(copies, np.arange(3)), [0.1, 0.4, 0.2])
    for number in range(200):
        table.upsert(make_node(f"more-{number}").node())
    assert node_load(table, np.array([1])) == pytest.approx([0.1])


def test_a_sample_as_another_release_tells_it_is_none():
    table = measured(table_of(), 0.1, 0.1, 0.1, 0.1)
    assert table.use.put(0, [0.1] * 4, 0, [])
    assert not table.use
    assert not table.use.put(0, [0.1] * 5, 0, [0, 0])


def test_the_same_again_is_no_change():
    table = measured(table_of(), 0.1, 0.2, 0.3, 0.4)
    assert not table.use.put(0, [0.1, 0.2, 0.3, 0.4], 0, [4000, 4 * GIB])
    assert table.use.put(0, [0.1, 0.2, 0.3, 0.4], 0, [4000, 5 * GIB])


def test_weights_see_a_part_that_is_not_watched_as_the_load():
    table = measured(table_of(), 0.1, 0.2, 0.6, 0.4)
    by_default = node_features(table, POD, ROWS)[0]
    np.testing.assert_allclose(by_default[:4], [0.1, 0.2, 0.04, 0.25])
    of_disk = node_features(table, POD, ROWS, parts=("disk",))[0]
    np.testing.assert_allclose(of_disk[:4], [0.6, 0.6, 0.04, 0.7])
    assert FEATURES[:4] == ("cpu_share", "memory_share", "pods_share", "load_after")
    assert added_load(table, POD, ROWS, DEFAULT) == pytest.approx([0.1])
    assert added_load(table, POD, ROWS, ("pods",)) == pytest.approx([0.01])


def test_room_by_use_is_of_what_is_watched_and_measured():
    table = measured(table_of(nodes=3), 0.95, 0.1, 0.0, 0.0)
    measured(table, 0.85, 0.95, 0.0, 0.0, unmeasured=0b0010, row=1)
    rows = np.arange(3)
    assert room_by_use(table, POD, rows).tolist() == [False, True, True]
    assert room_by_use(table, POD, rows, ("memory", "pods")).tolist() == [True] * 3
    assert room_by_use(table, POD, rows, ("pods",)).tolist() == [True] * 3
