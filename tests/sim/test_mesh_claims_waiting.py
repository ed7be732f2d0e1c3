"""Whom pods with claims wait for, and what rouses them."""

from __future__ import annotations

from services.binder.core.instructions import WriteClaim
from shared.kube.scheduling_kinds import DEVICE_CLAIMS
from shared.model.cluster_events import Listed
from shared.model.pod_group import PodGroup, Source, group_key
from tests.builders import make_node, make_pod
from tests.fake_kube import copy
from tests.sim.claims import (
    DRIVER,
    TAINT_RULES,
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


def test_what_a_pod_that_went_was_to_get_rouses_those_that_wait_on_other_nodes() -> None:
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
    key = group_key(Source.PLUGINS, "default", "g")
    scene.world.tell_group(PodGroup(key, Source.PLUGINS, "default", "g", gang=True, min_count=2))
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
    key = group_key(Source.PLUGINS, "default", "g")
    scene.world.tell_group(PodGroup(key, Source.PLUGINS, "default", "g", gang=True, min_count=3))
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
