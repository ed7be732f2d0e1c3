"""The audit of queues: no bind takes a queue, or one above it, over its maximum."""

from __future__ import annotations

import pytest

from tests.unit.lab.audit.group_history import ROOM, GroupHistory


def small_queue(**spec) -> GroupHistory:
    """One core for the namespace ``default``; two pods ask for 600m each."""
    history = GroupHistory()
    history.node("n1", ROOM).queue("team", maximum={"cpu": "1"}, namespaces=["default"], **spec).wait(10)
    history.pod("a", {"cpu": "600m"}).pod("b", {"cpu": "600m"})
    return history


def test_a_queue_within_its_maximum_is_well():
    history = small_queue().bound(["a"])
    history.unschedulable("b")
    assert history.report().ok


def test_a_bind_that_takes_a_queue_over_its_maximum_is_a_violation():
    report = small_queue().bound(["a", "b"]).report()
    assert report.units.over_quota == 1
    assert not report.ok
    assert "queue team to 1200 of cpu, at most 1000" in " ".join(report.examples)


def test_what_finished_or_left_is_not_used_any_more():
    history = small_queue().bound(["a"])
    history.phase("a", "Succeeded")
    assert history.bound(["b"]).report().ok


def test_a_resource_that_the_maximum_does_not_name_is_not_limited():
    history = small_queue()
    history.queue("team", maximum={"memory": "1Gi"}, namespaces=["default"]).wait(10)
    assert history.bound(["a", "b"]).report().ok


def test_the_maximum_of_a_parent_holds_for_its_children_together():
    history = GroupHistory()
    history.node("n1", ROOM).queue("top", maximum={"cpu": "1"}).queue("left", parent="top").queue("right", parent="top")
    history.wait(10)
    for name, queue in (("a", "left"), ("b", "right")):
        history.pod(name, {"cpu": "600m"})
        history.changed(name, lambda pod, queue=queue: pod["metadata"].update(labels={"conclave.io/queue": queue}))
    assert history.bound(["a", "b"]).report().units.over_quota == 1


@pytest.mark.parametrize("by", ["pod", "group", "namespace"])
def test_a_label_decides_before_the_group_and_the_group_before_the_namespace(by):
    history = GroupHistory()
    history.node("n1", ROOM).queue("wide", namespaces=["default"] if by != "namespace" else [])
    history.queue("narrow", maximum={"cpu": "500m"}, namespaces=["default"] if by == "namespace" else []).wait(10)
    labels = {"conclave.io/queue": "narrow"}
    history.group("g", 1, labels=labels if by == "group" else {})
    history.members("a", requests={"cpu": "600m"}, labels=labels if by == "pod" else None)
    assert history.bound(["a"]).report().units.over_quota == 1


def test_members_that_run_count_where_their_group_names_another_queue():
    history = GroupHistory()
    for name in ("left", "right"):
        history.queue(name, maximum={"cpu": "1"})
    history.node("n1", ROOM).group("g", 1, labels={"conclave.io/queue": "left"}).wait(10)
    history.members("a", requests={"cpu": "600m"}).bound(["a"])
    history.group("g", 1, labels={"conclave.io/queue": "right"}).wait(10)
    for name, queue in (("b", "left"), ("c", "right")):
        history.pod(name, {"cpu": "600m"})
        history.changed(name, lambda pod, queue=queue: pod["metadata"].update(labels={"conclave.io/queue": queue}))
    report = history.bound(["b", "c"]).report()
    assert report.units.over_quota == 1
    assert "queue right" in " ".join(report.examples)


def test_of_two_queues_that_name_one_namespace_the_first_by_name_has_its_pods():
    history = GroupHistory()
    history.node("n1", ROOM).queue("wide", namespaces=["default"])
    history.queue("narrow", maximum={"cpu": "500m"}, namespaces=["default"]).wait(10)
    assert history.pod("a", {"cpu": "600m"}).bound(["a"]).report().units.over_quota == 1


def test_a_maximum_that_was_lowered_only_just_may_not_have_been_seen():
    history = small_queue()
    history.queue("team", maximum={"cpu": "2"}, namespaces=["default"]).wait(10)
    history.queue("team", maximum={"cpu": "1"}, namespaces=["default"])
    assert history.bound(["a", "b"]).report().units.over_quota == 0


def test_lowering_a_maximum_below_use_is_no_violation_until_something_is_bound():
    history = small_queue().bound(["a"])
    history.queue("team", maximum={"cpu": "100m"}, namespaces=["default"]).wait(10)
    history.unschedulable("b")
    assert history.report().ok


def test_a_pod_that_its_queue_holds_back_is_unschedulable_and_not_lost():
    history = small_queue().bound(["a"])
    history.unschedulable("b")
    assert history.report().pods_unschedulable == 1


def test_a_pod_that_no_queue_holds_back_is_lost():
    history = small_queue()
    history.queue("team", maximum={"cpu": "2"}, namespaces=["default"]).wait(10)
    history.bound(["a"]).unschedulable("b")
    assert history.report().lost == 1


def test_a_pod_that_names_a_queue_that_is_not_there_waits():
    history = GroupHistory()
    history.node("n1", ROOM).pod("a")
    history.changed("a", lambda pod: pod["metadata"].update(labels={"conclave.io/queue": "nowhere"})).unschedulable("a")
    assert history.report().ok


def test_what_was_borrowed_may_be_taken_back_by_eviction_where_reclaim_is_on():
    history = small_queue(guaranteed={"cpu": "100m"}, reclaim={"enabled": True}).bound(["a"])
    history.evicted("a").unschedulable("b")
    units = history.report().units
    assert units.evictions_unjust == 0


def test_what_is_guaranteed_and_may_be_borrowed_is_a_maximum_too():
    history = small_queue()
    history.queue("team", guaranteed={"cpu": "600m"}, borrowingLimit={"cpu": "100m"}, namespaces=["default"]).wait(10)
    assert history.bound(["a", "b"]).report().units.over_quota == 1


def test_a_pod_that_makes_room_within_its_queue_may_be_evicted():
    history = small_queue(reclaim={"withinQueue": "LowerPriority"}).bound(["a"])
    history.evicted("a").unschedulable("b")
    assert history.report().units.evictions_unjust == 0


def test_it_may_not_where_reclaim_is_off():
    history = small_queue(guaranteed={"cpu": "100m"}).bound(["a"])
    history.evicted("a").unschedulable("b")
    assert history.report().units.evictions_unjust == 1


@pytest.mark.parametrize(
    "broken",
    [
        lambda history: history.queue("team", parent="nobody", namespaces=["default"]),
        lambda history: history.queue("team", parent="top", namespaces=["default"]).queue("top", parent="team"),
        lambda history: history.queue("team", maximum={"cpu": "1"}, guaranteed={"cpu": "2"}, namespaces=["default"]),
        lambda history: [
            history.queue(name, parent=parent, namespaces=["default"] if name == "team" else [])
            for name, parent in (("a", ""), ("b", "a"), ("c", "b"), ("d", "c"), ("team", "d"))
        ],
    ],
    ids=["no parent", "loop", "guaranteed more than it may have", "too deep"],
)
@pytest.mark.parametrize("told", [True, False])
def test_a_pod_in_a_queue_that_cannot_be_used_waits_and_is_told(broken, told):
    history = GroupHistory()
    history.node("n1", ROOM)
    broken(history)
    history.pod("a", {"cpu": "600m"})
    if told:
        history.unschedulable("a")
    assert history.report().ok is told


def test_the_fourth_level_of_queues_is_not_too_deep():
    history = GroupHistory()
    history.node("n1", ROOM)
    for name, parent in (("a", ""), ("b", "a"), ("c", "b"), ("team", "c")):
        history.queue(name, parent=parent, namespaces=["default"] if name == "team" else [])
    history.pod("a", {"cpu": "600m"}).unschedulable("a")
    assert history.report().lost == 1
