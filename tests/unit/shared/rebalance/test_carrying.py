"""Nobody is evicted for whom no room is kept, every end gives room back, and what goes wrong is named and bounded."""

from __future__ import annotations

import random

import pytest

from shared.rebalance.carrying import (
    Carrying,
    CarryingEvent,
    EvictionAnswered,
    EvictMoved,
    GiveBack,
    MoveState,
    PodWatched,
    Reserve,
    ReserveRefused,
    RoomTold,
)
from shared.rebalance.plan import Move


def move(name: str, batch: int = 1, source: str = "a", target: str = "b") -> Move:
    return Move(f"uid-{name}", "default", name, "default/ReplicaSet:web", source, target, 1.0, batch)


def carrying(*moves: Move) -> Carrying:
    return Carrying(moves, {m.uid: "ReplicaSet/web" for m in moves}, {m.uid for m in moves})


def kinds(instructions: object) -> list[str]:
    return [type(one).__name__ for one in instructions]  # type: ignore[attr-defined]


def state_of(there: Carrying, step: str) -> MoveState:
    return next(one.state for one in there.underway if one.move.step == step)


def why_of(there: Carrying, step: str) -> str:
    return next(one.why for one in there.underway if one.move.step == step)


def evicted(there: Carrying, one: Move, now: float = 1.0) -> None:
    """The move as far as its pod has left."""
    assert EvictMoved(one, one.uid, one.name) in there.tell(RoomTold(one.step, "Available", one.target), now)
    there.tell(EvictionAnswered(one.step), now)


def test_a_move_is_reserved_then_evicted_then_seen_to_come_and_then_the_next_batch_begins() -> None:
    first, second = move("one"), move("two", 2)
    there = carrying(first, second)
    assert there.start(0.0) == [Reserve(first)]
    assert there.tell(RoomTold(first.step, "Pending", "", "it waits"), 1.0) == []
    assert there.tell(RoomTold(first.step, "Available", "b"), 2.0) == [EvictMoved(first, first.uid, "one")]
    assert there.tell(EvictionAnswered(first.step), 3.0) == []
    assert not there.over
    there.tell(PodWatched("uid-new", "default", "new", "ReplicaSet/web", "b", took=first.step), 4.0)
    assert there.tell(RoomTold(first.step, "Succeeded", "b", "", "new"), 5.0) == [Reserve(second)]
    evicted(there, second)
    there.tell(RoomTold(second.step, "Succeeded", "b"), 9.0)
    assert there.over
    assert not there.stopped
    assert [(past.uid, past.source) for past in there.past(9.0)] == [("uid-new", "a"), ("", "a")]


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (RoomTold("uid-one/1", "Failed", "", "no node takes it"), "the reservation ended: no node takes it"),
        (RoomTold("uid-one/1", "Expired"), "the reservation ended: expired"),
        (RoomTold("uid-one/1", ""), "the reservation ended: it was deleted"),
        (RoomTold("uid-one/1", "Available", "elsewhere"), "room was reserved on elsewhere, not on b"),
        (RoomTold("uid-one/1", "Succeeded", "b", "", "thief"), "its room was taken by thief before it left"),
        (ReserveRefused("uid-one/1", "no such kind"), "no room was reserved: no such kind"),
        (PodWatched("uid-one", "default", "one", "ReplicaSet/web", gone=True), "it left before room was reserved"),
    ],
)
def test_a_reservation_that_is_not_obtained_evicts_nobody(event: object, why: str) -> None:
    there = carrying(move("one"))
    there.start(0.0)
    told = there.tell(event, 1.0)  # type: ignore[arg-type]
    assert "EvictMoved" not in kinds(told)
    assert why_of(there, "uid-one/1") == why
    assert there.over


def test_room_that_does_not_come_in_time_is_given_back_and_nobody_is_evicted() -> None:
    there = carrying(move("one"))
    there.start(0.0)
    there.tell(RoomTold("uid-one/1", "Pending", "", "0/3 nodes are available"), 1.0)
    assert there.due() == 30.0
    assert there.tick(30.0) == [GiveBack(move("one"))]
    assert "within 30 s (0/3 nodes are available)" in why_of(there, "uid-one/1")


def test_a_budget_is_asked_again_until_its_time_is_over() -> None:
    there = carrying(move("one"))
    there.start(0.0)
    there.tell(RoomTold("uid-one/1", "Available", "b"), 1.0)
    assert there.tell(EvictionAnswered("uid-one/1", "the budget forbids it", later=True), 2.0) == []
    assert there.tick(there.due() or 0.0) == [EvictMoved(move("one"), "uid-one", "one")]
    there.tell(EvictionAnswered("uid-one/1", "the budget forbids it", later=True), 60.0)
    assert there.tick(61.0) == [GiveBack(move("one"))]
    assert why_of(there, "uid-one/1") == "it was not evicted within 60 s (the budget forbids it)"


def test_a_webhook_that_refuses_keeps_the_pod_and_gives_its_room_back() -> None:
    there = carrying(move("one"))
    there.start(0.0)
    there.tell(RoomTold("uid-one/1", "Available", "b"), 1.0)
    assert there.tell(EvictionAnswered("uid-one/1", "webhook says no"), 2.0) == [GiveBack(move("one"))]
    assert why_of(there, "uid-one/1") == "the eviction was refused: webhook says no"


def test_an_eviction_without_an_answer_is_bounded() -> None:
    """A webhook that hangs: the shell gives the request up; without even that the move's own time ends it."""
    there = carrying(move("one"))
    there.start(0.0)
    there.tell(RoomTold("uid-one/1", "Available", "b"), 1.0)
    assert there.due() == 61.0
    assert there.tick(61.0) == [GiveBack(move("one"))]


def test_a_replacement_that_never_comes_stops_the_whole_and_is_named() -> None:
    there = carrying(move("one"), move("two", 2))
    there.start(0.0)
    evicted(there, move("one"))
    assert there.tick(there.due() or 0.0) == [GiveBack(move("one"))]
    assert "is its owner scaled down" in there.stopped
    assert state_of(there, "uid-two/2") is MoveState.WAITING
    assert there.over


def test_a_replacement_that_is_bound_elsewhere_stops_the_whole_and_is_named() -> None:
    there = carrying(move("one"), move("two", 2))
    there.start(0.0)
    evicted(there, move("one"))
    other = PodWatched("uid-x", "default", "x", "ReplicaSet/other", "c")
    assert there.tell(other, 2.0) == []
    assert there.tell(PodWatched("uid-new", "default", "new", "ReplicaSet/web", "c"), 3.0) == [GiveBack(move("one"))]
    assert "was bound to c, not to b" in there.stopped
    assert there.over


def test_a_node_that_dies_with_a_move_under_way_stops_the_whole() -> None:
    there = carrying(move("one"), move("two", 2))
    there.start(0.0)
    evicted(there, move("one"))
    there.tell(RoomTold("uid-one/1", "Failed", "b", "its node is gone"), 2.0)
    assert "its node is gone" in there.stopped
    assert there.over


def test_many_failures_end_what_was_planned_for_another_cluster() -> None:
    moves = [move(f"p{i}", i + 1) for i in range(6)]
    there = carrying(*moves)
    there.start(0.0)
    for one in moves[:3]:
        there.tell(ReserveRefused(one.step, "no"), 1.0)
    assert there.stopped == "3 of 3 moves failed"
    assert there.over


def test_a_move_over_a_third_node_goes_on_with_the_replacement() -> None:
    first, second = move("one", 1, "a", "free"), move("one", 2, "free", "b")
    there = carrying(first, second)
    there.start(0.0)
    evicted(there, first)
    there.tell(PodWatched("uid-new", "default", "new", "ReplicaSet/web", "free", took=first.step), 2.0)
    assert there.tell(RoomTold(first.step, "Succeeded", "free"), 3.0) == [Reserve(second)]
    assert there.tell(RoomTold(first.step, "Succeeded", "free"), 3.5) == []
    assert there.tell(RoomTold(second.step, "Available", "b"), 4.0) == [EvictMoved(second, "uid-new", "new")]


def test_stopped_from_outside_who_has_not_left_stays_and_who_has_keeps_its_room() -> None:
    there = carrying(move("one"), move("two"), move("three", 2))
    there.start(0.0)
    evicted(there, move("one"))
    assert there.expected() == {"uid-one/1"}
    assert there.stop("a person") == [GiveBack(move("two"))]
    assert there.over
    assert [past.uid for past in there.past(1.0)] == [""]


def test_an_event_told_again_changes_nothing() -> None:
    there = carrying(move("one"))
    there.start(0.0)
    there.tell(RoomTold("uid-one/1", "Available", "b"), 1.0)
    assert there.tell(RoomTold("uid-one/1", "Available", "b"), 1.0) == []
    there.tell(EvictionAnswered("uid-one/1"), 2.0)
    assert there.tell(EvictionAnswered("uid-one/1"), 2.0) == []
    gone = PodWatched("uid-one", "default", "one", "ReplicaSet/web", "a", gone=True)
    assert there.tell(gone, 3.0) == []


def any_event(rng: random.Random, moves: list[Move]) -> CarryingEvent:
    one = rng.choice(moves)
    new = f"uid-new-{rng.randrange(8)}"
    node, took = rng.choice(["", "b", "c"]), rng.choice(["", one.step])
    return rng.choice(
        [
            RoomTold(one.step, rng.choice(["Pending", "Available", "Succeeded", "Failed", "Expired", ""]), node),
            ReserveRefused(one.step, "no"),
            EvictionAnswered(one.step, rng.choice(["", "no"]), rng.random() < 0.5),
            PodWatched(one.uid, "default", one.name, "ReplicaSet/web", "a", gone=rng.random() < 0.5),
            PodWatched(new, "default", new, "ReplicaSet/web", node, took),
        ]
    )


@pytest.mark.parametrize("seed", range(60))
def test_whatever_comes_in_whatever_order_it_ends_nobody_is_evicted_in_vain_and_room_is_given_back(seed: int) -> None:
    rng = random.Random(seed)
    moves = [move(f"p{i}", i // 3 + 1) for i in range(6)] + [move("p0", 3, "b", "c")]
    there, now = carrying(*moves), 0.0
    told = list(there.start(now))
    asked, kept, back, ended = set[str](), set[str](), set[str](), set[str]()
    while not there.over:
        for one in told:
            if isinstance(one, Reserve):
                assert one.move.step not in asked, "room is asked for once"
                asked.add(one.move.step)
            elif isinstance(one, EvictMoved):
                assert one.move.step in kept, "who is evicted has room"
            else:
                back.add(one.move.step)
        now += rng.random() * 5.0
        event = any_event(rng, moves)
        if isinstance(event, RoomTold) and event.step in asked:
            if event.phase == "Available" and event.node == next(m.target for m in moves if m.step == event.step):
                kept.add(event.step)
            elif event.phase in ("Succeeded", "Failed", "Expired", ""):
                ended.add(event.step)
        if isinstance(event, ReserveRefused):
            ended.add(event.step)
        told = [*there.tell(event, now), *there.tick(now)]
    back |= {one.move.step for one in told if isinstance(one, GiveBack)}
    for one in there.underway:
        assert one.move.step in back | ended or one.move.step not in asked, "no reservation is left"
