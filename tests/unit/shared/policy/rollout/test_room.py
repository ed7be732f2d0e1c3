"""Room: how many typical pods still fit, and what a placement takes of it, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from shared.policy.rollout.room import HALVED_AT, MOST_KNOWN, MOST_TYPICAL, Arrivals, RoomMeasure
from shared.scheduling.state.cache import ClusterCache
from tests.builders import make_node, make_pod

SMALL = make_pod().cpu("1").memory("1Gi").pod().pod_class
LARGE = make_pod().cpu("4").memory("4Gi").pod().pod_class


def cluster(*used: int) -> ClusterCache:
    """Nodes of 8 cpu and 8 GiB, with so many small pods each."""
    cache = ClusterCache()
    for index, count in enumerate(used):
        cache.upsert_node(make_node(f"n{index}").allocatable(cpu="8", memory="8Gi", pods="110").node())
        for number in range(count):
            cache.assume(f"u{index}-{number}", f"n{index}", SMALL, now=0.0)
    return cache


def test_a_small_pod_takes_room_for_a_large_one_only_where_one_still_fits():
    table = cluster(0, 3, 4).table  # fits of LARGE before: 2, 1, 1; after: 1, 1, 0; an empty cluster holds 6
    taken = RoomMeasure(table, [(LARGE.requests, 1.0)]).taken(table, SMALL, np.arange(3))
    np.testing.assert_allclose(taken, [1 / 6, 0, 1 / 6])


def test_what_no_typical_pod_could_use_costs_nothing():
    table = cluster(5, 0).table
    taken = RoomMeasure(table, [(LARGE.requests, 1.0)]).taken(table, SMALL, np.arange(2))
    np.testing.assert_allclose(taken, [0, 1 / 4])


def test_typical_pods_count_by_their_share():
    table = cluster(0, 4).table
    room = RoomMeasure(table, [(LARGE.requests, 0.25), (SMALL.requests, 0.75)])
    np.testing.assert_allclose(room.taken(table, SMALL, np.arange(2)), [0.25 / 4 + 0.75 / 16] * 2)


def test_the_number_of_pods_is_a_resource_too():
    cache = ClusterCache()
    for name, pods in (("few", "2"), ("many", "200")):
        cache.upsert_node(make_node(name).allocatable(cpu="64", memory="64Gi", pods=pods).node())
    tiny = make_pod().cpu("1m").pod().pod_class
    taken = RoomMeasure(cache.table, [(SMALL.requests, 1.0)]).taken(cache.table, tiny, np.arange(2))
    np.testing.assert_allclose(taken, [1 / 66, 1 / 66])  # two pods fit the first, and 64 cpu less a bit hold 63


def gpu(amount: int):
    return make_pod().cpu("1").gpu_milli(amount).pod().pod_class


@pytest.mark.parametrize(
    ("used", "placed", "taken"),
    [
        pytest.param([], 1000, [1 / 8, 1 / 8], id="a whole device"),
        pytest.param([500], 500, [0, 1 / 8], id="a share beside another one costs no device"),
        pytest.param([500], 600, [1 / 8, 1 / 8], id="a share that does not fit beside it does"),
    ],
)
def test_room_for_whole_gpus(used, placed, taken):
    cache = ClusterCache()
    for name in ("n0", "n1"):
        cache.upsert_node(make_node(name).allocatable(cpu="64", memory="64Gi", pods="110").gpus(4).node())
    for number, amount in enumerate(used):
        cache.assume(f"u{number}", "n0", gpu(amount), now=0.0)
    room = RoomMeasure(cache.table, [(gpu(1000).requests, 1.0)])
    np.testing.assert_allclose(room.taken(cache.table, gpu(placed), np.arange(2)), taken)


def test_without_typical_pods_the_pod_itself_is_typical():
    table = cluster(0, 7).table
    np.testing.assert_allclose(RoomMeasure(table, []).taken(table, LARGE, np.arange(1)), [1 / 4])


def test_a_typical_pod_that_would_not_fit_an_empty_cluster_counts_for_nothing():
    table = cluster(0, 0).table
    giant = make_pod().cpu("64").pod().pod_class
    room = RoomMeasure(table, [(giant.requests, 0.5), (SMALL.requests, 0.5)])
    np.testing.assert_allclose(room.taken(table, SMALL, np.arange(2)), [0.5 / 16] * 2)


def test_the_most_frequent_requests_are_typical_until_95_per_cent_are_counted():
    arrivals = Arrivals()
    for requests, count in ((SMALL.requests, 96), (LARGE.requests, 4)):
        for _ in range(count):
            arrivals.placed(requests)
    assert arrivals.typical() == [(SMALL.requests, 1.0)]


def test_arrivals_that_are_all_different_stay_bounded():
    arrivals = Arrivals()
    for number in range(3 * HALVED_AT):
        arrivals.placed((("cpu", 1 + number),))
        assert len(arrivals._counts) <= MOST_KNOWN
    assert len(arrivals.typical()) <= MOST_TYPICAL


def test_what_came_long_ago_counts_less_than_what_comes_now():
    arrivals = Arrivals()
    for requests in (LARGE.requests, SMALL.requests):
        for _ in range(HALVED_AT):
            arrivals.placed(requests)
    shares = dict(arrivals.typical())
    assert shares[SMALL.requests] > shares[LARGE.requests]
