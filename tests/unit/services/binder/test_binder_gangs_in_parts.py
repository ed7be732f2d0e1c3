"""A plan that is too large for one turn is taken up over several: a gang is judged when all of it is."""

from __future__ import annotations

from services.binder.core.events import BindingRefused
from services.binder.core.gangs import GangStage
from services.binder.core.instructions import Commit
from services.binder.core.state import BinderCoreSettings
from shared.model.cluster_events import NodeUpserted
from shared.turns import Tick
from shared.wire.messages import Outcome
from tests.unit.services.binder.binder_checks import at_rest, check_all
from tests.unit.services.binder.binder_world import Binder, make_world
from tests.unit.services.binder.gang_scenes import FOUR, bindings, four, outcomes


def commits(binder: Binder) -> int:
    return sum(isinstance(effect, Commit) for effect in binder.effects)


def test_a_gang_larger_than_a_turn_is_committed_as_one() -> None:
    world, binder = four(units_per_turn=3)
    request = world.send(binder, world.gang(*FOUR, at_least=4))
    [gang] = binder.core.state.gangs.values()
    assert (len(gang.members), gang.coming, gang.stage) == (3, 1, GangStage.GATHERING)
    assert (commits(binder), binder.core.busy, binder.core.wake_at) == (0, True, world.now)
    at_rest(world, binder)
    [first, *_] = world.commitments
    assert len(first.intent.pods) == 4
    assert outcomes(binder, request) == [Outcome.BOUND] * 4


def test_a_gang_that_falls_short_before_all_of_it_is_taken_up_is_given_back_at_once() -> None:
    world = make_world(nodes=2, pods=4, node_cpu="1", settings=BinderCoreSettings(validate=True, units_per_turn=3))
    binder = world.start_binder()
    request = world.send(binder, world.gang(*FOUR, at_least=4))
    state = binder.core.state
    assert (len(state.in_flight), len(state.arriving), binder.core.wake_at) == (2, 1, world.now)
    world.tell(binder, Tick())
    assert (state.gangs, state.in_flight, len(state.arriving)) == ({}, {}, 0)
    at_rest(world, binder)
    assert outcomes(binder, request) == [Outcome.CONFLICT] * 4
    assert (world.commitments, binder.core.state.cache.accounts) == ([], {})


def test_a_committed_gang_is_given_back_over_turns_after_its_intent() -> None:
    """Nobody is told that it may be planned anew before what names it waits to be deleted."""
    world, binder = four(units_per_turn=2)
    request = world.send(binder, world.gang(*FOUR, at_least=4))
    world.tell(binder, Tick())
    world.run(binder, Commit)
    [probe] = bindings(binder)
    binder.effects.clear()
    world.tell(binder, BindingRefused(world.uid(probe), 1, 403, "no"))
    state = binder.core.state
    assert (len(state.in_flight), len(state.unfinished), binder.core.committer.backlog) == (2, 1, 1)
    world.tell(binder, Tick())
    assert (state.in_flight, state.gangs) == ({}, {})
    assert outcomes(binder, request) == [Outcome.REFUSED, *[Outcome.CONFLICT] * 3]
    at_rest(world, binder)
    assert world.intents() == {}


def test_what_a_deposed_coordinator_planned_is_not_taken_up_any_more() -> None:
    world, binder = four(units_per_turn=3)
    world.send(binder, world.gang(*FOUR, at_least=4))
    world.lead_coordinator()
    request = world.send(binder, world.plan(("p3", "n0")))
    world.tell(binder, Tick())
    assert (binder.core.state.gangs, [*binder.core.state.in_flight]) == ({}, [world.uid("p3")])
    at_rest(world, binder)
    assert [binder.refusals[1].code, outcomes(binder, request)] == ["stale_term", [Outcome.BOUND]]
    assert check_all(world, binder) == []


def test_lone_pods_of_a_large_plan_are_committed_as_they_are_taken_up() -> None:
    world, binder = four(units_per_turn=3)
    request = world.send(binder, world.plan(*FOUR))
    assert commits(binder) == 1
    at_rest(world, binder)
    assert outcomes(binder, request) == [Outcome.BOUND] * 4


def test_plans_beyond_what_may_be_on_its_way_are_refused_before_they_are_taken_up() -> None:
    world, binder = four(units_per_turn=1, max_units=5)
    world.send(binder, world.gang(*FOUR, at_least=4))
    request = world.send(binder, world.plan(("p0", "n0"), ("p1", "n1")))
    assert binder.refusals[request].code == "overloaded"


def test_a_node_that_is_seen_again_as_it_was_costs_nothing() -> None:
    world, binder = four()
    world.send(binder, world.gang(*FOUR, at_least=4))
    world.run(binder, Commit)
    assert bindings(binder)
    recalled: list[str] = []
    binder.core.cycle.recall = recalled.append  # type: ignore[method-assign]
    [row] = [binder.core.state.cache.table.row_of["n0"]]
    node = binder.core.state.cache.table.nodes[row]
    assert node is not None
    world.tell(binder, NodeUpserted(node))
    assert recalled == []
