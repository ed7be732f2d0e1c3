"""A member of a gang that ends alone gives its claims back first: until then its gang's intent keeps others from it."""

from __future__ import annotations

import pytest

from services.binder.core.instructions import ReleaseClaim, WriteClaim
from services.binder.cycle.claims import ClaimsOfTerm
from shared.wire.messages import Outcome
from tests.sim.claims import add_claiming, add_class, add_devices, check_claims, control_claims, devices_of
from tests.unit.services.binder.binder_checks import check_all
from tests.unit.services.binder.binder_world import Binder, World, make_world
from tests.unit.services.binder.gang_scenes import outcomes
from tests.unit.services.binder.test_binder_claims import claim_of, claiming_world, until


def one_leaves() -> tuple[World, Binder, int]:
    """A gang of three that can do without p0, whose claim is written as its node is cordoned; p1 and p2 are bound."""
    world = make_world(nodes=2, pods=0)
    add_class(world.kube)
    add_devices(world.kube, "n0", 1)
    add_devices(world.kube, "n1", 2)
    for name in ("p0", "p1", "p2"):
        add_claiming(world.kube, name)
    control_claims(world.kube)
    binder = world.start_binder()
    request = world.send(binder, world.gang(("p0", "n0"), ("p1", "n1"), ("p2", "n1"), at_least=2))
    until(world, binder, WriteClaim)
    while any(isinstance(one, WriteClaim) for one in binder.effects):
        world.run(binder, WriteClaim)
    world.kube.change_node("n0", unschedulable=True)
    world.watch(binder)
    while others := [one for one in binder.effects if not isinstance(one, ReleaseClaim)]:
        world.run(binder, type(others[0]))
        world.watch(binder)
    assert (world.node_of("p1"), world.node_of("p2")) == ("n1", "n1")
    return world, binder, request


def named(world: World) -> set[str]:
    return {pod.name for intent in world.intents().values() if intent is not None for pod in intent.pods}


def test_a_member_that_ends_alone_is_not_told_and_stays_in_the_intent_until_its_claims_are_free() -> None:
    world, binder, request = one_leaves()
    world.run(binder, ReleaseClaim, fault="drop_request")
    world.watch(binder)
    assert "p0" in named(world)
    assert world.uid("p0") in binder.core.state.in_flight
    assert request not in binder.answers
    world.settle(binder)
    assert outcomes(binder, request) == [Outcome.CONFLICT, Outcome.BOUND, Outcome.BOUND]
    assert not devices_of(claim_of(world, "p0-gpu"))
    assert not world.intents()
    assert check_all(world) + check_claims(world.kube) == []


def test_ablation_a_member_that_ends_at_once_is_named_by_no_intent_while_its_claim_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ClaimsOfTerm, "left_by", lambda *_: True)
    world, binder, request = one_leaves()
    assert any(isinstance(one, ReleaseClaim) for one in binder.effects)
    assert outcomes(binder, request) == [Outcome.CONFLICT, Outcome.BOUND, Outcome.BOUND]
    assert "p0" not in named(world)


def test_a_successor_gives_back_what_a_member_that_ended_alone_was_still_leaving() -> None:
    world, binder, _ = one_leaves()
    world.crash(binder)
    world.late.clear()
    world.settle(world.start_binder())
    assert not devices_of(claim_of(world, "p0-gpu"))
    assert not world.intents()
    assert check_all(world) + check_claims(world.kube) == []


def test_the_intent_of_a_lone_pod_goes_when_its_claims_are_free_though_it_is_a_member_of_a_gang_by_then() -> None:
    world = claiming_world(devices=2)
    add_claiming(world.kube, "q")
    control_claims(world.kube)
    binder = world.start_binder()
    world.send(binder, world.plan(("p", "n0")))
    until(world, binder, WriteClaim)
    world.run(binder, WriteClaim)
    world.kube.change_node("n0", unschedulable=True)
    until(world, binder, ReleaseClaim)
    request = world.send(binder, world.gang(("p", "n1"), ("q", "n1"), at_least=2))
    world.settle(binder)
    assert outcomes(binder, request) == [Outcome.BOUND, Outcome.BOUND]
    assert not world.intents()
    assert check_all(world) + check_claims(world.kube) == []
