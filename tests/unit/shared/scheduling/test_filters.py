"""Filters: one rule for vector and scalar, incremental equals fresh, and the messages users read."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.scheduling.cycle.conflicts import NODE_GONE, check_placement, fits
from shared.scheduling.cycle.feasibility import FEWEST_CLASSES, FeasibilityCache, unavailable_message
from shared.scheduling.filters.static import CORDONED, DRAINED
from shared.scheduling.state.cache import ClusterCache
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod

node_shapes = st.builds(
    lambda cpu, gpus, zone, taint, cordon: (cpu, gpus, zone, taint, cordon),
    st.sampled_from(["500m", "1", "2"]),
    st.integers(0, 2),
    st.sampled_from(["x", "y", ""]),
    st.sampled_from(["", "NoSchedule", "PreferNoSchedule", "NoExecute"]),
    st.booleans(),
)
pod_shapes = st.builds(
    lambda cpu, milli, zone, port, tolerate: (cpu, milli, zone, port, tolerate),
    st.sampled_from(["0", "300m", "900m"]),
    st.sampled_from([0, 400, 1000, 2000]),
    st.sampled_from(["", "x"]),
    st.sampled_from([0, 80]),
    st.booleans(),
)


def build_node(name: str, shape: tuple[str, int, str, str, bool]) -> NodeBuilder:
    cpu, gpus, zone, taint, cordon = shape
    node = make_node(name).allocatable(cpu=cpu, pods="3").gpus(gpus)
    if zone:
        node.label(zone=zone)
    if taint:
        node.taint("k", taint)
    return node.cordon() if cordon else node


def build_pod(name: str, shape: tuple[str, int, str, int, bool]) -> PodBuilder:
    cpu, milli, zone, port, tolerate = shape
    pod = make_pod(name).cpu(cpu).gpu_milli(milli)
    if zone:
        pod.select(zone=zone)
    if port:
        pod.port(port)
    return pod.tolerate(operator="Exists") if tolerate else pod


@settings(max_examples=150)
@given(st.lists(node_shapes, min_size=1, max_size=6), st.lists(pod_shapes, max_size=8), pod_shapes, st.data())
def test_vector_scalar_and_incremental_verdicts_agree(nodes, bound, incoming, data) -> None:
    cache = ClusterCache()
    for index, shape in enumerate(nodes):
        cache.upsert_node(build_node(f"n{index}", shape).node())
    feasibility = FeasibilityCache(cache.table)
    pod_class = build_pod("incoming", incoming).pod().pod_class
    feasibility.of(pod_class)
    for index, shape in enumerate(bound):
        node = data.draw(st.integers(0, len(nodes) - 1))
        cache.observe(build_pod(f"b{index}", shape).on(f"n{node}").pod())
        if data.draw(st.booleans()):
            feasibility.of(pod_class)
    changed = data.draw(st.integers(0, len(nodes) - 1))
    cache.upsert_node(build_node(f"n{changed}", data.draw(node_shapes)).node())
    entry, fresh = feasibility.of(pod_class), FeasibilityCache(cache.table).of(pod_class)
    assert entry.mask.tolist() == fresh.mask.tolist()
    for row in cache.table.live_rows().tolist():
        assert bool(entry.mask[row]) == bool(entry.static_mask[row] and fits(feasibility, pod_class, row))
        verdict = check_placement(feasibility, pod_class, cache.table.names[row])
        assert (verdict is None) == bool(entry.mask[row])


def test_a_node_that_does_not_exist_takes_nothing() -> None:
    cache = ClusterCache()
    assert check_placement(FeasibilityCache(cache.table), make_pod().pod().pod_class, "ghost") is NODE_GONE


def test_a_removed_node_takes_nothing_and_its_row_is_reused_clean() -> None:
    cache = ClusterCache()
    cache.upsert_node(make_node("a").label(zone="x").taint("k", "NoSchedule").cordon().node())
    feasibility, pod_class = FeasibilityCache(cache.table), make_pod().select(zone="x").pod().pod_class
    assert not feasibility.of(pod_class).mask.any()
    cache.remove_node("a")
    cache.upsert_node(make_node("b").node())
    assert not feasibility.of(pod_class).mask.any()
    assert feasibility.of(make_pod().pod().pod_class).mask.tolist() == [True]


def test_the_message_counts_each_reason_as_kube_scheduler_does() -> None:
    cache = ClusterCache()
    for name in "abc":
        cache.upsert_node(make_node(name).allocatable(cpu="1", memory="1Gi").node())
    cache.upsert_node(make_node("d").cordon().node())
    diagnosis = FeasibilityCache(cache.table).diagnosis(make_pod().cpu("2").memory("2Gi").pod().pod_class)
    assert diagnosis.plugins == {"NodeUnschedulable", "NodeResourcesFit"}
    assert unavailable_message(diagnosis.nodes, diagnosis.reasons) == (
        "0/4 nodes are available: 1 node(s) were unschedulable, 3 Insufficient cpu, 3 Insufficient memory."
    )


def test_nodes_that_are_drained_alone_are_counted_apart_from_cordoned_ones() -> None:
    cache = ClusterCache()
    cache.upsert_node(make_node("cordoned").cordon().node())
    cache.upsert_node(replace(make_node("both").cordon().node(), drained="ann: disk"))
    for name, by in (("one", "ann: disk"), ("other", "bob")):
        cache.upsert_node(replace(make_node(name).node(), drained=by))
    feasibility, pod_class = FeasibilityCache(cache.table), make_pod().pod().pod_class
    diagnosis = feasibility.diagnosis(pod_class)
    assert diagnosis.plugins == {"NodeUnschedulable"}
    assert unavailable_message(diagnosis.nodes, diagnosis.reasons) == (
        "0/4 nodes are available: 2 node(s) were drained from scheduling by Conclave, 2 node(s) were unschedulable."
    )
    for name, row in cache.table.row_of.items():
        rejected = feasibility.rejection(pod_class, row)
        assert rejected is not None
        assert rejected.reasons == (CORDONED if name in ("cordoned", "both") else DRAINED,)
    cache.upsert_node(make_node("one").cordon().node())
    cache.upsert_node(make_node("other").node())
    assert feasibility.diagnosis(pod_class).reasons == {CORDONED: 3}


def test_a_host_port_on_any_address_conflicts_with_the_same_port_on_one() -> None:
    cache = ClusterCache()
    cache.upsert_node(make_node("a").node())
    cache.observe(make_pod("one").port(80, ip="10.0.0.1").on("a").pod())
    feasibility = FeasibilityCache(cache.table)
    assert not feasibility.of(make_pod().port(80).pod().pod_class).mask[0]
    assert feasibility.of(make_pod().port(80, ip="10.0.0.2").pod().pod_class).mask[0]
    assert feasibility.of(make_pod().port(80, protocol="UDP").pod().pod_class).mask[0]


def test_more_classes_than_the_limit_forget_the_oldest_only() -> None:
    cache = ClusterCache()
    cache.upsert_node(make_node("a").node())
    feasibility = FeasibilityCache(cache.table, cache_bytes=0)
    for millis in range(1, FEWEST_CLASSES + 2):
        assert feasibility.of(make_pod().cpu(f"{millis}m").pod().pod_class).mask.all()
    assert len(feasibility._classes) == FEWEST_CLASSES
    assert np.all(feasibility.of(make_pod().cpu("1m").pod().pod_class).mask)
