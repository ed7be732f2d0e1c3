"""Nodes' zones in the coordinator: who is woken when, what room is made once for, what is learnt from kubelets."""

from __future__ import annotations

from shared.model.cluster_events import ObjectChanged
from shared.model.node_topology import NodeTopology
from shared.model.pod import Pod
from shared.scheduling.numa.inside import LATE_S
from shared.scheduling.numa.refusals import FIRST_S, NEVER
from shared.scheduling.places import Place
from shared.scheduling.state.zones_port import ZONE_KINDS
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene, check_places
from tests.unit.shared.scheduling.numa.make import later, topology

KIND = next(iter(ZONE_KINDS))


def aligned(name: str, cpu: int, *, priority: int = 0, node: str = "") -> Pod:
    """A Guaranteed pod."""
    built = make_pod(name).cpu(str(cpu)).memory("1Gi").priority(priority)
    resources = built.json["spec"]["containers"][0]["resources"]
    resources["limits"] = dict(resources["requests"])
    return (built.on(node) if node else built).pod()


def show(scene: Scene, item: NodeTopology | None, node: str = "n0") -> None:
    scene.inbox.append(ObjectChanged(KIND, node, item))
    scene.run()


def machine(*pods: Pod, free: tuple[int, ...], nodes: int = 1) -> Scene:
    """Machines of two zones of 8 CPUs; on ``n0`` stand the pods."""
    scene = Scene()
    for number in range(nodes):
        scene.add_node(make_node(f"n{number}").allocatable(cpu="16", memory="64Gi").node())
    for pod in pods:
        scene.add_pod(pod)
    scene.inbox.append(ObjectChanged(KIND, "n0", topology(memory=0, free=free)))
    scene.begin()
    scene.run()
    return scene


def parked(scene: Scene) -> int:
    return scene.core.state.queue.count()[Place.UNSCHEDULABLE]


def test_one_victim_is_enough_however_late_the_object_shows_its_zone_free() -> None:
    scene = machine(aligned("b", 5, node="n0"), aligned("d", 5, node="n0"), free=(3, 3))
    scene.add_pod(aligned("p", 6, priority=100))
    scene.run(until_s=LATE_S / 2)
    (victim,) = scene.evicted
    assert scene.bindings == []
    assert scene.core.state.zones.left("n0") == {victim}
    show(scene, topology(memory=0, free=(8, 3) if victim == "uid-b" else (3, 8), version="2"))
    scene.run(until_s=15)
    assert scene.bindings == [("uid-p", "n0")]
    assert len(scene.evicted) == 1
    assert not check_places(scene)


def test_who_is_not_aligned_waits_for_no_zone() -> None:
    scene = machine(aligned("b", 5, node="n0"), aligned("d", 5, node="n0"), free=(3, 3))
    scene.add_pod(aligned("q", 1, priority=200))  # since one has asked, zones are known
    scene.run()
    scene.keep_victims = True
    scene.add_pod(make_pod("p").cpu("8").priority(100).pod())
    scene.run(until_s=5)
    (victim,) = scene.evicted
    scene.delete_pod(victim)
    scene.add_pod(make_pod("thief").cpu("5").on("n0").pod())
    scene.run(batch=2, until_s=15)
    assert len(scene.evicted) == 2, "its room is gone, and no zone brings it back"


def test_a_pod_that_waits_for_a_zone_is_woken_when_the_object_cannot_be_late_any_more() -> None:
    scene = machine(aligned("b", 5, node="n0"), free=(3, 8))
    scene.add_pod(aligned("a", 5))
    scene.run()
    assert scene.bindings == [("uid-a", "n0")]
    scene.add_pod(aligned("c", 6))
    scene.run()
    assert parked(scene) == 1
    scene.delete_pod("uid-b")
    scene.run(until_s=LATE_S - 1)
    assert len(scene.bindings) == 1, "a sits in zone 0 or 1: nobody knows"
    scene.run(until_s=2)
    assert scene.bindings[1:] == [("uid-c", "n0")], "what reads the same is no event"


def test_an_object_that_is_written_again_and_says_the_same_may_open_room() -> None:
    scene = machine(aligned("b", 4, node="n0"), aligned("z", 8, node="n0"), free=(4, 0))
    scene.add_pod(aligned("a", 4))
    scene.run()
    scene.add_pod(aligned("c", 4))
    scene.run()
    assert scene.bindings == [("uid-a", "n0")]
    scene.delete_pod("uid-b")
    scene.run()
    assert parked(scene) == 1
    show(scene, later(topology(memory=0, free=(4, 0)), 2))
    scene.run(until_s=1)
    assert scene.bindings[1:] == [("uid-c", "n0")]


def refused(scene: Scene, name: str) -> None:
    scene.change_pod(f"uid-{name}", phase="Failed", refused="TopologyAffinityError")
    scene.run()


def test_a_kubelet_that_refuses_is_left_alone_and_tried_again_by_time() -> None:
    scene = machine(free=(8, 8))
    scene.add_pod(aligned("a", 5))
    scene.run()
    refused(scene, "a")
    scene.add_pod(aligned("b", 5))
    scene.run(until_s=FIRST_S - 1)
    assert [uid for uid, _ in scene.bindings] == ["uid-a"]
    scene.run(until_s=2)
    assert [uid for uid, _ in scene.bindings] == ["uid-a", "uid-b"]
    refused(scene, "b")
    scene.add_pod(aligned("c", 5))
    scene.run(until_s=2 * FIRST_S - 1)
    assert len(scene.bindings) == 2
    scene.run(until_s=2)
    assert len(scene.bindings) == 3


def test_without_objects_a_refusal_changes_nothing() -> None:
    scene = Scene()
    scene.add_node(make_node("n0").allocatable(cpu="16", memory="64Gi").node())
    scene.begin()
    scene.run()
    scene.add_pod(aligned("a", 5))
    scene.run()
    refused(scene, "a")
    scene.add_pod(aligned("b", 5))
    scene.run()
    assert [uid for uid, _ in scene.bindings] == ["uid-a", "uid-b"]
    assert scene.core.state.zones.wake_at == NEVER
