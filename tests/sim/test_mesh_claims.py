"""Pods that claim devices go through the whole mesh: what they get, whom they wait for, what is given back."""

from __future__ import annotations

from typing import Any

from tests.builders import make_node
from tests.sim.claims import (
    FINALIZER,
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

    def __init__(self, *, nodes: int = 2, devices: int = 2, agents: int = 2) -> None:
        super().__init__(1, nodes=nodes, agents=agents)
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
