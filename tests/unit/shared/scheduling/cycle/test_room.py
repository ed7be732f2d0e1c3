"""How many pods of a class nodes have room for: one count for lone pods and for gangs."""

from __future__ import annotations

import numpy as np

from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.room import places, room_for
from shared.scheduling.groups.placing import capacity
from shared.scheduling.state.cluster_state import ClusterState
from tests.builders import make_node, make_pod


def test_amounts_ports_and_whole_devices_count() -> None:
    state = ClusterState()
    state.upsert_node(make_node("n0").allocatable(cpu="8").gpus(4).node())
    for number in range(3):  # a share on each of three devices: what is left of them is no whole one
        pod = make_pod(f"share{number}").cpu("1").gpu_milli(600).pod()
        state.assume(pod, "n0", 0.0, devices=(number,))
    mask = np.ones(1, np.bool_)
    assert room_for(state.table, make_pod().cpu("2").pod().pod_class, mask) == 2
    assert room_for(state.table, make_pod().cpu("1").port(80).pod().pod_class, mask) == 1
    whole = make_pod("whole").cpu("1").gpu_milli(1000).pod()
    assert room_for(state.table, whole.pod_class, mask) == 1
    assert capacity(state, FeasibilityCache(state.table), whole, 5) == 1


def test_nodes_that_are_too_small_take_nobody() -> None:
    state = ClusterState()
    for name, cpu in (("small", "1"), ("large", "5")):
        state.upsert_node(make_node(name).allocatable(cpu=cpu).node())
    pod_class = make_pod().cpu("2").pod().pod_class
    assert places(state.table, pod_class, state.table.live_rows()).tolist() == [0, 2]
    assert places(state.table, pod_class, state.table.live_rows(), singly=True).tolist() == [0, 1]
    other = make_pod().request(**{"example.com/fpga": "1"}).pod().pod_class
    assert places(state.table, other, state.table.live_rows()).tolist() == [0, 0]
