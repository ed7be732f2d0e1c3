"""A binder and the claims of its units: written before the Binding, taken over by a successor, given back for nothing.

Whatever a binder has done when it dies, and whatever of it arrives late, its successor ends with the pod bound to one
device, or with the device free.
"""

from __future__ import annotations

from typing import Any

import pytest

from services.binder.core.instructions import Bind, ReleaseClaim, WriteClaim
from services.binder.cycle.claim_returns import ClaimReturns
from shared.kube.scheduling_kinds import DEVICE_CLAIMS
from shared.runtime.kube import claims as claim_writes
from shared.wire.messages import Outcome
from tests.builders import make_pod
from tests.fake_kube import copy
from tests.sim.claims import (
    DRIVER,
    FINALIZER,
    add_claim,
    add_claiming,
    add_class,
    add_devices,
    check_claims,
    control_claims,
    devices_of,
)
from tests.unit.services.binder.binder_checks import check_all
from tests.unit.services.binder.binder_world import Binder, World, make_world


def claiming_world(*, devices: int = 1) -> World:
    """Two nodes with devices, and a pod ``p`` with a claim for one."""
    world = make_world(nodes=2, pods=0)
    add_class(world.kube)
    for name in ("n0", "n1"):
        add_devices(world.kube, name, devices)
    add_claiming(world.kube, "p")
    control_claims(world.kube)
    return world


def claim_of(world: World, name: str = "p-gpu") -> dict[str, Any]:
    found: dict[str, Any] = world.kube.objects["resourceclaims"][f"default/{name}"]
    return found


def until(world: World, binder: Binder, kind: type) -> Any:
    """Carry out what comes until an effect of this kind is wanted; that one."""
    for _ in range(50):
        found = next((one for one in binder.effects if isinstance(one, kind)), None)
        if found is not None:
            return found
        if binder.effects:
            world.run(binder)
        else:
            world.watch(binder)
    raise AssertionError(f"no {kind.__name__} is wanted")


def bound_and_clean(world: World) -> None:
    assert world.node_of("p") == "n0"
    assert [one.split("/")[1] for one in devices_of(claim_of(world))] == ["n0"]
    assert check_all(world) + check_claims(world.kube) == []
    assert not world.intents()


def test_the_claim_is_written_and_seen_before_the_binding() -> None:
    world = claiming_world()
    binder = world.start_binder()
    world.send(binder, world.plan(("p", "n0")))
    until(world, binder, WriteClaim)
    [intent] = world.intents().values()
    assert intent is not None
    assert [(one.name, one.fresh) for one in intent.pods[0].claims] == [("p-gpu", True)]
    world.run(binder, WriteClaim)
    assert claim_of(world)["metadata"]["finalizers"] == [FINALIZER]
    assert not any(isinstance(one, Bind) for one in binder.effects)  # the watch has not shown it
    world.watch(binder)
    assert any(isinstance(one, Bind) for one in binder.effects)
    world.settle(binder)
    bound_and_clean(world)


@pytest.mark.parametrize("fault_at", [0, 1])
@pytest.mark.parametrize("fault", ["drop_request", "drop_reply", "late"])
@pytest.mark.parametrize("killed", [False, True])
def test_a_write_that_is_lost_or_late_ends_with_one_device(fault: str, fault_at: int, *, killed: bool) -> None:
    world = claiming_world()
    binder = world.start_binder()
    world.send(binder, world.plan(("p", "n0")))
    until(world, binder, WriteClaim)
    world.fault_at = fault_at
    if killed:
        world.carry_out(next(e for e in binder.effects if isinstance(e, WriteClaim)), fault=fault)
        binder.effects.clear()
        binder.stopped = "killed"
        binder = world.start_binder()
    else:
        world.run(binder, WriteClaim, fault=fault)
    world.settle(binder)
    bound_and_clean(world)
    for write in world.api.delayed:  # it comes at last
        with pytest.raises(Exception, match=r"precondition|immutable|not found"):
            write()
    bound_and_clean(world)


@pytest.mark.parametrize("step", ["intent", "claim", "binding"])
def test_who_dies_after_a_step_is_succeeded_by_one_that_goes_on(step: str) -> None:
    world = claiming_world()
    binder = world.start_binder()
    world.send(binder, world.plan(("p", "n0")))
    until(world, binder, WriteClaim)
    if step != "intent":
        world.run(binder, WriteClaim)
        world.watch(binder)
    if step == "binding":
        world.run(binder, Bind, fault="drop_reply")
    world.crash(binder)
    binder = world.start_binder()
    world.settle(binder)
    bound_and_clean(world)
    while world.late:
        world.carry_out(world.late.pop())
    bound_and_clean(world)


def given_back(world: World) -> World:
    """The node is closed after the claim was written for it, and before the Binding."""
    binder = world.start_binder()
    request = world.send(binder, world.plan(("p", "n0")))
    until(world, binder, WriteClaim)
    world.kube.change_node("n0", unschedulable=True)
    world.run(binder, WriteClaim)
    world.settle(binder)
    [result] = binder.answers[request].results
    assert result.outcome == Outcome.CONFLICT
    return world


def test_what_never_bound_is_free_again() -> None:
    world = given_back(claiming_world())
    assert claim_of(world)["status"].get("allocation") is None
    assert not claim_of(world)["status"].get("reservedFor")
    assert not claim_of(world)["metadata"].get("finalizers")


def test_ablation_who_gives_nothing_back_keeps_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClaimReturns, "order", lambda *_: None)
    assert devices_of(claim_of(given_back(claiming_world())))


def test_a_claim_that_others_use_loses_one_consumer_alone() -> None:
    world = claiming_world()
    claim = claim_of(world)
    binder = world.start_binder()
    world.send(binder, world.plan(("p", "n0")))
    until(world, binder, WriteClaim)
    world.run(binder, WriteClaim)
    changed = claim_of(world)
    other = {"resource": "pods", "name": "q", "uid": "other"}
    changed = {**changed, "status": {**changed["status"], "reservedFor": [*changed["status"]["reservedFor"], other]}}
    world.kube.put_object(DEVICE_CLAIMS, changed)
    world.kube.change_node("n0", unschedulable=True)
    world.settle(binder)
    assert devices_of(claim_of(world))
    assert claim_of(world)["status"]["reservedFor"] == [other]
    assert claim["metadata"]["uid"] == claim_of(world)["metadata"]["uid"]


def late_free(world: World) -> list[str]:
    """A binder that is gone was giving the claim back; its successor binds the pod with it, then that arrives."""
    binder = world.start_binder()
    world.send(binder, world.plan(("p", "n0")))
    until(world, binder, WriteClaim)
    world.kube.change_node("n0", unschedulable=True)
    world.run(binder, WriteClaim)
    until(world, binder, ReleaseClaim)
    world.fault_at = 0
    world.carry_out(next(e for e in binder.effects if isinstance(e, ReleaseClaim)), fault="late")
    binder.effects = [one for one in binder.effects if not isinstance(one, ReleaseClaim)]
    for _ in range(20):  # its intent is deleted
        world.pass_time(binder, 0.1)
        while any(not isinstance(one, ReleaseClaim) for one in binder.effects):
            world.run(binder)
    binder.effects.clear()
    binder.stopped = "killed"
    world.kube.change_node("n0", unschedulable=False)
    binder = world.start_binder()
    world.send(binder, world.plan(("p", "n0")))
    world.settle(binder)
    assert world.node_of("p") == "n0"
    for write in world.api.delayed:
        try:
            write()
        except Exception:  # noqa: BLE001 - refused, as it ought to be
            continue
    return check_claims(world.kube)


def test_what_a_dead_binder_was_giving_back_is_not_taken_from_a_pod_that_is_bound() -> None:
    assert late_free(claiming_world()) == []


def test_ablation_without_resource_versions_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    patched = claim_writes._patched

    async def anyhow(api: Any, claim: Any, _: str, *rest: Any) -> Any:
        return await patched(api, claim, "", *rest)

    monkeypatch.setattr(claim_writes, "_patched", anyhow)
    assert late_free(claiming_world())[0].startswith("D2")


def test_a_pod_that_somebody_binds_while_two_of_its_claims_are_written_keeps_both() -> None:
    world = make_world(nodes=1, pods=0)
    add_class(world.kube)
    add_devices(world.kube, "n0", 2)
    pod = make_pod("p").cpu("100m")
    pod.json["spec"]["schedulerName"] = "conclave"
    pod.json["spec"]["resourceClaims"] = [{"name": name, "resourceClaimName": name} for name in ("a", "b")]
    for name in ("a", "b"):
        add_claim(world.kube, name)
    world.kube.add_pod(pod)
    binder = world.start_binder()
    world.send(binder, world.plan(("p", "n0")))
    until(world, binder, WriteClaim)
    assert sum(isinstance(one, WriteClaim) for one in binder.effects) == 2
    world.kube.bind_elsewhere("p", "n0")
    world.watch(binder)
    world.settle(binder)
    assert len(devices_of(claim_of(world, "a")) + devices_of(claim_of(world, "b"))) == 2


COUNTED = {"capacity": {"memory": {"value": "40Gi"}}, "allowMultipleAllocations": True}


@pytest.mark.parametrize("runs", [True, False])
def test_who_joins_a_claim_takes_nothing_of_what_a_device_has_too_little_of_by_now(*, runs: bool) -> None:
    """A driver publishes less than is used already: the claim's pods keep it, and others may join them."""
    world, binder = joined_world(runs=runs)
    add_devices(world.kube, "n0", 1, {**COUNTED, "capacity": {"memory": {"value": "20Gi"}}})
    assert joins(world, binder) == (Outcome.BOUND if runs else Outcome.CONFLICT)


@pytest.mark.parametrize("share", [True, False])
def test_nobody_joins_a_claim_that_others_run_with_while_another_has_its_device_alone(*, share: bool) -> None:
    world, binder = joined_world(runs=True)
    add_claim(world.kube, "theirs")
    allocate(world, "theirs", share="2" if share else "")
    assert joins(world, binder) == (Outcome.BOUND if share else Outcome.CONFLICT)


def joined_world(*, runs: bool) -> tuple[World, Binder]:
    """A claim that has 40 Gi of a device, and is reserved for ``first``, which runs or waits; and a pod to join it."""
    world = make_world(nodes=1, pods=0)
    add_class(world.kube)
    add_devices(world.kube, "n0", 1, COUNTED)
    add_claim(world.kube, "shared")
    first = add_claiming(world.kube, "first", claim="shared")
    allocate(world, "shared", {"resource": "pods", "name": "first", "uid": first}, share="1", memory="40Gi")
    if runs:
        world.kube.bind_elsewhere("first", "n0")
    add_claiming(world.kube, "p", claim="shared")
    return world, world.start_binder()


def allocate(world: World, name: str, *users: dict[str, Any], share: str = "", memory: str = "0") -> None:
    changed = copy(claim_of(world, name))
    result = {"request": "r", "driver": DRIVER, "pool": "n0", "device": "d0"}
    if share:
        result |= {"shareID": share, "consumedCapacity": {"memory": memory}}  # type: ignore[dict-item]
    changed["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": list(users)}
    world.kube.put_object(DEVICE_CLAIMS, changed)


def joins(world: World, binder: Binder) -> int:
    request = world.send(binder, world.plan(("p", "n0")))
    world.settle(binder)
    [result] = binder.answers[request].results
    return result.outcome
