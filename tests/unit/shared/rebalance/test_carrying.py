"""Nobody is evicted for whom no room is kept, every end gives room back, and what goes wrong is named and bounded."""

from __future__ import annotations

import random

import pytest
from msgspec import structs

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
    StopAsked,
    WatchLost,
)
from shared.rebalance.plan import Move


def move(name: str, batch: int = 1, source: str = "a", target: str = "b") -> Move:
    return Move(f"uid-{name}", "default", name, "default/ReplicaSet:web", source, target, 1.0, batch)


def carrying(*moves: Move) -> Carrying:
    return Carrying(moves, {m.uid: "ReplicaSet/web" for m in moves}, {m.uid for m in moves})


def came(name: str, room: Move, *, ready: bool = False) -> PodWatched:
    """A new pod of the owner has taken the move's room."""
    return PodWatched(f"uid-{name}", "default", name, "ReplicaSet/web", room.target, took=room.step, ready=ready)


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
    there.tell(came("new", first), 4.0)
    assert there.tell(RoomTold(first.step, "Succeeded", "b", "", "new"), 5.0) == []
    assert there.tell(came("new", first, ready=True), 6.0) == [Reserve(second)]
    evicted(there, second, 7.0)
    there.tell(RoomTold(second.step, "Succeeded", "b"), 9.0)
    assert there.due() == 609.0
    there.tell(came("newer", second, ready=True), 9.0)
    assert (there.over, there.stopped) == (True, "")
    assert [(past.uid, past.source, past.at_s) for past in there.past(1009.0)] == [
        ("uid-new", "a", 1002.0), ("uid-newer", "a", 1007.0)
    ]  # fmt: skip


def test_a_replacement_that_is_not_ready_begins_no_further_batch_and_stops_the_whole() -> None:
    there = carrying(move("one"), move("two", 2))
    there.start(0.0)
    evicted(there, move("one"))
    there.tell(came("new", move("one")), 2.0)
    there.tell(RoomTold("uid-one/1", "Succeeded", "b"), 3.0)
    assert there.due() == 603.0
    assert there.tick(603.0) == []
    assert "new has come, and is not Ready within 600 s" in there.stopped
    assert state_of(there, "uid-two/2") is MoveState.WAITING


def test_a_replacement_that_leaves_before_it_is_ready_stops_the_whole() -> None:
    there = carrying(move("one"), move("two", 2))
    there.start(0.0)
    evicted(there, move("one"))
    there.tell(came("new", move("one")), 2.0)
    there.tell(RoomTold("uid-one/1", "Succeeded", "b"), 3.0)
    assert there.tell(PodWatched("uid-new", "default", "new", "ReplicaSet/web", "b", gone=True), 4.0) == []
    assert "left again before it was Ready" in there.stopped


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


def reserved() -> Carrying:
    """One move that has asked for the eviction, at 1.0."""
    there = carrying(move("one"), move("two", 2))
    there.start(0.0)
    assert kinds(there.tell(RoomTold("uid-one/1", "Available", "b"), 1.0)) == ["EvictMoved"]
    return there


def test_an_eviction_without_an_answer_is_bounded_and_its_room_stays_kept() -> None:
    """The shell gives requests up; without even that the move's own time ends it, as one that may have left."""
    there = reserved()
    assert there.due() == 73.0
    assert there.tick(61.0) == []
    assert there.expected() == {"uid-one/1"}
    assert kinds(there.tick(73.0)) == ["Reserve"]
    assert "may have left" in why_of(there, "uid-one/1")
    assert there.expected() == {"uid-one/1"}
    assert [past.source for past in there.past(73.0)] == ["a"]


def test_no_try_is_begun_whose_answer_cannot_come_in_time() -> None:
    there = reserved()
    there.tell(EvictionAnswered("uid-one/1", "busy", later=True), 48.0)
    assert there.due() == 61.0
    assert kinds(there.tick(50.0)) == []
    assert GiveBack(move("one")) in there.tick(61.0)


def test_a_request_that_may_be_carried_out_yet_keeps_its_room_until_it_is_certain() -> None:
    there = reserved()
    there.tell(EvictionAnswered("uid-one/1", "no answer", later=True, unsure=True), 55.0)
    assert there.tick(61.0) == []
    assert there.past(61.0)
    gone = PodWatched("uid-one", "default", "one", "ReplicaSet/web", "a", gone=True)
    assert there.tell(gone, 70.0) == []
    assert state_of(there, "uid-one/1") is MoveState.LEAVING

    there = reserved()
    there.tell(EvictionAnswered("uid-one/1", "no answer", later=True, unsure=True), 55.0)
    assert GiveBack(move("one")) in there.tick(85.0)
    assert there.past(85.0) == ()


def test_a_refusal_after_a_try_without_an_answer_waits_until_that_one_is_certain() -> None:
    there = reserved()
    there.tell(EvictionAnswered("uid-one/1", "no answer", later=True, unsure=True), 10.0)
    assert kinds(there.tick(12.0)) == ["EvictMoved"]
    assert there.tell(EvictionAnswered("uid-one/1", "webhook says no"), 13.0) == []
    assert there.due() == 40.0
    assert GiveBack(move("one")) in there.tick(40.0)
    assert why_of(there, "uid-one/1") == "the eviction was refused: webhook says no"


def test_stopped_with_an_eviction_on_its_way_waits_for_the_answer_and_keeps_the_room() -> None:
    there = reserved()
    assert there.stop("a person") == []
    assert there.due() == 13.0
    assert there.expected() == {"uid-one/1"}
    assert there.tell(EvictionAnswered("uid-one/1"), 2.0) == []
    assert there.over
    assert there.expected() == {"uid-one/1"}
    assert [past.source for past in there.past(2.0)] == ["a"]

    there = reserved()
    there.stop("a person")
    assert there.tell(EvictionAnswered("uid-one/1", "the budget forbids it", later=True), 2.0) == [
        GiveBack(move("one"))
    ]
    assert there.past(2.0) == ()


@pytest.mark.parametrize("phase", ["Failed", "Expired", ""])
def test_room_that_ends_while_the_eviction_is_asked_is_judged_by_the_answer(phase: str) -> None:
    room = RoomTold("uid-one/1", phase, message="its node is gone")
    there = reserved()
    assert there.tell(room, 2.0) == []
    there.tell(EvictionAnswered("uid-one/1"), 3.0)
    assert "has left, and the reservation ended: its node is gone" in there.stopped
    assert len(there.past(3.0)) == 1

    there = reserved()
    there.tell(room, 2.0)
    there.tell(EvictionAnswered("uid-one/1", "no"), 3.0)
    assert why_of(there, "uid-one/1") == "the reservation ended: its node is gone"
    assert there.past(3.0) == ()


def test_a_replacement_that_comes_before_the_answer_has_come_for_its_pod() -> None:
    there = reserved()
    assert there.tell(came("new", move("one"), ready=True), 2.0) == []
    assert there.tell(RoomTold("uid-one/1", "Succeeded", "b", "", "new"), 2.0) == []
    assert there.tell(EvictionAnswered("uid-one/1"), 3.0) == [Reserve(move("two", 2))]
    assert state_of(there, "uid-one/1") is MoveState.DONE


def test_after_a_stop_nobody_of_the_batch_is_evicted_any_more() -> None:
    one, two, three = move("one"), move("two"), move("three")
    there = carrying(one, two, three)
    there.start(0.0)
    evicted(there, one)
    there.tell(RoomTold(two.step, "Available", "b"), 1.0)
    there.tell(EvictionAnswered(two.step, "busy", later=True), 1.0)
    told = there.tell(RoomTold(one.step, "Failed", "b", "its node is gone"), 2.0)
    assert {GiveBack(two).move.step, GiveBack(three).move.step} <= {item.move.step for item in told}
    assert there.tell(RoomTold(three.step, "Available", "b"), 3.0) == []
    assert there.over


def test_moves_of_one_owner_exchange_their_rooms_where_a_replacement_takes_the_other_one() -> None:
    one, two = move("one"), move("two", target="c")
    there = carrying(one, two)
    there.start(0.0)
    evicted(there, one)
    there.tell(RoomTold(two.step, "Available", "c"), 1.0)
    there.tell(EvictionAnswered(two.step, "busy", later=True), 1.5)
    there.tell(came("new", two, ready=True), 2.0)
    assert there.tell(RoomTold(two.step, "Succeeded", "c", "", "new"), 2.0) == []
    assert state_of(there, one.step) is MoveState.DONE
    assert kinds(there.tick(3.5)) == ["EvictMoved"]
    there.tell(EvictionAnswered(two.step), 4.0)
    assert there.expected() == {one.step}, "its room is the one that the other had"
    there.tell(came("newer", one, ready=True), 5.0)
    there.tell(RoomTold(one.step, "Succeeded", "b"), 5.0)
    assert there.over
    assert not there.stopped
    assert [(past.uid, past.target) for past in there.past(5.0)] == [("uid-new", "c"), ("uid-newer", "b")]


def test_a_pod_that_its_owner_makes_besides_is_not_taken_for_the_replacement() -> None:
    one = move("one")
    there = carrying(one)
    there.start(0.0)
    evicted(there, one)
    assert there.tell(PodWatched("uid-more", "default", "more", "ReplicaSet/web", "c"), 2.0) == []
    there.tell(came("new", one, ready=True), 3.0)
    there.tell(RoomTold(one.step, "Succeeded", "b"), 3.0)
    assert state_of(there, one.step) is MoveState.DONE
    assert not there.stopped


def test_a_replacement_on_the_right_node_by_other_room_has_arrived_and_its_own_is_given_back() -> None:
    """A run that was killed has left a reservation there, which the owner's next pod takes first."""
    one = move("one")
    there = carrying(one)
    there.start(0.0)
    evicted(there, one)
    assert there.tell(PodWatched("uid-new", "default", "new", "ReplicaSet/web", "b", ready=True), 2.0) == []
    due = there.due()
    assert due is not None
    assert there.tick(due) == [GiveBack(one)]
    assert state_of(there, one.step) is MoveState.DONE
    assert not there.stopped
    assert [(past.uid, past.target) for past in there.past(due)] == [("uid-new", "b")]


def test_a_move_that_fails_takes_those_with_it_that_win_nothing_without_it() -> None:
    first, second, other = (
        structs.replace(move(n, b), group=g) for n, b, g in (("a", 1, "x"), ("b", 2, "x"), ("c", 2, "y"))
    )
    there = carrying(first, second, other)
    there.start(0.0)
    assert there.tell(ReserveRefused(first.step, "no"), 1.0) == [Reserve(other)]
    assert state_of(there, second.step) is MoveState.FAILED
    assert "without it nothing is won" in why_of(there, second.step)


def test_without_the_watch_nobody_is_evicted() -> None:
    there = carrying(move("one"), move("two", 2))
    there.start(0.0)
    assert there.tell(WatchLost("pods cannot be watched"), 1.0) == [GiveBack(move("one"))]
    assert there.over
    assert there.stopped == "pods cannot be watched"


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
    assert there.tell(PodWatched("uid-new", "default", "new", "ReplicaSet/web", "c"), 3.0) == []
    assert there.due() == 23.0, "it may be another one that the owner made"
    assert there.tick(23.0) == [GiveBack(move("one"))]
    assert "was bound to c, not to b" in there.stopped
    assert there.over


def test_a_node_that_dies_with_a_move_under_way_stops_the_whole() -> None:
    there = carrying(move("one"), move("two", 2))
    there.start(0.0)
    evicted(there, move("one"))
    there.tell(RoomTold("uid-one/1", "Failed", "b", "its node is gone"), 2.0)
    assert "its node is gone" in there.stopped
    assert there.over


def test_descheduler_beside_takes_a_pod_first_and_its_room_waits_or_the_move_is_off() -> None:
    early, late = move("early"), move("late")
    there = carrying(early, late)
    there.start(0.0)
    gone = [PodWatched(one.uid, "default", one.name, "ReplicaSet/web", "a", gone=True) for one in (early, late)]
    assert there.tell(gone[0], 1.0) == [GiveBack(early)], "nobody comes to that room: it may be anybody's replacement"
    assert "it left before room was reserved" in why_of(there, early.step)
    there.tell(RoomTold(late.step, "Available", "b"), 2.0)
    there.tell(EvictionAnswered(late.step, "busy", later=True), 2.5)
    assert there.tell(gone[1], 3.0) == []
    there.tell(came("new", late, ready=True), 4.0)
    there.tell(RoomTold(late.step, "Succeeded", "b"), 4.0)
    assert state_of(there, late.step) is MoveState.DONE
    assert [past.uid for past in there.past(5.0)] == ["uid-new"], "who left by itself counts as moved too"


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
    there.tell(came("new", first, ready=True), 2.0)
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
    events: list[CarryingEvent] = [
        RoomTold(one.step, rng.choice(["Pending", "Available", "Succeeded", "Failed", "Expired", ""]), node),
        ReserveRefused(one.step, "no"),
        EvictionAnswered(one.step, rng.choice(["", "no"]), rng.random() < 0.5, rng.random() < 0.3),
        PodWatched(one.uid, "default", one.name, "ReplicaSet/web", "a", gone=rng.random() < 0.5),
        PodWatched(new, "default", new, "ReplicaSet/web", node, took, ready=rng.random() < 0.5),
    ]
    return rng.choice(events)


@pytest.mark.parametrize("seed", range(60))
def test_whatever_comes_in_whatever_order_it_ends_nobody_is_evicted_in_vain_and_room_is_given_back(seed: int) -> None:
    rng = random.Random(seed)
    moves = [move(f"p{i}", i // 3 + 1) for i in range(6)] + [move("p0", 3, "b", "c")]
    there, now = carrying(*moves), 0.0
    told = list(there.start(now))
    asked, kept, back, ended, asking = set[str](), set[str](), set[str](), set[str](), set[str]()
    while not there.over:
        for one in told:
            if isinstance(one, Reserve):
                assert one.move.step not in asked, "room is asked for once"
                asked.add(one.move.step)
            elif isinstance(one, EvictMoved):
                assert one.move.step in kept, "who is evicted has room"
            else:
                back.add(one.move.step)
                assert one.move.step not in asking, "no room is given back while an eviction may be on its way"
        now += rng.random() * 5.0
        event = any_event(rng, moves)
        if isinstance(event, RoomTold) and event.step in asked:
            if event.phase == "Available" and event.node == next(m.target for m in moves if m.step == event.step):
                kept.add(event.step)
            elif event.phase in ("Succeeded", "Failed", "Expired", ""):
                ended.add(event.step)
        if isinstance(event, ReserveRefused):
            ended.add(event.step)
        asking = {
            one.room.step
            for one in there.underway
            if one.asked and one.state is MoveState.RESERVED and one.move.step != getattr(event, "step", "")
        }
        told = [*there.tell(event, now), *there.tick(now)]
        if rng.random() < 0.02:
            told += there.stop("a person")
    back |= {one.move.step for one in told if isinstance(one, GiveBack)}
    for end in there.underway:
        assert end.move.step in back | ended | there.expected() or end.move.step not in asked, "no reservation is left"


def test_what_a_stop_cuts_short_or_was_not_begun_is_no_failure_of_its_own() -> None:
    there = carrying(move("one"), move("two"))
    there.start(0.0)
    evicted(there, move("one"))
    there.tell(StopAsked("its window has closed"), 2.0)
    assert (state_of(there, "uid-two/1"), there.ends) == (MoveState.FAILED, (0, 0))
    first = structs.replace(move("one"), group="n")
    there = carrying(first, *(structs.replace(move(f"more-{number}", 2), group="n") for number in range(4)))
    there.start(0.0)
    there.tell(ReserveRefused(first.step, "no"), 1.0)
    assert {one.state for one in there.underway} == {MoveState.FAILED}
    assert there.ends == (0, 1)
