"""A gang that is too large for one turn of the loop: placed, planned and heard of over several, as one all the same."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest
from msgspec.structs import replace

from services.coordinator.core.instructions import PatchCondition, SendOffer
from services.coordinator.core.state import CoreSettings
from shared.model.units.pod_group import GroupTopology
from shared.scheduling.groups.quorum import TOO_FEW
from shared.turns import Tick
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.groups.test_gangs import KEY, add_members, place_of, tell_group
from tests.unit.services.coordinator.scene import Scene, check_overcommit, check_places

SIX = 6


def scene_in_parts(nodes: int = 2, cpu: str = "4", units: int = 2) -> Scene:
    """Each turn places ``units`` members."""
    scene = Scene(settings=CoreSettings(validate=True, units_per_turn=units))
    for number in range(nodes):
        scene.add_node(make_node(f"n{number}").label(rack="r0").allocatable(cpu=cpu).node())
    scene.begin()
    scene.run()
    return scene


def assumed(scene: Scene) -> list[str]:
    return [uid for uid, account in scene.core.state.cache.accounts.items() if account.assumed_at is not None]


def until_placing(scene: Scene) -> None:
    """Up to the end of the first turn that places somebody."""
    while not scene.core.cycle.open or scene.core.cycle.open[0].placing is None:
        assert scene.step(batch=100)


def turn(scene: Scene) -> None:
    """One more turn, as its timer asks for it."""
    assert scene.timer == scene.now
    scene.deliver(Tick())


def test_a_large_gang_is_placed_over_turns_and_planned_as_one() -> None:
    scene = scene_in_parts()
    tell_group(scene, SIX)
    add_members(scene, SIX, "1")
    until_placing(scene)
    for placed in (2, 4, 6):
        assert (len(assumed(scene)), scene.plans) == (placed, [])
        turn(scene)
    scene.run(batch=100)
    [plan] = scene.plans
    assert [len(gang.members) for gang in plan.gangs] == [SIX]
    assert len(scene.bindings) == SIX
    assert assumed(scene) == []


def gone(scene: Scene) -> None:
    scene.delete_pod("uid-m0")


def going(scene: Scene) -> None:
    scene.change_pod("uid-m0", terminating=True)


def gated(scene: Scene) -> None:
    scene.change_pod("uid-m0", gates=("wait",))


def unreadable(scene: Scene) -> None:
    scene.change_pod("uid-m0", invalid="spec is nonsense")


def bound_by_hand(scene: Scene) -> None:
    scene.change_pod("uid-m0", node_name="n1")


def larger(scene: Scene) -> None:
    scene.change_pod("uid-m0", pod_class=make_pod("x").cpu("3").pod().pod_class)


CHANGES = [gone, going, gated, unreadable, bound_by_hand, larger]


@pytest.mark.parametrize("minimum", [SIX - 1, SIX])
@pytest.mark.parametrize("turns", range(10))
@pytest.mark.parametrize("change", CHANGES)
def test_whatever_becomes_of_a_member_between_two_turns_the_minimum_is_planned_or_nothing(
    change: Callable[[Scene], None], turns: int, minimum: int
) -> None:
    scene = scene_in_parts()
    tell_group(scene, minimum)
    add_members(scene, SIX, "1")
    until_placing(scene)
    for _ in range(turns):
        if scene.core.cycle.open:
            turn(scene)
    change(scene)
    scene.run(batch=100, until_s=2.0)
    for plan in scene.plans:
        for gang in plan.gangs:
            named = {placement.unit for placement in plan.placements}
            assert set(gang.members) <= named
            assert len(gang.members) >= gang.min_count
    assert set(assumed(scene)) <= scene.core.ledger.placed.keys()
    assert check_overcommit(scene) == []
    assert check_places(scene) == []


def test_a_gang_that_falls_short_while_it_is_placed_holds_nothing() -> None:
    scene = scene_in_parts()
    tell_group(scene, SIX)
    add_members(scene, SIX, "1")
    until_placing(scene)
    scene.deliver(Tick())
    gone(scene)
    scene.run(batch=100, until_s=6.0)
    assert (scene.plans, assumed(scene)) == ([], [])
    assert place_of(scene, "m1") == ["gated"]
    assert TOO_FEW in scene.pods["uid-m1"].condition[2]


def test_room_that_a_gang_held_for_some_turns_is_offered_again() -> None:
    """A pod that was parked beside half a gang fits once that is given up."""
    scene = scene_in_parts(nodes=1, cpu="3")
    tell_group(scene, 3)
    add_members(scene, 3, "1")
    until_placing(scene)
    scene.add_pod(make_pod("lone").cpu("2").pod())
    scene.step(batch=1)
    gone(scene)
    scene.run(batch=1, until_s=5.0)
    assert [uid for uid, _ in scene.bindings] == ["uid-lone"]


def test_the_results_of_a_large_plan_are_taken_in_over_turns() -> None:
    scene = scene_in_parts()
    scene.hold_plans = True
    tell_group(scene, SIX)
    add_members(scene, SIX, "1")
    scene.run(batch=100)
    [plan] = scene.held_plans
    answer = scene.bind(plan)
    scene.inbox.clear()  # what the watch shows comes later
    scene.deliver(answer)
    placed = scene.core.ledger.placed.values()
    for taken_in in (2, 4, SIX):
        assert sum(one.answered for one in placed) == taken_in
        turn(scene)
    assert not scene.core.outcomes.busy


def test_what_the_watch_shows_before_a_result_is_taken_in_stands() -> None:
    scene = scene_in_parts()
    scene.hold_plans = True
    tell_group(scene, SIX)
    add_members(scene, SIX, "1")
    scene.run(batch=100)
    [plan] = scene.held_plans
    answer = scene.bind(plan)
    shown = list(scene.inbox)
    scene.inbox.clear()
    scene.deliver(answer, *shown)
    scene.run(batch=100)
    assert (scene.core.ledger.placed, assumed(scene)) == ({}, [])
    assert scene.core.state.stats.bound == SIX


# --- what it costs ---------------------------------------------------------------------------------------------


def calls_of(act: Callable[[], object]) -> int:
    """Python functions called meanwhile."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return calls


def landing(members: int) -> int:
    """Calls that one member's landing costs while all the others are on their way."""
    scene = Scene(settings=CoreSettings())
    scene.add_node(make_node("n0").allocatable(cpu="1000", pods="1000").node())
    scene.begin()
    scene.run()
    scene.hold_plans = True
    tell_group(scene, members)
    add_members(scene, members, "1")
    scene.run(batch=1000)
    scene.change_pod("uid-m0", node_name="n0")
    return calls_of(lambda: scene.step(batch=1))


def test_what_a_member_that_lands_costs_does_not_grow_with_its_gang() -> None:
    assert landing(200) <= landing(20) + 5


def test_agents_are_given_time_for_as_many_slots_as_they_are_asked_for() -> None:
    """A gang of a thousand was given up after 0.3 s, before agents on a busy machine had named its slots."""
    scene = Scene(settings=CoreSettings(offer_deadline_s=0.3))
    scene.add_node(make_node("n0").allocatable(cpu="1000", pods="1000").node())
    scene.begin()
    scene.run()
    tell_group(scene, 1000)
    add_members(scene, 1000, "1")
    while not scene.core.cycle.open:
        assert scene.step(batch=1100)
    assert scene.core.cycle.open[0].deadline >= scene.now + 0.3 + 0.5


def test_copies_that_differ_in_labels_are_one_class_within_their_domain() -> None:
    """Members of an Indexed Job differ in their index: each would be asked about by itself."""
    scene = scene_in_parts(units=100)
    tell_group(scene, SIX, topology=GroupTopology("rack"))
    for number in range(SIX):
        scene.add_pod(replace(make_pod(f"m{number}").cpu("1").pod(), group=KEY, labels={"index": str(number)}))
    scene.run(batch=100)
    assert {len(send.offer.groups) for send in scene.of(SendOffer)} == {1}
    assert len(scene.bindings) == SIX


# --- what members are told while they come ----------------------------------------------------------------------


def told(scene: Scene) -> int:
    return len(scene.of(PatchCondition))


def test_members_of_a_gang_that_is_still_being_created_are_not_told_to_wait() -> None:
    scene = scene_in_parts()
    tell_group(scene, 20)
    for number in range(5):
        add_members(scene, 1, "1", start=number)
        scene.run(batch=100, until_s=3.0)
        assert told(scene) == 0
    scene.run(batch=100, until_s=3.0)
    assert told(scene) == 5


def test_members_of_a_gang_that_never_ceases_to_grow_are_told_once_it_took_too_long() -> None:
    scene = scene_in_parts()
    tell_group(scene, 100)
    for number in range(11):
        add_members(scene, 1, "1", start=number)
        scene.run(batch=100, until_s=3.0)
    assert told(scene) > 5
