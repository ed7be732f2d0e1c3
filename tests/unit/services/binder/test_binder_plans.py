"""Plans as such: whose term they carry, what a repeated or a malformed one comes to, when they are answered."""

from __future__ import annotations

from sys import getrefcount

from msgspec.structs import replace

from services.binder.core.instructions import Commit, LookUp
from services.binder.core.state import BinderCoreSettings
from shared.wire.messages import Outcome
from tests.unit.services.binder.binder_checks import at_rest, outcome
from tests.unit.services.binder.binder_world import make_world


def test_a_stale_coordinators_plan_is_refused_by_the_transaction() -> None:
    world = make_world()
    binder = world.start_binder()
    plan = world.plan(("p0", "n0"))
    world.lead_coordinator()
    request = world.send(binder, plan)
    at_rest(world, binder)
    assert binder.refusals[request].code == "stale_term"
    assert world.node_of("p0") == ""


def test_a_pod_does_not_take_the_room_of_a_reservation_that_the_binder_does_not_see() -> None:
    world = make_world()
    binder = world.start_binder()
    plan = world.plan(("p0", "n0"))
    seated = replace(plan, placements=[replace(plan.placements[0], reservation="r-1")])
    request = world.send(binder, seated)
    assert request not in binder.answers, "it may be shown in a moment"
    at_rest(world, binder)
    found = outcome(binder, request)
    assert (found.outcome, found.node, world.node_of("p0")) == (Outcome.CONFLICT, "n0", "")


def test_a_plan_of_a_lower_term_than_one_seen_is_refused_at_once() -> None:
    world = make_world()
    binder = world.start_binder()
    old = world.plan(("p0", "n0"))
    world.lead_coordinator()
    world.send(binder, world.plan(("p1", "n1")))
    request = world.send(binder, old)
    assert (binder.refusals[request].code, binder.refusals[request].status) == ("stale_term", 409)
    at_rest(world, binder)


def test_a_plan_of_a_term_that_never_led_does_not_lock_the_true_coordinator_out() -> None:
    world = make_world()
    binder = world.start_binder()
    bogus = world.send(binder, world.plan(("p0", "n0"), term=10**9))
    world.settle(binder)
    assert binder.refusals[bogus].code == "stale_term"
    request = world.send(binder, world.plan(("p0", "n1")))
    at_rest(world, binder)
    assert (outcome(binder, request).outcome, world.node_of("p0")) == (Outcome.BOUND, "n1")


def test_a_new_coordinators_plan_drops_what_waits_under_the_old_term() -> None:
    world = make_world()
    binder = world.start_binder()
    world.send(binder, world.plan(("p0", "n0")))
    waiting = world.send(binder, world.plan(("p1", "n1")))
    world.lead_coordinator()
    request = world.send(binder, world.plan(("p1", "n2")))
    at_rest(world, binder)
    assert binder.refusals[waiting].code == "stale_term"
    assert (outcome(binder, request).outcome, world.node_of("p1")) == (Outcome.BOUND, "n2")


def test_a_deposed_binder_stops_at_its_next_transaction() -> None:
    world = make_world()
    old = world.start_binder()
    world.send(old, world.plan(("p0", "n0")))
    new = world.start_binder()
    world.run(old, Commit)
    world.run(old, LookUp)
    assert old.stopped
    assert old.effects == []
    at_rest(world, new)


def test_a_plan_delivered_twice_is_done_once_and_answered_twice() -> None:
    world = make_world()
    binder = world.start_binder()
    plan = world.plan(("p0", "n0"))
    first, second = world.send(binder, plan), world.send(binder, plan)
    at_rest(world, binder)
    third = world.send(binder, plan)
    assert outcome(binder, first).outcome == outcome(binder, second).outcome == outcome(binder, third).outcome
    assert len(world.kube.bound) == 1
    assert binder.core.stats.plans == 1


def test_an_answered_plan_is_remembered_by_its_answer_alone() -> None:
    """Hundreds are remembered, and what they asked for is many times what was answered."""
    world = make_world()
    binder = world.start_binder()
    plan = world.plan(("p0", "n0"))
    held = getrefcount(plan), getrefcount(plan.placements[0])
    world.send(binder, plan)
    at_rest(world, binder)
    assert (getrefcount(plan), getrefcount(plan.placements[0])) == held


def test_another_plan_for_a_pod_on_its_way_hears_the_end_of_the_first() -> None:
    world = make_world()
    binder = world.start_binder()
    first = world.send(binder, world.plan(("p0", "n0")))
    second = world.send(binder, world.plan(("p0", "n2")))
    at_rest(world, binder)
    assert outcome(binder, first).node == outcome(binder, second).node == "n0"


def test_a_plan_is_answered_unresolved_in_time_and_goes_on() -> None:
    world = make_world()
    binder = world.start_binder()
    request = world.send(binder, world.plan(("p0", "n0")))
    world.run(binder, Commit)
    world.pass_time(binder, 2.1)
    assert outcome(binder, request).outcome == Outcome.UNRESOLVED
    at_rest(world, binder)
    assert world.node_of("p0") == "n0"


def test_too_many_units_on_their_way_are_refused() -> None:
    world = make_world(settings=BinderCoreSettings(max_units=1))
    binder = world.start_binder()
    request = world.send(binder, world.plan(("p0", "n0"), ("p1", "n1")))
    assert (binder.refusals[request].code, binder.refusals[request].status) == ("overloaded", 429)


def test_one_pod_twice_in_a_plan_is_malformed() -> None:
    world = make_world()
    binder = world.start_binder()
    request = world.send(binder, world.plan(("p0", "n0"), ("p0", "n1")))
    assert binder.refusals[request].code == "wire_invalid"
