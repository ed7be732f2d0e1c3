"""What was requested of a node when a measurement was taken."""

from __future__ import annotations

from services.coordinator.usage.requested import KEPT_S, SHOWN_S, RequestedThen
from shared.scheduling.state.node_table import NodeTable
from tests.builders import make_node, make_pod

POD = make_pod("p").cpu("1").memory("1Gi").pod().pod_class


def table_of(pods: int = 0) -> NodeTable:
    table = NodeTable(1)
    table.upsert(make_node("n").allocatable(cpu="100", memory="100Gi", pods="110").node())
    for _ in range(pods):
        table.add_usage(0, POD, ())
    return table


def cores(then: RequestedThen, table: NodeTable, at_s: float) -> int:
    return then.at(table, 0, at_s)[0] // 1000


def test_it_is_what_stood_there_then_less_who_had_not_started():
    table, then = table_of(), RequestedThen()
    for at_s in (0.0, 10.0, 20.0, 30.0):
        then.follow(table, at_s)
        table.add_usage(0, POD, ())
    then.follow(table, 40.0)
    bound_for = [SHOWN_S + at_s for at_s in (5.0, 9.5, 10.0, 25.0, 30.0, 99.0)]
    assert [cores(then, table, at_s) for at_s in bound_for] == [0, 0, 1, 2, 3, 4]


def test_pods_live_faster_where_the_twin_plays_faster():
    table, then = table_of(), RequestedThen(speed=10.0)
    then.follow(table, 0.0)
    table.add_usage(0, POD, ())
    then.follow(table, 10.0)
    assert [cores(then, table, at_s) for at_s in (12.9, 13.0)] == [0, 1]


def test_who_left_is_shown_no_more_though_another_came_for_him():
    """Else a pod that takes the place of one that left, and has yet to start, would be of no load."""
    table, then = table_of(3), RequestedThen()
    then.follow(table, 0.0)
    table.add_usage(0, POD, (), sign=-1)
    then.follow(table, 50.0)
    assert [cores(then, table, at_s) for at_s in (49.0, 50.0, 99.0)] == [3, 2, 2]
    table.add_usage(0, POD, ())
    then.follow(table, 50.5)
    assert [cores(then, table, at_s) for at_s in (51.0, 49.9 + SHOWN_S, 51.0 + SHOWN_S)] == [2, 2, 3]


def test_of_before_anybody_looked_it_is_what_stood_there_first_or_stands_there_now():
    table, then = table_of(3), RequestedThen()
    assert cores(then, table, 5.0) == 3
    then.follow(table, 10.0)
    table.add_usage(0, POD, ())
    then.follow(table, 20.0)
    assert cores(then, table, 5.0) == 3
    then.stop()
    assert cores(then, table, 5.0) == 4


def test_however_many_pods_come_and_go_little_is_kept():
    table, then = table_of(), RequestedThen()
    for turn in range(5000):
        table.add_usage(0, POD, (), sign=-1 if turn % 2 else 1)
        then.follow(table, turn * 0.1)
    kept = then._of["n"]
    assert len(kept) <= KEPT_S + 2
    assert kept[-1][1] == table.requested[0, 0]


def test_a_node_that_left_is_forgotten():
    table, then = table_of(1), RequestedThen()
    then.follow(table, 0.0)
    table.remove("n")
    table.upsert(make_node("other").allocatable(cpu="1", memory="1Gi", pods="9").node())
    then.follow(table, 1.0)
    assert list(then._of) == ["other"]
