"""Claims as coordinators keep them: what they come to as GPUs, and what they leave free, for policies that see it."""

from __future__ import annotations

from msgspec.structs import replace

from shared.model.devices import ClaimRef, DeviceClass, DevicePod
from shared.model.gpu_shares import DEFAULT, parse_gpu_shares
from shared.model.pod import Pod
from shared.scheduling.devices.claimed import ClaimedDevices
from shared.scheduling.state.cluster_state import ClusterState
from tests.builders import make_node, make_pod
from tests.unit.shared.scheduling.devices.builders import DRIVER, allocated, ask, claim, device, local


def scene() -> tuple[ClusterState, ClaimedDevices]:
    """Two nodes of which one has two devices."""
    state = ClusterState()
    for name in ("n0", "n1"):
        state.cache.upsert_node(make_node(name).node())
    devices = ClaimedDevices(state.table)
    state.devices = devices
    devices.put("deviceclasses", "any", DeviceClass("any"))
    devices.put("resourceslices", "n1-slice", local(device("a"), device("b"), node="n1", pool="n1"))
    return state, devices


def claiming(devices: ClaimedDevices, count: int = 1, name: str = "c") -> Pod:
    devices.put("resourceclaims", f"default/{name}", claim(ask(count=count), name=name))
    pod = make_pod(f"pod-{name}").pod()
    return replace(pod, asks=DevicePod("default", pod.name, pod.uid, (ClaimRef(name, name),)))


def test_a_policy_is_told_what_is_free_and_what_is_asked() -> None:
    state, devices = scene()
    devices.count_free(DEFAULT)
    assert state.table.claimed_free[:2] == [[], [1000, 1000]]
    pod = claiming(devices, 2)
    assert devices.described(pod).pod_class == replace(pod.pod_class, claimed=(2, 1000))
    stamp = state.table.stamp.copy()
    state.assume(pod, "n1", 0.0)
    assert state.table.claimed_free[1] == [0, 0]
    assert state.table.stamp[1] > stamp[1]
    state.forget(pod.uid)
    assert state.table.claimed_free[1] == [1000, 1000]


def test_what_others_take_counts_and_what_changes_nothing_is_not_told_again() -> None:
    state, devices = scene()
    devices.count_free(DEFAULT)
    devices.put("resourceclaims", "default/used", allocated("a", pool="n1"))
    devices.count_free(DEFAULT)
    assert state.table.claimed_free[1] == [0, 1000]
    stamp = state.table.stamp.copy()
    devices.put("resourceclaims", "default/used", allocated("a", pool="n1"))
    devices.count_free(DEFAULT)
    assert (state.table.stamp == stamp).all()
    devices.put("resourceslices", "n1-slice", local(device("a"), node="n1", pool="n1", generation=2))
    devices.count_free(DEFAULT)
    assert state.table.claimed_free[1] == [0]


def test_a_pod_is_counted_once_a_node_has_what_it_claims() -> None:
    _, devices = scene()
    devices.count_free(DEFAULT)
    devices.drop("resourceslices", "n1-slice")
    pod = claiming(devices)
    assert devices.described(pod).pod_class.claimed == (0, 0)
    devices.put("resourceslices", "n1-slice", local(device("a"), node="n1", pool="n1"))
    assert devices.described(pod).pod_class.claimed == (1, 1000)


def test_nothing_is_told_where_no_policy_sees_it_and_all_of_it_once_one_does() -> None:
    state, devices = scene()
    devices.count_free(None)
    pod = claiming(devices)
    assert state.table.claimed_free[1] == []
    assert devices.described(pod).pod_class is pod.pod_class
    devices.count_free(DEFAULT)
    assert state.table.claimed_free[1] == [1000, 1000]
    devices.count_free(parse_gpu_shares(f"{DRIVER}=500"))
    assert state.table.claimed_free[1] == [500, 500]
    assert devices.described(pod).pod_class.claimed == (1, 500)
