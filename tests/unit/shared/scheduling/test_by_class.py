"""Amounts of what a device class stands for: counted on nodes that offer some, left to the class on the others."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.scheduling.cycle.conflicts import check_placement, fits, within
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.room import places
from shared.scheduling.state.cache import ClusterCache
from tests.builders import make_node, make_pod

RESOURCE = "example.com/gpu"

offers = st.sampled_from([None, 0, 1, 2, 4])


@settings(max_examples=200)
@given(
    nodes=st.lists(offers, min_size=1, max_size=5),
    bound=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=8),
    asked=st.integers(1, 3),
    by_class=st.booleans(),
)
def test_every_rule_about_amounts_says_the_same(nodes, bound, asked, by_class) -> None:
    cache = ClusterCache()
    for index, count in enumerate(nodes):
        more = {} if count is None else {RESOURCE: str(count)}
        cache.upsert_node(make_node(f"n{index}").allocatable(cpu="4", **more).node())
    used = [0] * len(nodes)
    for index, (place, count) in enumerate(bound):
        pod = make_pod(f"b{index}").cpu("100m")
        node = place % len(nodes)
        cache.observe((pod.request(**{RESOURCE: str(count)}) if count else pod).on(f"n{node}").pod())
        used[node] += count
    pod_class = make_pod().cpu("1").request(**{RESOURCE: str(asked)}).pod().pod_class
    if by_class:
        pod_class = replace(pod_class, by_class=(RESOURCE,))
    feasibility, table = FeasibilityCache(cache.table), cache.table
    for index, count in enumerate(nodes):
        row = table.row_of[f"n{index}"]
        expected = (by_class and not count) or used[index] + asked <= (count or 0)
        assert bool(feasibility.of(pod_class).mask[row]) is expected
        assert fits(feasibility, pod_class, row) is expected
        verdict = check_placement(feasibility, pod_class, f"n{index}")
        assert (verdict is None) is expected
        if verdict is not None:
            assert verdict.reasons == (f"Insufficient {RESOURCE}",)
        assert bool(places(table, pod_class, np.array([row]))[0] > 0) is expected
        table.add_usage(row, pod_class, ())
        assert within(table, pod_class, row) is expected
        table.add_usage(row, pod_class, (), sign=-1)


def test_a_message_counts_only_nodes_that_offer_too_little() -> None:
    cache = ClusterCache()
    cache.upsert_node(make_node("class").allocatable(cpu="1").node())
    cache.upsert_node(make_node("plugin").allocatable(cpu="4", **{RESOURCE: "1"}).node())
    pod_class = make_pod().cpu("2").request(**{RESOURCE: "2"}).pod().pod_class
    feasibility = FeasibilityCache(cache.table)
    marked = replace(pod_class, by_class=(RESOURCE,))
    row = cache.table.row_of["class"]
    assert feasibility.rejection(marked, row).reasons == ("Insufficient cpu",)
    assert feasibility.rejection(pod_class, row).reasons == ("Insufficient cpu", f"Insufficient {RESOURCE}")
    assert feasibility.rejection(marked, cache.table.row_of["plugin"]).reasons == (f"Insufficient {RESOURCE}",)
