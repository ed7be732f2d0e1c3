"""Where a pending pod may go from where, what it tells of its way, and what must hold in the queue."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from shared.errors import InvalidTransition
from shared.scheduling.places import TRANSITIONS, ClusterEvent, OwnEvent, Place
from shared.scheduling.queue import PodQueue
from shared.scheduling.story import Story
from tests.builders import make_pod


def queue_with_all_places() -> PodQueue:
    """``active``, ``backoff``, ``parked`` and ``flying``, each where its name says."""
    queue = PodQueue()
    for name in ("backoff", "parked", "flying"):
        queue.add(make_pod(name).pod(), 0.0)
        queue.pop(1, 0.0)
    queue.retry("uid-backoff", 0.0)
    queue.park("uid-parked", {"NodeResourcesFit"}, 0.0)
    queue.add(make_pod("active").pod(), 0.0)
    return queue


def test_an_illegal_move_raises_with_the_pods_story() -> None:
    queue = queue_with_all_places()
    with pytest.raises(InvalidTransition) as caught:
        queue._activate(queue.entries["uid-flying"], 1.0, ClusterEvent.NODE_ADDED)
    error = caught.value
    assert (error.uid, error.start, error.finish, error.cause) == ("uid-flying", "in_flight", "active", "node_added")
    assert "active -> in_flight (taken)" in str(error)
    assert queue.entries["uid-flying"].place is Place.IN_FLIGHT
    assert list(queue.validate()) == []


def test_every_place_is_reached_and_left_and_every_cause_leads_somewhere() -> None:
    moves = {(start, finish) for ends in TRANSITIONS.values() for start in ends for finish in ends[start]}
    assert {start for start, _ in moves} == {finish for _, finish in moves} == set(Place)
    assert TRANSITIONS.keys() == {None, *OwnEvent, *ClusterEvent}


def test_what_is_given_back_and_is_not_in_flight_stays_where_it_is() -> None:
    queue = queue_with_all_places()
    before = queue.count()
    for uid in queue.entries.keys() - {"uid-flying"}:
        queue.retry(uid, 1.0)
        queue.park(uid, {"NodeAffinity"}, 1.0)
        queue.hold(uid, {"NodeAffinity"}, 1.0)
    assert queue.count() == before


def test_a_pod_tells_its_way_through_the_queue() -> None:
    queue = queue_with_all_places()
    queue.story.now = 2.0
    queue.wake("uid-parked", 2.0, ClusterEvent.POD_DELETED)
    queue.remove("uid-parked")
    assert queue.story.of("uid-parked") == [
        (0.0, "new -> active (seen)"),
        (0.0, "active -> in_flight (taken)"),
        (0.0, "in_flight -> unschedulable (attempt_failed)"),
        (2.0, "unschedulable -> active (pod_deleted)"),
        (2.0, "active -> not pending any more"),
    ]


def test_a_story_keeps_no_object_that_the_garbage_collector_visits_for_a_line() -> None:
    story = Story()
    before = len(gc.get_objects())
    for number in range(1000):
        story.add("a", "{} of {}", Place.ACTIVE, number)
    assert len(gc.get_objects()) < before + 100
    assert story.of("a")[-1] == (0.0, "active of 999")


def test_a_story_is_bounded_and_forgets_the_oldest_lines_first() -> None:
    story = Story(size=3)
    for number in range(5):
        story.add("a" if number % 2 else "b", "line {}", number)
    assert [text for _, text in story.of("a")] == ["line 3"]
    assert [text for _, text in story.of("b")] == ["line 2", "line 4"]


def miscount(queue: PodQueue) -> None:
    queue._count[Place.ACTIVE] += 1


def forget_the_heap(queue: PodQueue) -> None:
    queue.order.forget_active()


def forget_the_backoff(queue: PodQueue) -> None:
    queue.order.backing_off.clear()


def forget_the_group(queue: PodQueue) -> None:
    queue.waiting.discard("uid-parked")


def forget_when_it_was_parked(queue: PodQueue) -> None:
    queue._parked_at.clear()


def change_a_parked_pod(queue: PodQueue) -> None:
    queue.entries["uid-parked"].pod = make_pod("parked").cpu("3").pod()


def keep_a_group_of_nobody(queue: PodQueue) -> None:
    queue.waiting.add(make_pod("gone").pod(), 9, frozenset())


def swap_pods(queue: PodQueue) -> None:
    queue.entries["uid-active"].pod = make_pod("other").pod()


@pytest.mark.parametrize(
    ("name", "harm"),
    [
        ("queue-count", miscount),
        ("queue-heap", forget_the_heap),
        ("queue-heap", forget_the_backoff),
        ("parked", forget_the_group),
        ("parked", forget_when_it_was_parked),
        ("parked", change_a_parked_pod),
        ("parked", keep_a_group_of_nobody),
        ("queue-key", swap_pods),
    ],
)
def test_what_is_broken_in_the_queue_is_named(name: str, harm: Callable[[PodQueue], None]) -> None:
    queue = queue_with_all_places()
    assert list(queue.validate()) == []
    harm(queue)
    assert name in {problem.partition(":")[0] for problem in queue.validate()}
