"""Scenes with Queue objects."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from services.coordinator.core.instructions import PatchCondition
from shared.model.cluster_events import ObjectChanged
from shared.model.units.pod_group import GroupSource, PodGroup, group_key
from shared.model.units.queue import QUEUE_LABEL, Queue
from shared.scheduling.places import Place
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene, check_bound_once, check_overcommit, check_places

KEY = group_key(GroupSource.NATIVE, "default", "train")


def scene_with(*queues: Queue, nodes: int = 2, cpu: str = "4") -> Scene:
    scene = Scene()
    for number in range(nodes):
        scene.add_node(make_node(f"n{number}").allocatable(cpu=cpu).node())
    for queue in queues:
        put(scene, queue)
    scene.begin()
    scene.run()
    return scene


def put(scene: Scene, queue: Queue) -> None:
    scene.inbox.append(ObjectChanged("queues", queue.name, replace(queue, generation=1)))


def add(scene: Scene, label: str, *names: str, cpu: str = "1", **changes: Any) -> None:
    for name in names:
        labels = {QUEUE_LABEL: label} if label else {}
        scene.add_pod(replace(make_pod(name).cpu(cpu).pod(), labels=labels, **changes))


def bound(scene: Scene) -> list[str]:
    assert check_bound_once(scene) == []
    assert check_overcommit(scene) == []
    assert check_places(scene) == []
    return [uid.removeprefix("uid-") for uid, _ in scene.bindings]


def told(scene: Scene, name: str) -> str:
    return next((p.message for p in reversed(scene.of(PatchCondition)) if p.uid == f"uid-{name}"), "")


def place(scene: Scene, name: str) -> Place:
    return scene.core.state.queue.entries[f"uid-{name}"].place


def cpus(amount: int) -> dict[str, int]:
    return {"cpu": amount * 1000}


def gang(scene: Scene, name: str, size: int, *, label: str = "", minimum: int | None = None, **more: Any) -> str:
    """A pod group and its members, a CPU each; its key. ``minimum`` None: all."""
    key = group_key(GroupSource.NATIVE, "default", name)
    labels = {QUEUE_LABEL: label} if label else {}
    least = size if minimum is None else minimum
    change_group(
        scene,
        PodGroup(key, GroupSource.NATIVE, "default", name, min_count=least, labels=labels, **{"gang": True, **more}),
    )
    for number in range(size):
        scene.add_pod(replace(make_pod(f"{name}-{number}").cpu("1").pod(), group=key))
    return key


def change_group(scene: Scene, group: PodGroup) -> None:
    scene.inbox.append(ObjectChanged("podgroups", f"{group.namespace}/{group.name}", group))


def used(scene: Scene, name: str) -> int:
    """Milli-cores that count in a queue."""
    return scene.core.state.queues.structure.nodes[name].used.get("cpu", 0)
