"""Nobody is asked to leave before there is room for everybody; what goes wrong is named, bounded, and ends it."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from msgspec import structs

from shared.rebalance.carrying import EvictionAnswered, ReserveRefused, RoomTold, WatchLost
from shared.rebalance.draining.draining import (
    AskOwner,
    Departure,
    DrainEvent,
    Draining,
    DrainInstruction,
    EvictLeaver,
    LeaverState,
    OwnerWants,
    PodShown,
    ReturnRoom,
    RoomUnfit,
    SeekRoom,
)
from shared.rebalance.draining.leavers import Leaver

OWNER = ("apps/v1", "ReplicaSet", "web", "uid-web")


def leaver(name: str, copies: int = 8, **more: object) -> Leaver:
    found = Leaver(f"uid-{name}", "default", name, owner=OWNER, copies=copies, replaced=True)
    return structs.replace(found, **more)


class Drain:
    """A drain of the node ``a``, told in short."""

    def __init__(self, *leavers: Leaver, partial: bool = False) -> None:
        self.core = Draining("a", leavers, {one.uid for one in leavers}, partial=partial)
        self.now, self.evicted, self.returned, self.sought = 0.0, list[str](), list[str](), list[str]()
        self.asked_owners = 0
        self.standing: set[str] = set()
        """Steps of the rooms that were told to be kept, and that nobody took since."""
        self._take(self.core.start(0.0))

    def _take(self, out: Sequence[DrainInstruction]) -> None:
        for one in out:
            match one:
                case EvictLeaver(who):
                    room = self.of(who.name)
                    assert self.core.begun
                    assert room.step in self.standing or not who.replaced, "evicted without room"
                    self.evicted.append(who.name)
                case ReturnRoom(step):
                    self.returned.append(step)
                    self.standing.discard(step)
                case SeekRoom(_, step):
                    self.sought.append(step)
                case AskOwner():
                    self.asked_owners += 1

    def tell(self, *events: DrainEvent) -> Drain:
        for event in events:
            match event:
                case RoomTold(step, phase, _, _, by) if phase != "Pending":
                    (self.standing.add if phase == "Available" and not by else self.standing.discard)(step)
                case PodShown(took=step) if step:
                    self.standing.discard(step)
            self._take(self.core.tell(event, self.now))
        return self

    def wait(self, seconds: float) -> Drain:
        end = self.now + seconds
        while (due := self.core.due()) <= end:
            self.now = max(self.now, due)
            self._take(self.core.tick(self.now))
            assert self.core.due() > self.now, "it is due for ever"
        self.now = end
        return self

    def of(self, name: str) -> Departure:
        return next(one for one in self.core.departures if one.leaver.name == name)

    def room(self, name: str, node: str = "b") -> Drain:
        return self.tell(RoomTold(self.of(name).step, "Available", node))

    def leaves(self, name: str) -> Drain:
        return self.tell(EvictionAnswered(f"uid-{name}"), PodShown(f"uid-{name}", "default", name, gone=True))

    def came(self, new: str, step: str = "", node: str = "b", *, ready: bool = True) -> Drain:
        return self.tell(
            PodShown(f"uid-{new}", "default", new, "ReplicaSet/web", node, took=step),
            PodShown(f"uid-{new}", "default", new, "ReplicaSet/web", node, took=step, ready=ready),
        )

    def states(self) -> dict[str, str]:
        return {one.leaver.name: one.state.value for one in self.core.departures}


def test_everybody_has_room_before_anybody_is_asked_and_rooms_are_given_back_or_used() -> None:
    there = Drain(leaver("x"), leaver("y"))
    there.room("x")
    assert there.evicted == []
    there.room("y")
    assert there.evicted == ["x", "y"]
    for name in ("x", "y"):
        step = there.of(name).step
        there.leaves(name).came(f"{name}-new", step)
    assert there.states() == {"x": "done", "y": "done"}
    assert there.core.over
    assert there.core.kept() == set()
    assert sorted(there.returned) == sorted(there.sought)  # where nobody told that they were used up


def test_where_somebody_has_no_room_nobody_is_evicted_and_who_it_is_is_said() -> None:
    there = Drain(leaver("x"), leaver("y"))
    there.room("x").tell(RoomTold(there.of("y").step, "Pending", message="0/3 nodes are available")).wait(30.0)
    assert there.evicted == []
    assert there.states() == {"x": "stays", "y": "stays"}
    assert "0/3 nodes are available" in there.of("y").why
    assert "default/y" in there.core.stopped
    assert sorted(there.returned) == ["uid-x/1", "uid-y/1"]


def test_with_partial_those_who_have_room_leave() -> None:
    there = Drain(leaver("x"), leaver("y"), partial=True)
    there.tell(ReserveRefused(there.of("y").step, "no such kind")).room("x")
    assert there.evicted == ["x"]
    there.leaves("x").came("n", "uid-x/1")
    assert there.states() == {"x": "done", "y": "stays"}


def test_room_on_the_node_itself_is_none() -> None:
    there = Drain(leaver("x")).room("x", "a")
    assert there.states() == {"x": "stays"}
    assert there.returned == ["uid-x/1"]


def test_of_a_workload_a_quarter_is_away_at_once() -> None:
    there = Drain(*(leaver(name) for name in "uvwxy"))
    for name in "uvwxy":
        there.room(name)
    assert there.evicted == ["u", "v"]
    there.leaves("u")
    assert there.evicted == ["u", "v"]
    there.came("n", "uid-u/1", ready=False)
    assert there.evicted == ["u", "v"]
    there.came("n", "uid-u/1")
    assert there.evicted == ["u", "v", "w"]


def test_who_a_budget_keeps_is_asked_again_until_the_time_is_over() -> None:
    there = Drain(leaver("x")).room("x")
    refusal = "Cannot evict pod as it would violate the pod's disruption budget."
    for count in range(1, 4):
        assert there.evicted == ["x"] * count
        there.tell(EvictionAnswered("uid-x", refusal, later=True)).wait(5.0)
    there._take(there.core.stop("--timeout 20 s is over"))
    assert there.states() == {"x": "lost"}  # one is on its way
    there = Drain(leaver("x")).room("x").tell(EvictionAnswered("uid-x", refusal, later=True))
    there._take(there.core.stop("--timeout 20 s is over"))
    assert there.states() == {"x": "stays"}
    assert refusal in there.of("x").why
    assert there.returned == ["uid-x/1"]


def test_a_webhook_that_refuses_keeps_the_others_too() -> None:
    there = Drain(*(leaver(name, 4) for name in "xy"))
    there.room("x").room("y").tell(EvictionAnswered("uid-x", "webhook says no"))
    assert there.evicted == ["x"]
    assert there.states() == {"x": "stays", "y": "stays"}
    assert "webhook says no" in there.of("x").why


def test_a_webhook_that_hangs_is_asked_again_and_its_pods_room_is_kept_where_that_ends() -> None:
    there = Drain(leaver("x")).room("x")
    for _ in range(3):
        there.tell(EvictionAnswered("uid-x", "no answer", later=True, unsure=True)).wait(5.0)
    assert there.evicted == ["x"] * 4
    there._take(there.core.stop("interrupted"))
    assert there.core.kept() == {"uid-x/1"}
    assert there.returned == []


def test_a_refusal_after_one_without_an_answer_counts_once_that_one_is_certain() -> None:
    there = Drain(leaver("x")).room("x").tell(EvictionAnswered("uid-x", "no answer", later=True, unsure=True))
    there.wait(5.0).tell(EvictionAnswered("uid-x", "webhook says no"))
    assert there.states() == {"x": "asked"}
    there.wait(30.0)
    assert there.states() == {"x": "stays"}


def test_a_room_that_is_lost_is_looked_for_again_and_not_for_ever() -> None:
    there = Drain(leaver("x"), leaver("y"))
    for number in (1, 2, 3):
        assert there.of("x").step == f"uid-x/{number}"
        there.room("x").tell(RoomTold(there.of("x").step, "Failed", message="RoomLost"))
    assert there.states()["x"] == "stays"
    assert there.evicted == []


def test_a_room_that_another_pod_took_before_it_left_is_looked_for_again() -> None:
    there = Drain(leaver("x"), leaver("y"))
    there.room("x").tell(RoomTold("uid-x/1", "Succeeded", "b", taken_by="grown"))
    assert there.of("x").step == "uid-x/2"
    there.room("x").room("y")
    assert there.evicted == ["x", "y"]


def test_replacements_of_one_owner_exchange_their_rooms() -> None:
    there = Drain(*(leaver(name, 4) for name in "xy"))
    there.room("x").room("y").leaves("x").came("n", "uid-y/1")
    assert there.states() == {"x": "done", "y": "asked"}
    there.tell(RoomTold("uid-y/1", "Succeeded", "b", taken_by="n"))
    assert there.evicted == ["x", "y"]
    assert there.returned in ([], ["uid-y/1"])
    there.leaves("y").came("m", "uid-x/1")
    assert there.states() == {"x": "done", "y": "done"}


def test_a_replacement_that_is_bound_elsewhere_counts_and_its_room_is_given_back() -> None:
    there = Drain(leaver("x")).room("x").leaves("x").came("n", node="c")
    assert there.states() == {"x": "done"}
    assert there.returned == ["uid-x/1"]
    there = Drain(leaver("x")).room("x").leaves("x").came("n", node="a")
    assert there.states() == {"x": "lost"}
    assert "came back to a" in there.of("x").why


def test_whose_room_is_lost_while_it_is_asked_is_not_asked_again_before_there_is_another() -> None:
    there = Drain(leaver("x")).room("x").tell(RoomTold("uid-x/1", "Failed", "b", "Preempted"))
    there.tell(EvictionAnswered("uid-x", "429", later=True)).wait(20.0)
    assert there.evicted == ["x"]
    assert there.states() == {"x": "seeking"}
    there.room("x")
    assert there.evicted == ["x", "x"]
    there.tell(RoomTold("uid-x/2", "Failed", "b")).tell(EvictionAnswered("uid-x", "hangs", later=True, unsure=True))
    there.wait(29.0)
    assert there.states() == {"x": "asked"}  # it may leave
    there.wait(1.0)
    assert there.states() == {"x": "seeking"}


@pytest.mark.parametrize("news", ["named", "bound"])
def test_whose_room_somebody_else_takes_does_not_leave_on_it(news: str) -> None:
    there = Drain(leaver("x", 4), leaver("y", 4)).room("x").room("y")
    if news == "named":
        there.tell(RoomTold("uid-y/1", "Available", "b", taken_by="grown"))
    there.came("grown", "uid-y/1").leaves("x").came("n", "uid-x/1")
    assert there.evicted == ["x"]
    assert there.states() == {"x": "done", "y": "seeking"}
    there.room("y")
    assert there.evicted == ["x", "y"]


def test_whose_room_does_not_do_any_more_gives_it_back_and_gets_another() -> None:
    there = Drain(leaver("x")).room("x").tell(RoomUnfit("uid-x", "spread"))
    assert there.returned == ["uid-x/1"]
    there.room("x", "c").tell(RoomUnfit("uid-x", "spread")).room("x").tell(RoomUnfit("uid-x", "spread"))
    assert there.states() == {"x": "stays"}
    assert "spread" in there.of("x").why


def test_a_replacement_that_goes_while_its_owner_is_asked_is_waited_for_anew() -> None:
    there = Drain(leaver("x")).room("x").leaves("x").wait(180.0).came("n", "uid-x/1", ready=False)
    there.tell(PodShown("uid-n", "default", "n", "ReplicaSet/web", "b", gone=True), OwnerWants("uid-x", more=True))
    there.wait(180.0)
    assert there.asked_owners == 2


def test_of_an_owner_that_is_scaled_away_no_other_pod_is_waited_for() -> None:
    there = Drain(leaver("x"), leaver("y", 4)).room("x").room("y").leaves("x")
    there.wait(180.0)
    assert there.asked_owners == 1
    there.tell(OwnerWants("uid-x", more=False))
    assert there.states()["x"] == "done"
    assert there.evicted == ["x", "y"]
    assert there.core.stopped == ""


def test_a_replacement_that_never_comes_or_is_never_ready_ends_it() -> None:
    there = Drain(leaver("x", 4), leaver("y", 4)).room("x").room("y").leaves("x").wait(180.0)
    there.tell(OwnerWants("uid-x", more=True))
    assert there.states() == {"x": "lost", "y": "stays"}
    assert there.core.kept() == {"uid-x/1"}
    there = Drain(leaver("x", 4), leaver("y", 4)).room("x").room("y").leaves("x").came("n", "uid-x/1", ready=False)
    there.wait(600.0)
    assert "not Ready" in there.of("x").why
    assert there.evicted == ["x"]


def test_the_room_of_one_whose_replacement_takes_none_is_given_back_as_it_leaves() -> None:
    there = Drain(leaver("x", takes=False)).room("x").tell(EvictionAnswered("uid-x"))
    assert there.returned == ["uid-x/1"]


def test_who_is_replaced_by_nobody_needs_no_room() -> None:
    there = Drain(leaver("bare", replaced=False))
    assert there.sought == []
    assert there.evicted == ["bare"]
    there.leaves("bare")
    assert there.core.over


def test_who_sees_nothing_evicts_nobody() -> None:
    there = Drain(leaver("x"), leaver("y")).room("x").tell(WatchLost("pods cannot be watched"))
    assert there.states() == {"x": "stays", "y": "stays"}
    assert there.evicted == []


@pytest.mark.parametrize("seed", range(25))
def test_whatever_happens_it_ends_and_no_room_is_forgotten(seed: int) -> None:
    rng = random.Random(seed)
    names = [f"p{number}" for number in range(6)]
    there = Drain(*(leaver(name, 6) for name in names), partial=rng.random() < 0.5)
    for news in range(300):
        if there.core.over:
            break
        name = rng.choice(names)
        one, uid = there.of(name), f"uid-{name}"
        what = rng.randrange(12)
        if what < 3 and one.step:
            there.tell(RoomTold(one.step, rng.choice(["Available", "Available", "Pending", "Failed", ""]), "b"))
        elif what == 3:
            there.tell(EvictionAnswered(uid, rng.choice(["", "", "no"]), later=rng.random() < 0.8))
        elif what == 4:
            there.tell(PodShown(uid, "default", name, leaves=True, gone=rng.random() < 0.7))
        elif what < 7:
            step = rng.choice([*there.sought, ""])
            there.came(f"new{news}", step, ready=rng.random() < 0.8)
        elif what == 8 and (new := one.replacement)[0]:
            there.tell(PodShown(new[0], "default", new[1], "ReplicaSet/web", "b", leaves=True))
        elif what == 9 and one.step:
            there.tell(RoomUnfit(uid, "spread"))
        elif what == 10 and one.step:
            there.tell(RoomTold(one.step, "Available", "b", taken_by="grown"))
        elif what == 7:
            there.wait(rng.choice([1.0, 10.0, 100.0]))
        else:
            there.tell(OwnerWants(uid, more=rng.random() < 0.5))
    there._take(there.core.stop("over"))
    assert there.core.over
    for one in there.core.departures:
        if one.state in (LeaverState.DONE, LeaverState.STAYS):
            assert one.step == "", one
    assert set(there.core._rooms) <= there.core.kept() | {
        one.step for one in there.core.departures if one.state is LeaverState.LOST
    }
