"""A binder and the claim that a pod group has for all of its members: written once, marked for each, never given back
here; whatever of it is lost or late, its successor ends with one allocation."""

from __future__ import annotations

import pytest

from services.binder.core.events import ClaimFreed
from services.binder.core.instructions import Bind, ReleaseClaim, WriteClaim
from services.binder.cycle.claim_returns import REFUSALS
from services.binder.cycle.claims import ClaimsOfTerm
from shared.kube.scheduling_kinds import DEVICE_CLAIMS, NATIVE_GROUPS
from shared.model.cluster_events import Listed
from shared.model.devices import Consumer
from shared.wire.messages import Outcome
from tests.fake_kube import copy
from tests.sim.claims import (
    add_claim,
    add_class,
    add_devices,
    add_group,
    add_member,
    check_claims,
    control_claims,
    devices_of,
)
from tests.unit.services.binder.binder_checks import check_all
from tests.unit.services.binder.binder_world import Binder, World, make_world
from tests.unit.services.binder.gang_scenes import outcomes
from tests.unit.services.binder.test_binder_claims import claim_of, until


def gang_world(count: int = 3, *, devices: int = 1) -> World:
    """Two nodes with devices; members p0, p1, ... of a group that has a claim for one device."""
    world = make_world(nodes=2, pods=0)
    add_class(world.kube)
    for name in ("n0", "n1"):
        add_devices(world.kube, name, devices)
    add_group(world.kube, "g", minimum=count)
    for number in range(count):
        add_member(world.kube, f"p{number}", "g")
    control_claims(world.kube)
    return world


def of_group(world: World) -> Consumer:
    return Consumer("g", world.kube.objects["podgroups"]["default/g"]["metadata"]["uid"], group=True)


def planned(world: World, count: int = 3, node: str = "n0") -> tuple[Binder, int]:
    binder = world.start_binder()
    return binder, world.send(binder, world.gang(*((f"p{n}", node) for n in range(count)), at_least=count))


def all_bound(world: World, count: int = 3, node: str = "n0") -> None:
    assert {world.node_of(f"p{number}") for number in range(count)} == {node}
    claim = claim_of(world, "g-gpu")
    assert devices_of(claim) == [f"gpu.example.com/{node}/d0"]
    assert [one["uid"] for one in claim["status"]["reservedFor"]] == [of_group(world).uid]
    assert check_all(world) + check_claims(world.kube) == []
    assert not world.intents()


def test_one_write_reserves_the_claim_for_the_group_and_serves_all_members_in_line() -> None:
    world = gang_world()
    binder, request = planned(world)
    order = until(world, binder, WriteClaim)
    assert order.consumers == (of_group(world),)
    intents = [intent for intent in world.intents().values() if intent is not None]
    assert [claim.fresh for intent in intents for pod in intent.pods for claim in pod.claims] == [False] * 3
    world.settle(binder)
    assert outcomes(binder, request) == [Outcome.BOUND] * 3
    all_bound(world)


@pytest.mark.parametrize("fault_at", [0, 1])
@pytest.mark.parametrize("fault", ["drop_request", "drop_reply", "late"])
@pytest.mark.parametrize("dies", [False, True])
def test_a_write_that_is_lost_or_late_ends_with_one_allocation(fault: str, fault_at: int, *, dies: bool) -> None:
    world = gang_world()
    binder, _ = planned(world)
    order = until(world, binder, WriteClaim)
    world.fault_at = fault_at
    if dies:
        world.carry_out(order, fault=fault)
        world.crash(binder)
        binder = world.start_binder()
    else:
        world.run(binder, WriteClaim, fault=fault)
    world.settle(binder)
    all_bound(world)
    for write in world.api.delayed:
        with pytest.raises(Exception, match=r"precondition|immutable"):
            write()
    all_bound(world)


def test_a_binder_that_dies_between_two_steps_leaves_one_allocation() -> None:
    for steps in range(30):
        world = gang_world()
        binder, _ = planned(world)
        for _ in range(steps):
            if binder.effects:
                world.run(binder)
            else:
                world.watch(binder)
        world.crash(binder)
        binder = world.start_binder()
        world.settle(binder)
        if not world.node_of("p0"):
            world.send(binder, world.gang(*((f"p{n}", "n0") for n in range(3)), at_least=3))
            world.settle(binder)
        all_bound(world)


def test_members_that_do_not_bind_leave_the_groups_claim_as_it_is_and_marked() -> None:
    """The coordinator gives it back, where no member stands: another shard's binder may have one on its way."""
    world = gang_world()
    binder, request = planned(world)
    until(world, binder, WriteClaim)
    world.run(binder, WriteClaim)
    version = claim_of(world, "g-gpu")["metadata"]["resourceVersion"]
    world.kube.change_node("n0", unschedulable=True)
    order = until(world, binder, ReleaseClaim)
    assert not order.deallocate
    world.settle(binder)
    assert Outcome.BOUND not in outcomes(binder, request)
    claim = claim_of(world, "g-gpu")
    assert devices_of(claim) == ["gpu.example.com/n0/d0"]
    assert [one["uid"] for one in claim["status"]["reservedFor"]] == [of_group(world).uid]
    assert claim["metadata"]["resourceVersion"] != version
    assert not world.intents()


@pytest.mark.parametrize("count", [3, 24])
def test_one_mark_or_two_are_enough_for_all_members_that_do_not_bind(count: int) -> None:
    world = gang_world(count)
    binder, request = planned(world, count)
    until(world, binder, WriteClaim)
    world.run(binder, WriteClaim)
    world.kube.change_node("n0", unschedulable=True)
    marks = 0
    while request not in binder.answers:
        until(world, binder, ReleaseClaim)
        world.run(binder, ReleaseClaim)
        marks += 1
        world.watch(binder)
        while binder.effects and not any(isinstance(one, ReleaseClaim) for one in binder.effects):
            world.run(binder)
            world.watch(binder)
    world.settle(binder)
    assert marks <= 2
    assert Outcome.BOUND not in outcomes(binder, request)
    assert not world.intents()


def contested_world() -> tuple[World, Binder, int]:
    """Somebody else's claim has the device too, as is seen after our write."""
    world = gang_world()
    binder, request = planned(world)
    until(world, binder, WriteClaim)
    add_claim(world.kube, "theirs")
    theirs = copy(claim_of(world, "theirs"))
    world.run(binder, WriteClaim)
    theirs["status"] = {"allocation": copy(claim_of(world, "g-gpu")["status"]["allocation"])}
    world.kube.put_object(DEVICE_CLAIMS, theirs)
    world.settle(binder)
    return world, binder, request


def test_no_member_is_bound_while_another_claim_has_the_device_too() -> None:
    world, binder, request = contested_world()
    assert Outcome.BOUND not in outcomes(binder, request)
    assert not any(world.node_of(f"p{number}") for number in range(3))


def test_ablation_without_looking_again_members_are_bound_on_another_claims_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shared.scheduling.devices.claimed.ClaimedDevices.contested", lambda *_: "")
    world, _, _ = contested_world()
    assert any(line.startswith("D1") for line in check_claims(world.kube, others=True) + check_claims(world.kube))
    assert all(world.node_of(f"p{number}") for number in range(3))


@pytest.mark.parametrize("served", [True, False])
def test_a_member_of_a_group_that_is_not_known_goes_back_where_groups_are_listed(*, served: bool) -> None:
    """Else its claim would be reserved for the pod, which its group shares with all."""
    world = make_world(nodes=1, pods=0)
    add_class(world.kube)
    add_devices(world.kube, "n0", 1)
    add_claim(world.kube, "shared")
    add_member(world.kube, "p0", "g", claim="shared")
    binder = world.start_binder()
    world.tell(binder, Listed("podgroups", served=served))
    request = world.send(binder, world.plan(("p0", "n0")))
    world.settle(binder)
    [result] = binder.answers[request].results
    assert result.outcome == (Outcome.CONFLICT if served else Outcome.BOUND)
    if served:
        assert result.reason == "n0: pod group default/g is not known here, which may have claims for it"
        add_group(world.kube, "g", claim="shared")
        world.watch(binder)
        world.send(binder, world.plan(("p0", "n0")))
        world.settle(binder)
        assert [one["name"] for one in claim_of(world, "shared")["status"]["reservedFor"]] == ["g"]
    assert world.node_of("p0") == "n0"


def test_a_member_whose_group_was_replaced_by_another_of_its_name_does_not_take_the_other_ones_claim() -> None:
    world = gang_world(1)
    world.kube.drop_object(NATIVE_GROUPS, "default/g")
    add_group(world.kube, "g", minimum=1)
    binder, request = planned(world, 1)
    world.settle(binder)
    assert outcomes(binder, request) != [Outcome.BOUND]
    assert "neither Pod nor PodGroup g is the owner" in binder.answers[request].results[0].reason


def test_ablation_without_a_mark_a_free_of_before_comes_after_the_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that died sent it when no member was on its way: our mark is what refuses it."""

    def late_free_is_refused() -> bool:
        world = gang_world()
        binder, _ = planned(world)
        world.settle(binder)
        world.kube.remove_pod("p0")
        before = copy(claim_of(world, "g-gpu")["metadata"])
        add_member(world.kube, "p3", "g")
        control_claims(world.kube)
        world.watch(binder)
        world.send(binder, world.plan(("p3", "n0")))
        until(world, binder, Bind)
        return bool(claim_of(world, "g-gpu")["metadata"]["resourceVersion"] != before["resourceVersion"])

    assert late_free_is_refused()
    monkeypatch.setattr(ClaimsOfTerm, "_carried", lambda *_: True)
    assert not late_free_is_refused()


def test_a_return_that_is_refused_for_good_stands_for_no_mark_of_others() -> None:
    """A lone pod's return is of the status, which a Role may not allow; a member's mark is of the claim alone."""
    world = gang_world()
    core = world.start_binder().core
    returns = core.cycle.claims.returns
    lone = ReleaseClaim("default", "g-gpu", "c", "lone", deallocate=True)
    returns.order(lone)
    for uid in ("a", "b"):
        returns.order(ReleaseClaim("default", "g-gpu", "c", uid, deallocate=False, group=True))
    for _ in range(REFUSALS):
        returns.freed(ClaimFreed("default/g-gpu", None, done=False, status=403))
        core.state.now += 60.0
        returns.step()
    assert returns.leaving.keys() == {"a", "b"}
    returns.begin("default/g-gpu")
    returns.freed(ClaimFreed("default/g-gpu", None, done=True))
    assert not returns.leaving
