"""Whom pods with claims wait for, and what wakes them."""

from __future__ import annotations

from services.binder.core.instructions import WriteClaim
from shared.kube.scheduling_kinds import DEVICE_CLAIMS
from shared.model.cluster_events import Listed
from shared.model.units.pod_group import GroupSource, PodGroup, group_key
from tests.builders import make_node, make_pod
from tests.fake_kube import copy
from tests.sim.claims import (
    DRIVER,
    TAINT_RULES,
    add_claim,
    add_claiming,
    add_devices,
    check_claims,
    control_claims,
    devices_of,
    leaked,
)
from tests.sim.test_mesh_claims import Scene


def step(scene: Scene) -> None:
    """Everything is told, and one thing done that is to be done; else time passes."""
    world = scene.world
    world.look(world.coordinator)
    world.watch(world.binder)
    world.route_answers()
    if world.coordinator.effects:
        world.do(world.coordinator)
    elif world.binder.effects:
        world.run(world.binder)
    else:
        scene.advance(world.now + 0.02)


def test_what_a_pod_that_went_was_to_get_wakes_those_that_wait_on_other_nodes() -> None:
    scene = Scene(nodes=2, devices=0)
    add_devices(scene.kube, "net", 1, allNodes=True)
    scene.kube.add_pod(make_pod("fill").cpu("3900m").on("n0"))
    scene.kube.change_node("n1", unschedulable=True)
    add_claiming(scene.kube, "a", cpu="50m")
    control_claims(scene.kube)
    world = scene.world
    while not any(isinstance(effect, WriteClaim) for effect in world.binder.effects):
        step(scene)
    writes = [effect for effect in world.binder.effects if isinstance(effect, WriteClaim)]
    scene.kube.change_node("n1", unschedulable=False)
    add_claiming(scene.kube, "b", cpu="2")
    control_claims(scene.kube)
    while not scene.told("b"):
        world.binder.effects[:] = [effect for effect in world.binder.effects if not isinstance(effect, WriteClaim)]
        step(scene)
    scene.kube.remove_pod("a")
    world.binder.effects[:0] = writes
    end = world.now + 20.0
    while world.now < end:
        control_claims(scene.kube)
        scene.drain()
        scene.advance(world.now + 0.25)
    assert check_claims(scene.kube, local=False) == []
    assert world.node_of("b") == "n1"


def test_a_claim_that_keeps_a_member_of_a_gang_from_every_node_is_freed() -> None:
    scene = Scene(nodes=2, devices=1)
    scene.kube.add_node(make_node("n2").allocatable(cpu="4"))
    add_devices(scene.kube, "n2", 1)
    key = group_key(GroupSource.PLUGINS, "default", "g")
    scene.world.tell_group(PodGroup(key, GroupSource.PLUGINS, "default", "g", gang=True, min_count=2))
    uid = add_claiming(scene.kube, "a", group="g")
    add_claiming(scene.kube, "b", group="g")
    control_claims(scene.kube)
    changed = copy(scene.claim("a-gpu"))
    names = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}
    given = {"request": "r", "driver": DRIVER, "pool": "n0", "device": "d0"}
    changed["status"] = {
        "allocation": {"devices": {"results": [given]}, "nodeSelector": {"nodeSelectorTerms": [names]}},
        "reservedFor": [{"resource": "pods", "name": "a", "uid": uid}],
    }
    scene.kube.put_object(DEVICE_CLAIMS, changed)  # an earlier attempt's, whose scheduler has died
    scene.kube.change_node("n0", unschedulable=True)
    scene.go(30.0)
    assert {scene.world.node_of("a"), scene.world.node_of("b")} == {"n1", "n2"}
    assert devices_of(scene.claim("a-gpu")) == [f"{DRIVER}/{scene.world.node_of('a')}/d0"]
    assert leaked(scene.kube) == []


def test_a_new_leader_queues_pods_with_claims_among_the_others_by_their_age() -> None:
    scene = Scene(nodes=1, devices=0)
    names = ["p0", "claims", "p1"]
    for number, name in enumerate(names):
        if name == "claims":
            add_claiming(scene.kube, name, cpu="8")
        else:
            scene.kube.add_pod(make_pod(name).cpu("8"))
        control_claims(scene.kube)
        changed = copy(scene.kube.pods[f"default/{name}"])
        changed["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:0{number}Z"
        scene.kube._store_pod(changed)
    scene.drain()
    scene.world.replace_coordinator()
    scene.drain()
    queue = scene.world.coordinator.core.state.queue
    assert list(queue.entries) == [scene.world.uid(name) for name in names]


def test_a_pod_whose_claims_nobody_may_read_is_told_so_and_is_tried_once_they_are() -> None:
    scene = Scene(nodes=1, devices=1)
    add_claiming(scene.kube, "a")
    scene.drain()
    world = scene.world
    assert scene.told("a") == ""
    world.inform(world.coordinator, Listed("resourceclaims", served=False))
    scene.drain()
    assert "resource.k8s.io/v1 resourceclaims that we may list" in scene.told("a")
    assert not world.coordinator.core.state.gated
    add_claiming(scene.kube, "b")
    scene.drain()
    assert "resource.k8s.io/v1 resourceclaims that we may list" in scene.told("b")
    scene.kube.remove_pod("b")
    scene.go(10.0)
    assert world.node_of("a") == "n0"


def test_a_gang_that_sleeps_for_devices_is_tried_when_a_claim_gives_some_back() -> None:
    scene = Scene(nodes=3, devices=1)
    add_claiming(scene.kube, "x")
    scene.go(5.0)
    assert scene.world.node_of("x")
    key = group_key(GroupSource.PLUGINS, "default", "g")
    scene.world.tell_group(PodGroup(key, GroupSource.PLUGINS, "default", "g", gang=True, min_count=3))
    for name in "abc":
        add_claiming(scene.kube, name, group="g")
    scene.go(10.0)
    assert "minCount (3) cannot be satisfied: 2 scheduled" in scene.told("a")
    scene.kube.remove_pod("x")
    scene.drain()  # its claim has the device still
    assert not scene.world.node_of("a")
    scene.go(10.0)
    assert all(scene.world.node_of(name) for name in "abc")
    assert leaked(scene.kube) == []


def test_a_device_taint_rule_keeps_pods_from_devices_while_it_is_there() -> None:
    scene = Scene(nodes=1, devices=1)
    rule = {"deviceSelector": {"driver": DRIVER}, "taint": {"key": "broken", "effect": "NoSchedule"}}
    scene.kube.put_object(TAINT_RULES, {"metadata": {"name": "r"}, "spec": rule})
    add_claiming(scene.kube, "a")
    scene.go(5.0)
    assert scene.told("a").startswith("0/1 nodes are available: 1 cannot allocate all claims.")
    scene.kube.drop_object(TAINT_RULES, "r")
    scene.go(10.0)
    assert scene.world.node_of("a") == "n0"


def full(pods: int) -> tuple[Scene, list[str]]:
    """Two devices, more pods than that, and those that wait for one."""
    scene = Scene(nodes=2, devices=1)
    names = [f"p{number}" for number in range(pods)]
    for name in names:
        add_claiming(scene.kube, name)
    scene.go()
    waiting = [name for name in names if not scene.world.node_of(name)]
    assert len(waiting) == pods - 2
    assert all("cannot allocate all claims" in scene.told(name) for name in waiting)
    return scene, waiting


def test_changes_that_help_no_pod_that_waits_for_devices_wake_and_tell_none() -> None:
    scene, waiting = full(8)
    stats = scene.world.coordinator.core.state.stats
    before = stats.woken, stats.events, stats.conditions
    for number in range(20):
        broken = {"taints": [{"key": "broken", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}]}
        add_devices(scene.kube, "spare", 1 + number % 3, broken, allNodes=True)
        changed = copy(scene.claim(f"{waiting[number % 6]}-gpu"))
        changed["metadata"]["annotations"] = {"touched": str(number)}
        scene.kube.put_object(DEVICE_CLAIMS, changed)
        scene.go(2.0)
    assert (stats.woken, stats.events, stats.conditions) == before


def test_pods_that_lose_one_device_after_the_other_to_somebody_else_are_told_no_more_than_once_for_each() -> None:
    """Each device that comes wakes all of them, and none gets it: a word to every one each time would be a storm."""
    scene, waiting = full(5)
    world = scene.world
    stats = world.coordinator.core.state.stats
    theirs = scene.kube.add_pod(make_pod("theirs").on("n0"))
    events, conditions, woken, losses = stats.events, stats.conditions, stats.woken, 12
    for number in range(losses):
        name = f"spare{number}"
        add_devices(scene.kube, name, 1, allNodes=True)
        while not any(isinstance(effect, WriteClaim) for effect in world.binder.effects):
            step(scene)
        given = {"request": "r", "driver": DRIVER, "pool": name, "device": "d0"}
        add_claim(scene.kube, f"of-{name}")
        taken = copy(scene.claim(f"of-{name}"))
        taken["status"] = {
            "allocation": {"devices": {"results": [given]}},
            "reservedFor": [{"resource": "pods", "name": "theirs", "uid": theirs}],
        }
        scene.kube.put_object(DEVICE_CLAIMS, taken)
        end = world.now + 40.0
        while world.now < end:
            control_claims(scene.kube)
            scene.drain()
            scene.advance(world.now + 0.5)
    assert stats.woken >= woken + losses
    assert not any(map(world.node_of, waiting))
    assert stats.events - events <= losses
    assert stats.conditions - conditions <= losses
