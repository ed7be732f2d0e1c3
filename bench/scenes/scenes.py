"""The scenes of docs/performance.md in small: each gives how many pods, or changes, its opcodes are of.

What differs between scenes is what pods ask for and what is there before; all pods of a burst come at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from bench.preemption import load as gpu_load
from bench.quality import scenes as bursts
from bench.saturation import load
from bench.scenes.world import SceneWorld
from shared.model.cluster_objects import PersistentVolume, VolumeClaim
from shared.model.devices import Device, DeviceAsk, DeviceClaim, DeviceClass, DeviceRequest, DeviceSlice, Reach
from shared.model.units.pod_group import GroupSource, PodGroup, group_key
from shared.model.units.queue import Queue

PODS = 64
"""As few as there are nodes, so that all scenes together take seconds."""
DRIVER = "scene.conclave.bench"
LENT = "kubernetes.io/batch-cpu"
Json = dict[str, Any]
Body = Callable[[int], Json]


def burst(world: SceneWorld, pod: Body, *, pods: int = PODS) -> int:
    """Pods on nodes that are there."""
    world.settle()
    with world.counting():
        return world.until_bound([world.add_pod(pod(number)) for number in range(pods)])


def nodes(world: SceneWorld, count: int = 0) -> None:
    """Empty ones in three zones; 0: the world's number."""
    for number in range(count or world.nodes):
        world.add_node(load.node(f"node-{number:05}", number))


def of_bodies(name: str, world: SceneWorld) -> int:
    """A scene that ``bench.quality`` has."""
    nodes(world)
    if name == "deployments":
        bursts.objects(world)
    return burst(world, bursts.SCENES[name])


def joining(world: SceneWorld) -> int:
    """Pods wait, and nodes come that take them."""
    nodes(world, 1)
    world.settle()
    cpu, memory = load.NODE_CPU_MILLIS // 2 + 100, 256
    waiting = [world.add_pod(load.pod(f"pod-{number:06}", cpu, memory)) for number in range(PODS + 1)]
    world.until_told([uid for uid in waiting if uid not in world.bound][1:])
    with world.counting():
        for number in range(1, PODS + 1):
            world.add_node(load.node(f"node-{number:05}", number))
        return world.until_bound(waiting) - 1


def running(world: SceneWorld) -> int:
    """The same burst beside pods that run already."""
    nodes(world)
    for number in range(10 * world.nodes):
        world.add_pod(
            load.pod(f"standing-{number:05}", 10, 16, on=f"node-{number % world.nodes:05}", scheduler="other")
        )
    return burst(world, bursts.like)


def gangs(size: int, count: int, world: SceneWorld) -> int:
    """Native gangs of so many members."""
    nodes(world)
    _groups(world, count, size)
    return burst(world, partial(_member, size, 100), pods=count * size)


def gangs_that_wait(world: SceneWorld) -> int:
    """Gangs of four of which no member fits: until each has been told why."""
    nodes(world)
    _groups(world, PODS // 4, 4)
    world.settle()
    with world.counting():
        cpu = 2 * load.NODE_CPU_MILLIS
        return world.until_told([world.add_pod(_member(4, cpu, number)) for number in range(PODS)])


def _groups(world: SceneWorld, count: int, size: int) -> None:
    for number in range(count):
        key, name = group_key(GroupSource.NATIVE, "default", f"gang-{number:05}"), f"gang-{number:05}"
        world.add_group(PodGroup(key, GroupSource.NATIVE, "default", name, gang=True, min_count=size))


def _member(size: int, cpu_millis: int, number: int) -> Json:
    group = {"podGroupName": f"gang-{number // size:05}"}
    return load.pod(f"pod-{number:06}", cpu_millis, 256, schedulingGroup=group)


def preemptors(scene: str, world: SceneWorld) -> int:
    """Pods of one GPU onto nodes whose eight are all taken."""
    count = PODS // 4 * 3
    for number in range(PODS // gpu_load.GPUS):
        world.add_node(gpu_load.node(number))
    for body in gpu_load.standing(PODS // gpu_load.GPUS):
        _add(world, body, queues=scene == gpu_load.RECLAIM)
    if scene == gpu_load.GANGS:
        _groups(world, count // gpu_load.MEMBERS, gpu_load.MEMBERS)
    if scene == gpu_load.RECLAIM:
        for queue in (Queue(gpu_load.LENDER, guaranteed={gpu_load.GPU: PODS}, reclaim=True), Queue(gpu_load.BORROWER)):
            world.add_object("queues", queue.name, queue)
    wanting = [body for _, body in gpu_load.wanting(scene, "gang", count)]
    world.settle()
    with world.counting():
        found = world.until_bound([_add(world, body, queues=scene == gpu_load.RECLAIM) for body in wanting])
    if len(world.evicted) != found:
        raise AssertionError(f"{len(world.evicted)} victims for {found} pods")
    return found


def _add(world: SceneWorld, body: Json, *, queues: bool) -> str:
    body["metadata"]["namespace"] = "default"
    if not queues:
        body["metadata"]["labels"].pop(gpu_load.QUEUE_LABEL, "")
    return world.add_pod(body)


def _full(world: SceneWorld) -> list[str]:
    """Nodes that are full; the uids of the pods that fill them."""
    nodes(world, PODS // 4)
    return [world.add_pod(load.filler(number, f"node-{number // load.FILLERS_PER_NODE:05}"))
            for number in range(PODS // 4 * load.FILLERS_PER_NODE)]  # fmt: skip


def told(world: SceneWorld) -> int:
    """Pods that find every node full, of more important ones: until each has been told why."""
    _full(world)
    world.settle()
    with world.counting():
        return world.until_told([world.add_pod(load.low(number, PODS // 8)) for number in range(PODS)])


def urgent(world: SceneWorld, *, others: int = 0) -> int:
    """Beside those that wait one pod leaves a second, and an urgent one comes that must preempt. ``others``: more
    nodes, which they may not use."""
    fillers = _full(world)
    for number in range(others):
        world.add_node(load.node(f"other-{number:05}", number, other=True))
    world.settle()
    world.until_told([world.add_pod(load.low(number, PODS // 8)) for number in range(PODS)])
    count, coming = PODS // 8, list[str]()
    with world.counting():
        for number in range(count):
            world.remove_pod(fillers[-1 - number])
            coming.append(world.add_pod(load.urgent(number)))
            world.run(world.now + 1)
        return world.until_bound(coming)


def lending(world: SceneWorld, number: int, cores: int) -> None:
    """A node that lends so many cores, new or changed."""
    body = load.node(f"node-{number:05}", number)
    body["status"]["allocatable"] = {**body["status"]["allocatable"], LENT: str(1000 * cores)}
    world.add_node(body)


def _settle(world: SceneWorld) -> None:
    """With both settings on."""
    world.settle()
    world.core.state.settings = replace(world.core.state.settings, offline_eviction=True, offline_preemption=True)


def offline(name: str, *, group: str = "", on: str = "") -> Json:
    """On a core that is lent; a controller would make it anew."""
    body = load.pod(name, 0, 256, on=on, **({"schedulingGroup": {"podGroupName": group}} if group else {}))
    body["spec"]["containers"][0]["resources"]["requests"] = {LENT: "1000"}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "job", "controller": True}
    body["metadata"] |= {"ownerReferences": [owner]}
    return body


def colocated(lone: int, gangs: int, world: SceneWorld) -> int:
    """Of each four pods so many are offline and alone, and so many members of offline gangs of four; the others are
    online, of four shapes as the pods of ``like``."""
    for number in range(world.nodes):
        lending(world, number, 16)
    _groups(world, PODS // 4 * gangs // 4, 4)

    def pod(number: int) -> Json:
        turn, name = number % 4, f"pod-{number:06}"
        if turn < gangs:
            return offline(name, group=f"gang-{(number // 4 * gangs + turn) // 4:05}")
        return offline(name) if turn < gangs + lone else load.pod(name, 100 + 50 * (number // 4 % 4), 256)

    _settle(world)
    with world.counting():
        return world.until_bound([world.add_pod(pod(number)) for number in range(PODS)])


def giving_way(world: SceneWorld) -> int:
    """Nodes that are full of offline pods lend half of it: until the others have left."""
    count = PODS // 4
    for number in range(count):
        lending(world, number, 8)
        for other in range(8):
            name = f"node-{number:05}"
            world.add_pod(offline(f"pod-{8 * number + other:06}", on=name))
    _settle(world)
    with world.counting():
        for number in range(count):
            lending(world, number, 4)
        world.until(lambda: len(world.evicted) >= PODS)
    if len(world.evicted) != PODS:
        raise AssertionError(f"{len(world.evicted)} pods left where {PODS} had to")
    return PODS


def volumes(world: SceneWorld) -> int:
    """Pods whose claims are bound to volumes of a CSI driver."""
    nodes(world)
    for number in range(world.nodes):
        world.add_object("csinodes", f"node-{number:05}", {DRIVER: 8})
    for number in range(PODS):
        key, name = f"default/data-{number}", f"volume-{number}"
        world.add_object("persistentvolumes", name, PersistentVolume(name, claim=(key, key), csi=(DRIVER, name)))
        claim = VolumeClaim(key, uid=key, volume_name=name, bind_completed=True)
        world.add_object("persistentvolumeclaims", key, claim)

    def pod(number: int) -> Json:
        mounted = {"name": "data", "persistentVolumeClaim": {"claimName": f"data-{number}"}}
        return load.pod(f"pod-{number:06}", 100, 256, volumes=[mounted])

    return burst(world, pod)


def devices(world: SceneWorld) -> int:
    """Pods that claim one of a node's eight devices."""
    nodes(world)
    world.add_object("deviceclasses", DRIVER, DeviceClass(DRIVER, (f'device.driver == "{DRIVER}"',)))
    every = tuple(Device(f"device-{number}") for number in range(8))
    for number in range(world.nodes):
        name = f"node-{number:05}"
        world.add_object("resourceslices", name, DeviceSlice(name, DRIVER, name, 1, 1, Reach(name), devices=every))
    for number in range(PODS):
        request = DeviceRequest("one", DeviceAsk("one", DRIVER))
        claim = DeviceClaim("default", f"claim-{number}", f"claim-{number}", (request,), resource_version="1")
        world.add_object("resourceclaims", claim.key, claim)

    def pod(number: int) -> Json:
        claimed = {"name": "one", "resourceClaimName": f"claim-{number}"}
        return load.pod(f"pod-{number:06}", 100, 256, resourceClaims=[claimed])

    return burst(world, pod)


SCENES: dict[str, Callable[[SceneWorld], int]] = {
    **{name: partial(of_bodies, name) for name in bursts.SCENES if name != "used"},
    "running": running, "join": joining,
    "gangs-3": partial(gangs, 3, 21), "gangs-16": partial(gangs, 16, 4), "gangs-128": partial(gangs, 128, 1),
    "gangs-wait": gangs_that_wait,
    "preemption": partial(preemptors, gpu_load.PLAIN), "preemption-gangs": partial(preemptors, gpu_load.GANGS),
    "reclaim": partial(preemptors, gpu_load.RECLAIM),
    "colocated-lone": partial(colocated, 2, 0), "colocated-gangs": partial(colocated, 0, 2),
    "colocated": partial(colocated, 1, 1), "giving-way": giving_way,
    "full-told": told, "full-urgent": urgent, "volumes": volumes, "devices": devices,
}  # fmt: skip
POLICIES = ("marl-dqn", "frag", "ee", "el", "lb")
"""Beside kube-default, on the scene ``like``."""
