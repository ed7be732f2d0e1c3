"""A claim that a pod group has for all of its members: allocated once, reserved for the group, given back by nobody but
who sees that no member stands or is on its way."""

from __future__ import annotations

from typing import Any

import pytest

from services.binder.core.instructions import Bind, WriteClaim
from services.binder.cycle.claims import ClaimsOfTerm
from services.coordinator.binding.plans import Ledger
from services.coordinator.core.events import PlanFailed
from services.coordinator.core.instructions import FreeClaim, SendPlan
from services.coordinator.inspect.nodes import pods_on
from shared.kube.scheduling_kinds import DEVICE_CLAIMS, NATIVE_GROUPS
from shared.runtime.kube.claims import deallocate_claim
from shared.scheduling.devices.accounts import ClaimAccounts
from tests.builders import make_node, make_pod
from tests.fake_kube import copy
from tests.sim.claims import (
    DRIVER,
    add_claim,
    add_claiming,
    add_devices,
    add_group,
    add_member,
    check_claims,
    control_claims,
    devices_of,
    leaked,
)
from tests.sim.test_mesh_claims import Scene
from tests.unit.services.binder.binder_checks import check_all
from tests.unit.services.binder.test_binder_claims_given_back import list_again, taken_over_without


def reference(scene: Scene, group: str = "g") -> dict[str, Any]:
    uid = scene.kube.objects["podgroups"][f"default/{group}"]["metadata"]["uid"]
    return {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": group, "uid": uid}


def members(scene: Scene, count: int, *, minimum: int = 0, **kinds: Any) -> list[str]:
    add_group(scene.kube, "g", minimum=minimum, **{key: kinds[key] for key in kinds.keys() & {"claim", "count"}})
    names = [f"p{number}" for number in range(count)]
    for name in names:
        add_member(scene.kube, name, "g", **kinds)
    return names


def allocated_before(scene: Scene, name: str, node: str, *users: dict[str, Any]) -> None:
    """An attempt has given the claim a device of the node, and its scheduler has died."""
    changed = copy(scene.claim(name))
    names = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    given = {"request": "r", "driver": DRIVER, "pool": node, "device": "d0"}
    changed["status"] = {
        "allocation": {"devices": {"results": [given]}, "nodeSelector": {"nodeSelectorTerms": [names]}},
        "reservedFor": list(users),
    }
    scene.kube.put_object(DEVICE_CLAIMS, changed)


@pytest.mark.parametrize("agents", [1, 2, 4])
@pytest.mark.parametrize("minimum", [0, 3])
def test_members_share_the_claim_of_their_group_which_is_reserved_for_the_group_alone(
    agents: int, minimum: int
) -> None:
    scene = Scene(nodes=3, devices=2, agents=agents)
    names = members(scene, 3, minimum=minimum)
    scene.go()
    [node] = {scene.world.node_of(name) for name in names}
    assert devices_of(scene.claim("g-gpu")) == [f"{DRIVER}/{node}/d0"]
    assert scene.claim("g-gpu")["status"]["reservedFor"] == [reference(scene)]
    assert [pod.devices for pod in pods_on(scene.world.coordinator.core, node)] == [[f"{DRIVER}/{node}/d0"]] * 3
    assert leaked(scene.kube) == []


def test_a_claim_by_name_is_the_groups_for_its_members_and_each_others_for_itself() -> None:
    scene = Scene(nodes=3, devices=1)
    add_claim(scene.kube, "shared")
    names = members(scene, 2, minimum=2, claim="shared")
    alone = add_claiming(scene.kube, "alone", claim="shared")
    scene.go()
    assert len({scene.world.node_of(name) for name in (*names, "alone")} - {""}) == 1
    reserved = sorted(scene.claim("shared")["status"]["reservedFor"], key=lambda one: str(one["resource"]))
    assert reserved == [reference(scene), {"resource": "pods", "name": "alone", "uid": alone}]


def test_what_a_member_names_otherwise_than_its_group_is_its_own() -> None:
    scene = Scene(nodes=1, devices=3)
    add_group(scene.kube, "g", minimum=2, count=1)
    add_member(scene.kube, "a", "g", count=1)
    add_member(scene.kube, "b", "g", count=2)
    scene.go()
    assert scene.claim("g-gpu")["status"]["reservedFor"] == [reference(scene)]
    assert [one["name"] for one in scene.claim("b-gpu")["status"]["reservedFor"]] == ["b"]
    assert (scene.world.node_of("a"), scene.world.node_of("b")) == ("n0", "n0")


def test_more_members_than_a_claim_has_consumers_run() -> None:
    scene = Scene(nodes=0, devices=0, agents=1)
    for number in range(3):
        scene.kube.add_node(make_node(f"n{number}").allocatable(cpu="4", pods="100"))
    add_devices(scene.kube, "net", 1, allNodes=True)
    names = members(scene, 270, cpu="1m")
    world = scene.world
    end = world.now + 30.0
    while world.now < end and not all(map(world.node_of, names)):
        control_claims(scene.kube)
        scene.drain()
        assert check_claims(scene.kube, local=False) == []
        scene.advance(world.now + 0.25)
    assert all(map(world.node_of, names))
    assert scene.claim("g-gpu")["status"]["reservedFor"] == [reference(scene)]


def test_a_member_that_comes_later_goes_where_the_devices_are() -> None:
    scene = Scene(nodes=3, devices=1)
    members(scene, 1)
    scene.go()
    node = scene.world.node_of("p0")
    for number in range(1, 4):
        add_member(scene.kube, f"p{number}", "g")
    scene.go()
    assert {scene.world.node_of(f"p{number}") for number in range(4)} == {node}


def test_a_gang_gives_back_what_it_has_where_there_is_no_room_for_all_and_goes_elsewhere() -> None:
    scene = Scene(nodes=0)
    scene.kube.add_node(make_node("n0").allocatable(cpu="1"))
    scene.kube.add_node(make_node("n1").allocatable(cpu="4"))
    for node in ("n0", "n1"):
        add_devices(scene.kube, node, 1)
    names = members(scene, 3, minimum=3, cpu="1")
    control_claims(scene.kube)
    allocated_before(scene, "g-gpu", "n0", reference(scene))
    scene.go(60.0)
    assert {scene.world.node_of(name) for name in names} == {"n1"}
    assert devices_of(scene.claim("g-gpu")) == [f"{DRIVER}/n1/d0"]


@pytest.mark.parametrize("rack", [False, True])
@pytest.mark.parametrize("first", [True, False])
def test_a_gang_goes_where_all_that_share_have_room_whoever_comes_first(*, first: bool, rack: bool) -> None:
    """A launcher that does not share the claim may go anywhere: it is no member that the others follow."""
    scene = Scene(nodes=0)
    for node, cpu in (("n0", "1500m"), ("n1", "4")):
        scene.kube.add_node(make_node(node).label(rack="r0").allocatable(cpu=cpu))
        add_devices(scene.kube, node, 1)
    add_group(scene.kube, "g", minimum=4)
    if rack:
        group = copy(scene.kube.objects["podgroups"]["default/g"])
        group["spec"]["schedulingConstraints"] = {"topology": [{"key": "rack"}]}
        scene.kube.put_object(NATIVE_GROUPS, group)
    names = [f"w{number}" for number in range(3)]
    for name in ("launcher", *names) if first else (*names, "launcher"):
        if name == "launcher":
            pod = make_pod(name).cpu("100m")
            pod.json["spec"] |= {"schedulerName": "conclave", "schedulingGroup": {"podGroupName": "g"}}
            scene.kube.add_pod(pod)
        else:
            add_member(scene.kube, name, "g", cpu="1")
    scene.go(30.0)
    assert {scene.world.node_of(name) for name in names} == {"n1"}
    assert scene.world.node_of("launcher")


@pytest.mark.parametrize("reserved", [True, False])
def test_what_a_group_has_on_a_node_that_takes_nobody_is_given_back(*, reserved: bool) -> None:
    scene = Scene(nodes=2, devices=1)
    names = members(scene, 2)
    control_claims(scene.kube)
    allocated_before(scene, "g-gpu", "n0", *([reference(scene)] if reserved else []))
    scene.kube.change_node("n0", unschedulable=True)
    scene.go(60.0)
    assert {scene.world.node_of(name) for name in names} == {"n1"}


def test_what_a_member_runs_with_is_not_given_back_for_one_that_fits_nowhere() -> None:
    scene = Scene(nodes=2, devices=1)
    members(scene, 1, cpu="1")
    scene.go()
    node = scene.world.node_of("p0")
    scene.kube.change_node(node, unschedulable=True)
    add_member(scene.kube, "p1", "g", cpu="1")
    scene.go(60.0)
    assert devices_of(scene.claim("g-gpu")) == [f"{DRIVER}/{node}/d0"]
    assert not scene.world.node_of("p1")
    assert "1 resourceclaim not available on the node" in scene.told("p1")


def test_the_claim_is_free_when_the_group_goes_and_not_when_its_pods_do() -> None:
    scene = Scene(nodes=1, devices=1)
    members(scene, 2)
    scene.go()
    for name in ("p0", "p1"):
        scene.kube.remove_pod(name)
    scene.go(5.0)
    assert devices_of(scene.claim("g-gpu"))
    add_claiming(scene.kube, "other")
    scene.go(5.0)
    assert not scene.world.node_of("other")
    scene.kube.drop_object(NATIVE_GROUPS, "default/g")
    scene.go()
    assert scene.world.node_of("other") == "n0"
    assert "default/g-gpu" not in scene.kube.objects["resourceclaims"]


def test_members_whose_group_comes_last_wait_for_it_and_share_its_claim() -> None:
    scene = Scene(nodes=2, devices=2)
    for number in range(2):
        add_member(scene.kube, f"p{number}", "g")
    scene.go(5.0)
    assert not scene.world.node_of("p0")
    add_group(scene.kube, "g", minimum=2)
    scene.go()
    assert {scene.world.node_of("p0"), scene.world.node_of("p1")} in ({"n0"}, {"n1"})
    assert scene.claim("g-gpu")["status"]["reservedFor"] == [reference(scene)]


def test_a_pod_that_knows_its_claim_before_the_mesh_knows_its_group_is_tried_when_it_does() -> None:
    """Watches of claims and groups are two: what is owned by a group that was not shown yet is not the pod's."""
    scene = Scene(nodes=1, devices=1)
    members(scene, 1)
    control_claims(scene.kube)
    world, history = scene.world, scene.kube.history
    late = [entry for entry in history if entry[1] == "podgroups"]
    history[:] = [entry for entry in history if entry[1] != "podgroups"]
    scene.drain()
    [gated] = world.coordinator.core.state.gated.values()
    assert gated.lacks.endswith("(Pod is not owner)")
    history += [(scene.kube.revision + 1 + number, *entry[1:]) for number, entry in enumerate(late)]
    scene.kube.revision += len(late)
    scene.go()
    assert world.node_of("p0") == "n0"


@pytest.mark.parametrize("who", ["binder", "coordinator", "both"])
@pytest.mark.parametrize("minimum", [0, 2])
def test_whoever_dies_at_whatever_step_the_group_has_its_claim_once(who: str, minimum: int) -> None:
    for step in range(bool(minimum), 40, 2):
        scene = Scene(nodes=2, devices=1)
        names = members(scene, 2, minimum=minimum)
        world = scene.world
        for _ in range(step):
            step_of(scene)
        if who in ("binder", "both"):
            world.replace_binder()
        if who in ("coordinator", "both"):
            world.replace_coordinator()
        while world.late:
            world.carry_out(world.late.pop())
        scene.go(15.0)
        assert len({world.node_of(name) for name in names} - {""}) == 1, (step, [world.node_of(name) for name in names])
        assert scene.claim("g-gpu")["status"]["reservedFor"] == [reference(scene)]
        assert leaked(scene.kube) == []
        assert not world.intents()


def test_a_device_that_another_claim_has_too_binds_no_member_and_the_group_gets_another() -> None:
    """Two schedulers chose one device, and the other wrote first: ours is given back once it is seen."""
    scene = Scene(nodes=2, devices=1)
    names = members(scene, 2, minimum=2)
    world = scene.world
    while not any(isinstance(effect, WriteClaim) for effect in world.binder.effects):
        step_of(scene)
    add_claim(scene.kube, "theirs")
    [order] = [effect for effect in world.binder.effects if isinstance(effect, WriteClaim)]
    assert order.allocation is not None
    node = order.allocation.results[0].pool
    theirs = scene.kube.add_pod(make_pod("x").on(node))
    allocated_before(scene, "theirs", node, {"resource": "pods", "name": "x", "uid": theirs})
    end = world.now + 30.0
    while world.now < end:
        control_claims(scene.kube)
        scene.drain()
        assert check_all(world) + check_claims(scene.kube, others=True) == []
        scene.advance(world.now + 0.25)
    other = {"n0": "n1", "n1": "n0"}[node]
    assert {world.node_of(name) for name in names} == {other}
    assert devices_of(scene.claim("g-gpu")) == [f"{DRIVER}/{other}/d0"]


@pytest.mark.parametrize("who", ["nobody", "binder", "coordinator", "both"])
def test_a_gang_that_lost_a_member_at_whatever_step_holds_no_devices_in_vain(who: str) -> None:
    """What it was given on the way is free again for others, though nobody tries it any more."""
    for step in range(0, 40, 2):
        scene = Scene(nodes=2, devices=0)
        add_devices(scene.kube, "n0", 1)
        members(scene, 2, minimum=2)
        world = scene.world
        for _ in range(step):
            step_of(scene)
        scene.kube.remove_pod("p1")
        if who in ("binder", "both"):
            world.replace_binder()
        if who in ("coordinator", "both"):
            world.replace_coordinator()
        while world.late:
            world.carry_out(world.late.pop())
        scene.go(20.0)
        if world.node_of("p0"):
            continue  # it was bound before, or with the other
        assert leaked(scene.kube) == [], step
        add_claiming(scene.kube, "other")
        scene.go(5.0)
        assert world.node_of("other") == "n0"


def after_frees_that_were_lost(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a gang keeps that lost a member once its claim was written; the API server was away for who freed it."""
    scene, away = Scene(nodes=1, devices=1), [True]

    async def freed(*args: Any, **kinds: Any) -> bool:
        return not away and await deallocate_claim(*args, **kinds)

    monkeypatch.setattr("services.coordinator.io.kube_writes.deallocate_claim", freed)
    members(scene, 2, minimum=2)
    control_claims(scene.kube)
    while not devices_of(scene.claim("g-gpu")):
        step_of(scene)
    scene.kube.remove_pod("p1")
    scene.go(5.0)
    assert leaked(scene.kube)
    away.clear()
    scene.go(40.0)
    assert not scene.world.node_of("p0")
    return leaked(scene.kube)


def test_a_free_that_was_lost_is_made_good_though_nobody_tries_the_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    assert after_frees_that_were_lost(monkeypatch) == []


def test_ablation_without_a_second_look_a_gang_that_nobody_tries_keeps_its_devices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("services.coordinator.core.core.leave_idle", lambda _: None)
    assert after_frees_that_were_lost(monkeypatch)


@pytest.mark.parametrize("told", [True, False])
def test_what_a_member_may_be_bound_with_yet_is_given_back_once_it_cannot_be(*, told: bool) -> None:
    """A binder that has not said what became of it may have its Binding on the way, but not for ever."""
    scene = Scene(nodes=1, devices=1)
    members(scene, 1, minimum=2)
    control_claims(scene.kube)
    scene.drain()
    state = scene.world.coordinator.core.state
    uid = scene.kube.pods["default/p0"]["metadata"]["uid"]
    state.groups.given_back(uid, untold_until=scene.world.now + 60.0)
    allocated_before(scene, "g-gpu", "n0", reference(scene))
    scene.go(35.0)
    assert devices_of(scene.claim("g-gpu"))
    if told:
        state.groups.given_back(uid, untold_until=None)
    scene.go(35.0 if told else 60.0)
    assert not devices_of(scene.claim("g-gpu"))


def put_off(scene: Scene) -> str:
    """A gang's claim is written, its binder has died and the node takes nobody: the next binder puts the members off
    until it is shown pod groups. Returned: the node."""
    world = scene.world
    control_claims(scene.kube)
    while not devices_of(scene.claim("g-gpu")):
        step_of(scene)
    [device] = devices_of(scene.claim("g-gpu"))
    node = device.split("/")[1]
    scene.kube.change_node(node, unschedulable=True)
    old = world.binder
    old.stopped = "killed"
    world.hang_up(old)
    binder = taken_over_without(world, "podgroups")
    world.binders["0"] = binder
    world.inform(world.coordinator, world.leads(binder))
    scene.go(2.0)
    assert len(binder.core.takeover.put_off) == 2
    assert world.coordinator.core.state.stats.unresolved == 2
    list_again(world, binder, "podgroups")
    scene.go(2.0)
    assert not binder.core.takeover.put_off
    return node


@pytest.mark.parametrize("replaced", [False, True])
def test_a_gang_whose_binder_put_it_off_is_told_its_end_and_goes_elsewhere(*, replaced: bool) -> None:
    """By the binder that settled it, or by one that knows nothing of it."""
    scene = Scene(nodes=2, devices=1)
    names = members(scene, 2, minimum=2)
    other = {"n0": "n1", "n1": "n0"}[put_off(scene)]
    if replaced:
        scene.world.replace_binder()
    scene.go(30.0)
    assert {scene.world.node_of(name) for name in names} == {other}
    assert devices_of(scene.claim("g-gpu")) == [f"{DRIVER}/{other}/d0"]


def test_ablation_a_gang_that_was_put_off_and_is_not_asked_for_waits_beside_a_free_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Ledger, "ask_later", lambda self, uid: None)
    scene = Scene(nodes=2, devices=1)
    names = members(scene, 2, minimum=2)
    put_off(scene)
    scene.go(30.0)
    assert not any(map(scene.world.node_of, names))


@pytest.mark.parametrize("sends", [1, 2])
@pytest.mark.parametrize("before", [False, True])
def test_a_member_is_in_doubt_by_a_refused_plan_only_if_a_send_before_may_have_been_taken_up(
    *, before: bool, sends: int
) -> None:
    """A plan that was refused at once had no effect, which says nothing of what an earlier one may have left."""
    scene = Scene(nodes=1, devices=1)
    members(scene, 1)
    world, state = scene.world, scene.world.coordinator.core.state
    uid = scene.kube.pods["default/p0"]["metadata"]["uid"]
    while not any(isinstance(effect, SendPlan) for effect in world.coordinator.effects):
        step_of(scene)
    if before:
        state.groups.given_back(uid, untold_until=world.now + 60.0)
    [order] = [effect for effect in world.coordinator.effects if isinstance(effect, SendPlan)]
    plan_id = order.plan.plan_id
    for _ in range(1, sends):
        world.inform(world.coordinator, PlanFailed(plan_id, "peer_unknown", refused=False))
        scene.advance(world.now + 5.0)
    assert world.coordinator.core.ledger.plans[plan_id].sends == sends
    world.inform(world.coordinator, PlanFailed(plan_id, "wire_invalid", refused=True))
    assert uid not in world.coordinator.core.ledger.placed
    assert state.groups.in_doubt(state.groups.key_of[uid], world.now) is (before or sends > 1)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_gang_that_was_put_off_and_lost_a_member_holds_no_devices_in_vain(*, replaced: bool) -> None:
    scene = Scene(nodes=2, devices=1)
    members(scene, 2, minimum=2)
    put_off(scene)
    if replaced:
        scene.world.replace_binder()
    scene.kube.remove_pod("p1")
    scene.go(30.0)
    assert not scene.world.node_of("p0")
    assert not devices_of(scene.claim("g-gpu"))
    assert leaked(scene.kube) == []


def step_of(scene: Scene) -> None:
    """The next thing that happens."""
    world = scene.world
    control_claims(scene.kube)
    world.look(world.coordinator)
    world.watch(world.binder)
    world.route_answers()
    if world.coordinator.effects:
        world.do(world.coordinator)
    elif world.binder.effects:
        world.run(world.binder)
    else:
        scene.advance(world.now + 0.05)


@pytest.mark.parametrize("shards", [("0",), ("0", "1")])
def test_one_group_after_the_other_gives_devices_that_the_cluster_shares_once(shards: tuple[str, ...]) -> None:
    scene = Scene(nodes=4, devices=0, shards=shards)
    add_devices(scene.kube, "net", 2, allNodes=True)
    names = [f"{group}{number}" for group in "abc" for number in range(3)]
    for group in "abc":
        add_group(scene.kube, group)
    for name in names:
        add_member(scene.kube, name, name[0], cpu="1")
    world = scene.world
    end = world.now + 30.0
    while world.now < end:
        control_claims(scene.kube)
        scene.drain()
        assert check_all(world) + check_claims(scene.kube, local=False) == []
        scene.advance(world.now + 0.25)
    bound = {name[0] for name in names if world.node_of(name)}
    assert len(bound) == 2
    assert sum(bool(world.node_of(name)) for name in names) == 6
    assert leaked(scene.kube) == []


def test_ablation_without_a_mark_for_each_member_one_is_bound_on_what_is_being_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The coordinator gives back what it has seen; a member that it plans meanwhile must make that a conflict."""

    def trusting(self: ClaimsOfTerm, binding: Any, key: str, consumer: Any) -> bool:
        shown = self._state.devices.accounts.shown.get(key)
        return shown is not None and shown.allocation is not None and consumer.uid in shown.reserved_for

    assert not freed_beneath()
    monkeypatch.setattr(ClaimsOfTerm, "_carried", trusting)
    assert freed_beneath()


def freed_beneath() -> list[str]:
    """What is wrong when a coordinator gives a group's claim back in the moment in which a new one plans a member."""
    scene = Scene(nodes=1, devices=1)
    world = scene.world
    add_group(scene.kube, "g")
    add_member(scene.kube, "p0", "g")
    control_claims(scene.kube)
    allocated_before(scene, "g-gpu", "n0", reference(scene))
    shown = scene.claim("g-gpu")
    while not any(isinstance(effect, Bind | WriteClaim) for effect in world.binder.effects):
        step_of(scene)
    meta = shown["metadata"]
    order = FreeClaim("default", "g-gpu", meta["uid"], reference(scene)["uid"], meta["resourceVersion"])
    world._write(world.coordinator, world.writes.free_claim(order), "ok")
    world.run(world.binder)
    return check_claims(scene.kube) if world.node_of("p0") else []


def test_ablation_if_each_member_were_a_consumer_the_257th_would_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ClaimAccounts.assume

    def each(self: ClaimAccounts, *args: Any, group_uid: str = "", **kinds: Any) -> str:
        return whole(self, *args, **kinds)

    monkeypatch.setattr(ClaimAccounts, "assume", each)
    scene = Scene(nodes=1, devices=1, agents=1)
    members(scene, 2)
    control_claims(scene.kube)
    scene.drain()
    accounts = scene.world.coordinator.core.state.devices.accounts
    assert any(len(one.reserves) == 2 for one in accounts.assumed.values())
