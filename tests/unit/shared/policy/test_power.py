"""What nodes of a table draw, and what a pod adds."""

from __future__ import annotations

from math import ceil, floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.model.power import CURVE_LABEL, PUBLISHED, PWR, WATTS, NodeWatts, parse_power_curves
from shared.policy.power import REFERENCE, NodePower, node_watts
from shared.scheduling.state.cache import ClusterCache
from tests.builders import make_node, make_pod

MODEL = "conclave.io/gpu-model"
XEON = NodeWatts((15, 120), cores=32, steps=True)
OWN = parse_power_curves(
    "[nodes.old]\nwatts = [100, 300]\n[nodes.new]\nwatts = [20, 60]\noff_when_empty = true\n"
    "[gpus.G]\nidle = 30\npeak = 150\n"
)


def watts(curve: NodeWatts, used: float, cores: float, *, empty: bool = False) -> float:
    return float(node_watts(curve, np.array([used]), np.array([cores]), np.array([empty]))[0])


@given(st.integers(1, 128), st.data())
def test_packages_draw_as_the_pwr_model_counts_them(pairs, data):
    """Lettich et al.: two threads a core, 16 cores a processor; a processor is busy once any of its cores is."""
    cores = 2 * pairs
    used = data.draw(st.integers(0, 1000 * cores)) / 1000
    busy = ceil((pairs - floor((cores - used) / 2 + 1e-9)) / 16)
    assert watts(XEON, used, cores) == 15 * (ceil(pairs / 16) - busy) + 120 * busy


def test_a_curve_of_so_many_cores_is_drawn_as_often_as_a_node_has_them():
    server = PUBLISHED.node
    assert watts(server, 0, 48) == pytest.approx(2 * WATTS[0])
    assert watts(server, 24, 48) == pytest.approx(2 * WATTS[5])
    assert watts(server, 99, 48) == pytest.approx(2 * WATTS[-1])
    assert watts(server, 0, 48, empty=True) == 0


def test_a_curve_of_a_whole_node_is_its_own_however_many_cores_it_has():
    assert watts(NodeWatts((40, 100, 120)), 1, 2) == watts(NodeWatts((40, 100, 120)), 32, 64) == 100
    assert watts(NodeWatts((40, 120)), 0, 2, empty=True) == 40


def cluster() -> ClusterCache:
    cache = ClusterCache()
    for number, curve in enumerate(("old", "new", "old", "new")):
        node = make_node(f"n{number}").allocatable(cpu="10", memory="64Gi").label(**{CURVE_LABEL: curve, MODEL: "G"})
        cache.upsert_node(node.gpus(2).node())
    cache.observe(make_pod("there").cpu("5").gpu_milli(400).on("n2").pod())
    cache.observe(make_pod("here").cpu("5").gpu_milli(400).on("n3").pod())
    return cache


@pytest.mark.parametrize(
    ("milli", "added"),
    [
        (0, [20.0, 24.0 + 2 * 30, 20.0, 4.0]),  # new nodes that are empty are off, their GPUs too
        (300, [140.0, 204.0, 20.0, 4.0]),  # a share joins the device in use
        (700, [140.0, 204.0, 140.0, 124.0]),  # and begins another where it does not fit
        (2000, [260.0, 324.0, 260.0, 244.0]),
    ],
)
def test_a_pod_adds_its_load_the_devices_it_begins_and_a_node_that_was_off(milli, added):
    table, pod = cluster().table, make_pod().cpu("1")
    pod_class = (pod.gpu_milli(milli) if milli else pod).pod().pod_class
    power, rows = NodePower(OWN), table.live_rows()
    gpus = power.gpus(table, rows, pod_class)
    assert power.added(table, rows, 1000, gpus).tolist() == pytest.approx(added)


def test_what_is_added_is_the_difference_of_what_is_drawn_whichever_rows_are_asked_about():
    table, power = cluster().table, NodePower(OWN)
    pod_class, rows = make_pod().cpu("1").pod().pod_class, table.live_rows()
    whole = power.added(table, rows, 1000, power.gpus(table, rows, pod_class))
    for row in rows.tolist():
        one = np.array([row])
        assert power.added(table, one, 1000, power.gpus(table, one, pod_class))[0] == whole[row]


def test_a_table_of_copies_is_judged_by_the_nodes_that_are_copied():
    table, power = cluster().table, NodePower(OWN)
    power.added(table, table.live_rows(), 0)
    pod_class = make_pod().cpu("1").pod().pod_class
    copies = table.with_copies(np.array([1, 1, 0]), np.array([1, 2, 1]), pod_class)
    assert power.added(copies, np.arange(3), 1000).tolist() == pytest.approx([4.0, 4.0, 20.0])


def test_a_fork_is_judged_by_its_own_amounts_and_no_curve_is_looked_up_again(monkeypatch):
    table, power = cluster().table, NodePower(OWN)
    rows, pod_class = table.live_rows(), make_pod().cpu("1").pod().pod_class
    power.added(table, rows, 1000)
    monkeypatch.setattr(power, "_take", None)  # whoever looks up again fails
    fork = table.fork()
    fork.add_copies(np.array([1]), np.array([1]), pod_class)
    gpus = power.gpus(fork, rows, pod_class)
    assert power.added(fork, rows, 1000, gpus).tolist() == pytest.approx([20.0, 4.0, 20.0, 4.0])
    assert power.added(table, rows, 1000, power.gpus(table, rows, pod_class))[1] == pytest.approx(24.0 + 2 * 30)


def test_a_label_that_changes_changes_the_curve():
    cache, power = cluster(), NodePower(OWN)
    row = np.array([cache.table.row_of["n0"]])
    assert power.added(cache.table, row, 1000)[0] == pytest.approx(20.0)
    node = make_node("n0").allocatable(cpu="10", memory="64Gi").label(**{CURVE_LABEL: "new", MODEL: "G"}).gpus(2)
    cache.upsert_node(node.node())
    assert power.added(cache.table, row, 1000)[0] == pytest.approx(24.0)


def test_inefficiency_doubles_and_halves_against_servers_of_today_and_is_bounded():
    text = "".join(
        f"[nodes.x{times}]\nwatts = [0, {10 * REFERENCE * times}]\n" for times in (0.01, 0.5, 1, 2, 100)
    ).replace("x0.", "x0_")
    curves, cache = parse_power_curves(text), ClusterCache()
    for number, name in enumerate(("x0_01", "x0_5", "x1", "x2", "x100", "unheard-of")):
        node = make_node(f"n{number}").allocatable(cpu="10", memory="64Gi").label(**{CURVE_LABEL: name})
        cache.upsert_node(node.node())
    found = NodePower(curves).inefficiency(cache.table, cache.table.live_rows())
    assert found.tolist() == pytest.approx([-4, -1, 0, 1, 4, np.log2(WATTS[-1] / 24 / REFERENCE)])


def test_without_any_word_of_the_user_all_nodes_are_as_efficient():
    cache = ClusterCache()
    for number, cpu in enumerate(("1", "7", "128")):
        cache.upsert_node(make_node(f"n{number}").allocatable(cpu=cpu, memory="64Gi").node())
    found = NodePower().inefficiency(cache.table, cache.table.live_rows())
    assert found == pytest.approx(np.full(3, found[0]))


def test_published_servers_are_told_apart_by_what_they_draw():
    cache = ClusterCache()
    for number, model in enumerate(("T4", "P100", "A100", "V100M32")):
        node = make_node(f"n{number}").allocatable(cpu="64" if number else "96", memory="64Gi")
        cache.upsert_node(node.label(**{MODEL: model}).node())
    found = NodePower(PWR).inefficiency(cache.table, cache.table.live_rows())
    assert (np.diff(found) > 0.1).all()
