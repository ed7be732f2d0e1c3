"""Pods that claim devices go through the whole mesh: what they get, whom they wait for, what is given back."""

from __future__ import annotations

from typing import Any

import pytest

from services.cli.explain.text import lines_of
from services.coordinator.inspect.explain import explain
from shared.kube.scheduling_kinds import DEVICE_CLAIMS
from shared.model.units.pod_group import GroupSource, GroupTopology, PodGroup, group_key
from tests.builders import make_node, make_pod
from tests.fake_kube import copy
from tests.sim.claims import (
    CLASSES,
    DRIVER,
    FINALIZER,
    SLICES,
    add_claim,
    add_claiming,
    add_class,
    add_devices,
    check_claims,
    control_claims,
    devices_of,
    leaked,
)
from tests.sim.mesh_world import MeshWorld
from tests.sim.test_mesh_random_walk import Walk
from tests.unit.services.binder.binder_checks import check_all


class Scene(Walk):
    """Nodes with devices, and time that passes until nothing is left to do."""

    def __init__(
        self, *, nodes: int = 2, devices: int = 2, agents: int = 2, shards: tuple[str, ...] = ()
    ) -> None:  # fmt: skip
        super().__init__(1, nodes=nodes, agents=agents, shards=shards)
        add_class(self.kube)
        for number in range(nodes):
            add_devices(self.kube, f"n{number}", devices)

    @property
    def kube(self) -> Any:
        return self.world.kube

    def go(self, seconds: float = 15.0) -> None:
        end = self.world.now + seconds
        while self.world.now < end:
            before = self.kube.revision
            control_claims(self.kube)
            self.drain()
            assert check_all(self.world) + check_claims(self.kube) == []
            if self.kube.revision == before:
                self.advance(self.world.now + 0.25)

    def claim(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.kube.objects["resourceclaims"][f"default/{name}"]
        return found

    def told(self, name: str) -> str:
        conditions = self.kube.pods[f"default/{name}"]["status"].get("conditions", ())
        return next((one.get("message", "") for one in conditions if one["type"] == "PodScheduled"), "")


def test_a_pod_with_a_claim_template_is_bound_with_a_device_of_its_node() -> None:
    scene = Scene()
    uid = add_claiming(scene.kube, "a")
    scene.go()
    claim = scene.claim("a-gpu")
    assert scene.world.node_of("a") == devices_of(claim)[0].split("/")[1]
    assert claim["status"]["reservedFor"] == [{"resource": "pods", "name": "a", "uid": uid}]
    assert claim["metadata"]["finalizers"] == [FINALIZER]
    assert leaked(scene.kube) == []


def test_no_more_pods_are_bound_than_there_are_devices_and_the_next_is_when_one_is_free() -> None:
    scene = Scene(nodes=2, devices=2)
    for number in range(6):
        add_claiming(scene.kube, f"p{number}")
    scene.go()
    bound = [name for name in (f"p{n}" for n in range(6)) if scene.world.node_of(name)]
    waiting = [name for name in (f"p{n}" for n in range(6)) if name not in bound]
    assert len(bound) == 4
    assert scene.told(waiting[0]).startswith("0/2 nodes are available: 2 cannot allocate all claims.")
    scene.kube.remove_pod(bound[0])
    scene.go()
    assert sum(bool(scene.world.node_of(name)) for name in waiting) == 1
    assert leaked(scene.kube) == []


def test_a_claim_is_shared_by_all_pods_that_name_it_on_one_node() -> None:
    scene = Scene(nodes=3, devices=1)
    for number in range(10):
        add_claiming(scene.kube, f"p{number}", claim="shared")
    scene.go(3.0)
    assert not any(scene.world.node_of(f"p{n}") for n in range(10))
    add_claim(scene.kube, "shared")
    scene.go()
    assert len({scene.world.node_of(f"p{n}") for n in range(10)} - {""}) == 1
    assert len(scene.claim("shared")["status"]["reservedFor"]) == 10


def test_devices_that_come_later_are_taken_by_who_waits() -> None:
    scene = Scene(nodes=2, devices=0)
    add_claiming(scene.kube, "a")
    scene.go(5.0)
    assert scene.told("a").startswith("0/2 nodes are available: 2 cannot allocate all claims.")
    add_devices(scene.kube, "n1", 1)
    scene.go(10.0)
    assert scene.world.node_of("a") == "n1"


def test_a_pod_whose_claims_are_not_made_is_not_tried() -> None:
    scene = Scene()
    scene.kube.add_node(make_node("n9").allocatable(cpu="4"))
    add_claiming(scene.kube, "a")
    scene.drain()
    state = scene.world.coordinator.core.state
    [found] = state.gated.values()
    assert found.lacks == 'pod "default/a": ResourceClaim not created yet'
    assert not state.queue.entries


def test_devices_that_the_cluster_shares_are_given_once() -> None:
    scene = Scene(nodes=3, devices=0)
    add_devices(scene.kube, "net", 2, allNodes=True)
    for number in range(4):
        add_claiming(scene.kube, f"p{number}")
    world: MeshWorld = scene.world
    end = world.now + 15.0
    while world.now < end:
        control_claims(scene.kube)
        scene.drain()
        assert check_all(world) + check_claims(scene.kube, local=False) == []
        scene.advance(world.now + 0.25)
    assert sum(bool(world.node_of(f"p{n}")) for n in range(4)) == 2


def test_a_gang_whose_members_claim_devices_is_bound_whole_or_not_at_all() -> None:
    scene = Scene(nodes=2, devices=1)
    key = group_key(GroupSource.PLUGINS, "default", "g")
    scene.world.tell_group(PodGroup(key, GroupSource.PLUGINS, "default", "g", gang=True, min_count=3))
    for number in range(3):
        add_claiming(scene.kube, f"p{number}", group="g")
    scene.go(10.0)
    assert not any(scene.world.node_of(f"p{n}") for n in range(3))
    assert not any(devices_of(scene.claim(f"p{n}-gpu")) for n in range(3))
    add_devices(scene.kube, "n0", 2)
    scene.go(60.0)
    assert all(scene.world.node_of(f"p{n}") for n in range(3))
    assert leaked(scene.kube) == []


def tell_gang(scene: Scene, count: int, topology: GroupTopology | None = None) -> list[str]:
    key = group_key(GroupSource.PLUGINS, "default", "g")
    scene.world.tell_group(
        PodGroup(key, GroupSource.PLUGINS, "default", "g", gang=True, min_count=count, topology=topology)
    )
    names = [f"p{number}" for number in range(count)]
    for name in names:
        add_claiming(scene.kube, name, group="g")
    return names


def test_members_that_claim_devices_go_where_there_are_enough_for_all_of_them() -> None:
    scene = Scene(nodes=0)
    for node, rack, devices in (("a0", "a", 1), ("a1", "a", 1), ("b0", "b", 2), ("b1", "b", 2)):
        scene.kube.add_node(make_node(node).allocatable(cpu="4").label(rack=rack))
        add_devices(scene.kube, node, devices)
    names = tell_gang(scene, 4, GroupTopology("rack"))
    scene.go(30.0)
    assert {scene.world.node_of(name) for name in names} == {"b0", "b1"}
    assert scene.world.coordinator.core.state.stats.losses == 0


def test_a_gang_that_devices_do_not_suffice_for_is_told_so_and_sleeps_until_there_are_more() -> None:
    scene = Scene(nodes=2, devices=1)
    names = tell_gang(scene, 4)
    scene.go(60.0)
    stats = scene.world.coordinator.core.state.stats
    assert "2/2 nodes are available" not in scene.told("p0")
    assert "minCount (4) cannot be satisfied: 2 scheduled" in scene.told("p0")
    assert "2 cannot allocate all claims" in scene.told("p0")
    conditions = scene.kube.pods["default/p0"]["status"]["conditions"]
    assert [one["reason"] for one in conditions if one["type"] == "PodScheduled"] == ["Unschedulable"]
    assert (stats.losses, stats.gangs_refused) == (0, 1)
    add_devices(scene.kube, "n1", 3)
    scene.go(30.0)
    assert all(scene.world.node_of(name) for name in names)
    assert leaked(scene.kube) == []


def test_members_that_share_a_claim_go_to_the_node_that_it_is_allocated_on() -> None:
    scene = Scene(nodes=3, devices=2)
    add_claim(scene.kube, "shared", count=2)
    key = group_key(GroupSource.PLUGINS, "default", "g")
    scene.world.tell_group(PodGroup(key, GroupSource.PLUGINS, "default", "g", gang=True, min_count=3))
    for number in range(3):
        add_claiming(scene.kube, f"p{number}", claim="shared", group="g", cpu="1")
    scene.go(30.0)
    assert len({scene.world.node_of(f"p{number}") for number in range(3)} - {""}) == 1
    assert len(scene.claim("shared")["status"]["reservedFor"]) == 3


def test_explain_says_which_device_is_refused_by_what() -> None:
    scene = Scene(nodes=2, devices=1)
    for name in ("a", "b", "c"):
        add_claiming(scene.kube, name)
    scene.go(10.0)
    waiting = next(name for name in "abc" if not scene.world.node_of(name))
    core = scene.world.coordinator.core
    pod = core.state.queue.entries[scene.world.uid(waiting)].pod
    [asked] = explain(core, pod, {}, scene.world.now)["devices"]
    assert (asked["claim"], asked["request"], asked["free"]) == (f"default/{waiting}-gpu", "r", 0)
    [refused] = asked["refused"]
    assert (refused["reason"], refused["devices"]) == ("in use", 2)
    scene.kube.put_object(CLASSES, {
        "metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": "device.driver == 'other'"}}]},
    })  # fmt: skip
    scene.drain()
    [asked] = explain(core, pod, {}, scene.world.now)["devices"]
    assert asked["refused"][0]["reason"] == "class gpu: selector #0 does not hold: device.driver == 'other'"
    assert any("2 refused" in line for line in lines_of({**explain(core, pod, {}, scene.world.now), "source": "core"}))


AWAITED = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]}


def say(scene: Scene, claim: str, condition: str) -> None:
    """A driver says of the claim's device that the condition holds."""
    changed = copy(scene.claim(claim))
    [result] = changed["status"]["allocation"]["devices"]["results"]
    told = {"type": condition, "status": "True"}
    of = {key: result[key] for key in ("driver", "pool", "device")}
    changed["status"]["devices"] = [{**of, "conditions": [told]}]
    scene.kube.put_object(DEVICE_CLAIMS, changed)


def test_a_binding_waits_until_the_driver_says_that_the_device_is_attached_and_holds_up_nobody() -> None:
    scene = Scene(nodes=1, devices=0)
    add_devices(scene.kube, "n0", 1, AWAITED)
    add_claiming(scene.kube, "a")
    scene.go(10.0)
    assert devices_of(scene.claim("a-gpu"))
    assert scene.claim("a-gpu")["status"]["allocation"]["allocationTimestamp"]
    assert not scene.world.node_of("a")
    scene.kube.add_pod(make_pod("plain").cpu("1"))
    scene.go(5.0)
    assert scene.world.node_of("plain") == "n0"
    assert scene.world.binder.core.state.conditions_awaited == []
    say(scene, "a-gpu", "Attached")
    scene.go(5.0)
    assert scene.world.node_of("a") == "n0"
    [ended] = scene.world.binder.core.state.take_conditions_awaited()
    assert (ended.driver, ended.status) == (DRIVER, "success")
    assert 10.0 < ended.waited_s < 30.0


def test_a_device_that_cannot_be_attached_is_given_back_and_another_is_chosen() -> None:
    scene = Scene(nodes=1, devices=0)
    add_devices(scene.kube, "n0", 1, AWAITED)
    add_claiming(scene.kube, "a")
    scene.go(5.0)
    assert devices_of(scene.claim("a-gpu"))
    scene.kube.drop_object(SLICES, "n0-slice")
    scene.kube.add_node(make_node("n1").allocatable(cpu="4"))
    add_devices(scene.kube, "n1", 1)
    scene.drain()
    say(scene, "a-gpu", "Broken")
    scene.go(30.0)
    assert scene.world.node_of("a") == "n1"
    assert leaked(scene.kube) == []
    assert [one.status for one in scene.world.binder.core.state.take_conditions_awaited()] == ["failure"]


def test_a_wait_for_conditions_that_ends_because_the_node_is_cordoned_is_counted_as_an_error() -> None:
    scene = Scene(nodes=1, devices=0)
    add_devices(scene.kube, "n0", 1, AWAITED)
    add_claiming(scene.kube, "a")
    scene.go(5.0)
    assert devices_of(scene.claim("a-gpu"))
    assert scene.world.binder.core.state.conditions_awaited == []
    scene.kube.change_node("n0", unschedulable=True)
    scene.go(5.0)
    assert [one.status for one in scene.world.binder.core.state.take_conditions_awaited()] == ["error"]
    assert leaked(scene.kube) == []


def test_a_claim_that_keeps_its_only_pod_from_every_node_is_freed() -> None:
    scene = Scene(nodes=2, devices=1)
    uid = add_claiming(scene.kube, "a")
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
    assert scene.world.node_of("a") == "n1"
    assert devices_of(scene.claim("a-gpu")) == [f"{DRIVER}/n1/d0"]


@pytest.mark.parametrize("agents", [1, 4])
def test_binders_of_several_shards_give_what_the_cluster_shares_once(agents: int) -> None:
    scene = Scene(nodes=4, devices=0, agents=agents, shards=("0", "1"))
    add_devices(scene.kube, "net", 3, allNodes=True)
    for number in range(6):
        add_claiming(scene.kube, f"p{number}")
    world = scene.world
    end = world.now + 40.0
    while world.now < end:
        control_claims(scene.kube)
        scene.drain()
        assert check_all(world) + check_claims(scene.kube, local=False, others=True) == []
        scene.advance(world.now + 0.25)
    assert sum(bool(world.node_of(f"p{n}")) for n in range(6)) == 3
    assert leaked(scene.kube) == []
