"""What was borrowed is found where it is: on the one node that a pod may use, of the resource that it needs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shared.model.node import Node
from shared.model.pod import Pod
from shared.model.units.pod_group import GroupSource, PodGroup, group_key
from shared.model.units.queue import QUEUE_LABEL, Queue
from shared.scheduling.places import Place
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.queues.queue_scenes import bound, change_group, cpus, place, scene_with, told
from tests.unit.services.coordinator.scene import Scene

GPU = "nvidia.com/gpu"
NODES = 18
"""More than are tried in one look."""

OWNER, BORROWER = Queue("a", guaranteed={"cpu": 4000, GPU: 2}, reclaim=True), Queue("b")


def nodes() -> list[Node]:
    return [make_node(f"n{i:02}").allocatable(cpu="4").label(host=f"n{i:02}").node() for i in range(NODES)]


def gpu_node() -> Node:
    return make_node("z-gpu").allocatable(cpu="8", **{GPU: "2"}).node()


def asking(name: str, label: str, *, gpus: int = 0, host: str = "", port: int = 0) -> Pod:
    builder = make_pod(name).cpu("1")
    container = builder.json["spec"]["containers"][0]
    if gpus:
        container["resources"]["requests"][GPU] = str(gpus)
    if port:
        container["ports"] = [{"containerPort": port, "hostPort": port}]
    if host:
        builder.json["spec"]["nodeSelector"] = {"host": host}
    return replace(builder.pod(), labels={QUEUE_LABEL: label})


def taken(queues: list[Queue], there: list[Node], pods: list[Pod], *, then: list[Node] | None = None) -> Scene:
    """All of the pods are bound on these nodes; ``then`` come others."""
    scene = scene_with(*queues, nodes=0)
    for node in there:
        scene.add_node(node)
    scene.run()
    for pod in pods:
        scene.add_pod(pod)
    scene.run(batch=1000, until_s=5)
    assert len(bound(scene)) == len(pods)
    for node in then or ():
        scene.add_node(node)
    scene.run(batch=1000)
    return scene


def comes(scene: Scene, pod: Pod, *, until_s: float = 20) -> None:
    scene.add_pod(pod)
    scene.run(batch=1000, until_s=until_s)


def small_pods(label: str = "b", count: int = 4 * NODES) -> list[Pod]:
    return [asking(f"{label}{i}", label) for i in range(count)]


def where(scene: Scene, uid: str) -> str:
    return dict(scene.bindings)[uid]


def test_a_pod_that_may_use_one_node_takes_back_there() -> None:
    scene = taken([OWNER, BORROWER], nodes(), small_pods())
    comes(scene, asking("own", "a", host="n17"))
    assert bound(scene)[-1] == "own"
    assert [where(scene, uid) for uid in scene.evicted] == ["n17"]


@pytest.mark.parametrize("label", ["b", "c"])
def test_a_pod_that_needs_a_gpu_takes_back_a_gpu(label: str) -> None:
    """Whether one queue borrowed CPUs and GPUs, or one of its own the GPUs."""
    borrowed = [asking(f"g{i}", label, gpus=1) for i in range(2)]
    scene = taken([OWNER, BORROWER, Queue("c")], [gpu_node(), *nodes()], borrowed + small_pods())
    comes(scene, asking("own", "a", gpus=1))
    assert bound(scene)[-1] == "own"
    assert len(scene.evicted) == 1
    assert scene.evicted[0].startswith("uid-g")


def test_a_pod_whose_port_is_taken_on_most_nodes_takes_back_where_its_holder_borrowed() -> None:
    holders = [asking(f"h{i:02}", "d", host=f"n{i:02}", port=80) for i in range(NODES - 1)]
    holders.append(asking("hb", "b", host="n17", port=80))
    within = Queue("d", guaranteed=cpus(NODES))
    scene = taken([OWNER, BORROWER, within], nodes(), holders + small_pods(count=3 * NODES))
    comes(scene, asking("own", "a", port=80), until_s=60)
    assert bound(scene)[-1] == "own"
    assert scene.evicted == ["uid-hb"]


def under_a_maximum(*more: Queue) -> list[Queue]:
    top = Queue("top", maximum=cpus(4 * NODES))
    return [top, replace(OWNER, parent="top"), Queue("b", "top"), *more]


def test_below_a_parents_maximum_a_pod_takes_back_on_its_node_alone() -> None:
    extra = [make_node(f"x{i}").allocatable(cpu="4").node() for i in range(2)]
    scene = taken(under_a_maximum(), nodes(), small_pods(), then=extra)
    scene.keep_victims = True
    comes(scene, asking("own", "a", host="n17"), until_s=6)
    assert "queue top" in told(scene, "own")
    scene.delete_pod(scene.evicted[0])
    scene.run(batch=1000, until_s=3)
    assert bound(scene)[-1] == "own"
    assert [where(scene, uid) for uid in scene.evicted] == ["n17"]


def test_below_a_parents_maximum_nobody_goes_for_a_pod_that_no_node_would_take() -> None:
    scene = taken(under_a_maximum(), nodes(), small_pods())
    comes(scene, asking("own", "a", host="nowhere"))
    assert scene.evicted == []


def test_a_limit_of_one_resource_is_lifted_for_another_that_is_guaranteed() -> None:
    """The sibling borrowed the GPUs; it is CPUs that the parent has no more of."""
    top = Queue("top", maximum=cpus(2))
    owner = Queue("a", "top", guaranteed={GPU: 2}, reclaim=True)
    scene = taken([top, owner, Queue("b", "top")], [gpu_node()], [asking(f"g{i}", "b", gpus=1) for i in range(2)])
    comes(scene, asking("own", "a", gpus=1))
    assert bound(scene)[-1] == "own"
    assert len(scene.evicted) == 1


def test_one_who_frees_the_limit_and_one_who_frees_the_node_go_both() -> None:
    """The GPU is another tree's, the CPUs are the sibling's."""
    queues = [Queue("top", maximum=cpus(4), guaranteed={"cpu": 4000, GPU: 2}), replace(OWNER, parent="top")]
    queues += [Queue("b", "top"), Queue("c")]
    borrowed = [asking(f"g{i}", "c", gpus=1) for i in range(2)]
    scene = taken(queues, [gpu_node(), *nodes()[:2]], borrowed + small_pods(count=4))
    comes(scene, asking("own", "a", gpus=1))
    assert bound(scene)[-1] == "own"
    assert sorted(uid[4] for uid in scene.evicted) == ["b", "g"]


def test_a_parked_unit_whose_limit_fills_meanwhile_is_held_back_and_takes_back() -> None:
    """It was parked while the limit had room: what held it then was its node."""
    queues = [Queue("top", maximum=cpus(5)), replace(OWNER, parent="top", reclaim_after_s=3), Queue("b", "top")]
    scene = taken(queues, nodes()[:2], [asking(f"b{i}", "b", host="n00") for i in range(4)])
    comes(scene, asking("own", "a", host="n00"), until_s=1)
    assert place(scene, "own") is Place.UNSCHEDULABLE
    comes(scene, asking("b9", "b", host="n01"), until_s=10)
    assert bound(scene)[-1] == "own"
    assert len(scene.evicted) == 1


def test_a_pod_that_never_preempts_has_nobody_evicted_on_a_node_for_a_limit() -> None:
    scene = taken(under_a_maximum(), nodes(), small_pods())
    comes(scene, replace(asking("own", "a", host="n17"), never_preempts=True))
    assert scene.evicted == []


def test_the_node_of_a_victim_that_may_not_go_is_kept_no_longer() -> None:
    extra = [make_node(f"x{i}").allocatable(cpu="4").node() for i in range(2)]
    scene = taken(under_a_maximum(), nodes(), small_pods(), then=extra)
    stay = {uid for uid, node in scene.bindings if node == "n17"}
    scene.budget_forbids |= stay
    comes(scene, asking("own", "a", host="n17"), until_s=10)
    assert "uid-own" not in dict(scene.bindings)
    scene.budget_forbids -= stay
    scene.run(batch=1000, until_s=120)
    assert "uid-own" in dict(scene.bindings)
    assert not scene.core.state.cluster.nominated_to


def test_nobody_goes_for_a_resource_that_nobody_borrowed() -> None:
    queues = [Queue("a", guaranteed={"cpu": 4000, "example.com/card": 1}, reclaim=True), BORROWER]
    scene = taken(queues, nodes(), small_pods())
    builder = make_pod("own").cpu("1")
    builder.json["spec"]["containers"][0]["resources"]["requests"]["example.com/card"] = "1"
    comes(scene, replace(builder.pod(), labels={QUEUE_LABEL: "a"}))
    assert scene.evicted == []


def a_gang_comes(scene: Scene, *, host: str, **more: bool) -> None:
    key = group_key(GroupSource.NATIVE, "default", "own")
    change_group(scene, PodGroup(key, GroupSource.NATIVE, "default", "own", min_count=2, gang=True))
    for number in range(2):
        scene.add_pod(replace(asking(f"own-{number}", "a", host=host), group=key, **more))
    scene.run(batch=1000, until_s=20)


def test_a_gang_that_never_preempts_has_a_limit_lifted_and_no_node_emptied() -> None:
    extra = [make_node(f"x{i}").allocatable(cpu="4").label(host=f"x{i}").node() for i in range(2)]
    scene = taken(under_a_maximum(), nodes(), small_pods(), then=extra)
    a_gang_comes(scene, host="n17", never_preempts=True)
    assert scene.evicted == []
    scene = taken(under_a_maximum(), nodes(), small_pods(), then=extra)
    a_gang_comes(scene, host="x0", never_preempts=True)
    assert sorted(bound(scene)[-2:]) == ["own-0", "own-1"]


def test_a_gang_below_a_parents_maximum_takes_back_where_its_nodes_are() -> None:
    extra = [make_node(f"x{i}").allocatable(cpu="4").node() for i in range(2)]
    scene = taken(under_a_maximum(), nodes(), small_pods(), then=extra)
    a_gang_comes(scene, host="n17")
    assert sorted(bound(scene)[-2:]) == ["own-0", "own-1"]
    assert [where(scene, uid) for uid in scene.evicted] == ["n17", "n17"]
