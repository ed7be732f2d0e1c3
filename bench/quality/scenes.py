"""Bursts: on empty nodes that are all alike what a burst does to its own pods is all there is to see.

``unlike``: no two pods alike; ``used``: the same on nodes that others use, each by another amount. ``like``: four
shapes. ``deployments``: pods of ReplicaSets behind Services, which have the system's default spread. ``zone-spread``:
apps whose pods must be spread evenly over the zones. ``affinity``: apps that prefer a zone where their own stand.
``anti-affinity``: apps whose pods keep each other off their node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from bench.quality.world import QualityWorld
from bench.saturation import load
from bench.saturation.world import settle_garbage
from shared.model.cluster_objects import Workload
from shared.model.terms.labels import selector_of_labels

APPS = 200
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
Json = dict[str, Any]


def unlike(number: int) -> Json:
    """Of 997 x 1,009 shapes."""
    return load.pod(f"pod-{number:06}", 100 + number % 997, 256 + number % 1009)


def like(number: int) -> Json:
    """Of four shapes."""
    return load.pod(f"pod-{number:06}", 100 + 50 * (number % 4), 256)


def of_deployment(number: int) -> Json:
    """Of a ReplicaSet behind a Service (``objects``)."""
    owner, body = app(number), _pod(number)
    body["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": f"rs-{owner}", "controller": True}
    ]
    return body


def over_zones(number: int) -> Json:
    """No zone has more than one of its app beyond any other."""
    spread = {
        "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app(number)}},
    }  # fmt: skip
    return _pod(number, topologySpreadConstraints=[spread])


def near_its_own(number: int) -> Json:
    """It prefers a zone where its app stands."""
    terms = [{"weight": 50, "podAffinityTerm": _term(number, ZONE)}]
    affinity = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    return _pod(number, affinity=affinity)


def off_its_own(number: int) -> Json:
    """It stands on no node where its app does."""
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_term(number, HOSTNAME)]}}
    return _pod(number, affinity=affinity)


def _pod(number: int, **spec: Any) -> Json:
    """Of its app, whose pods are alike."""
    kind = number % APPS
    return load.pod(f"pod-{number:06}", 100 + 40 * (kind % 23), 128 + 96 * (kind % 19), app=app(number), **spec)


def app(number: int) -> str:
    """The app of a pod, or the app of that number."""
    return f"app-{number % APPS:03}"


def _term(number: int, key: str) -> Json:
    return {"labelSelector": {"matchLabels": {"app": app(number)}}, "topologyKey": key}


class Objects(Protocol):
    """A world that takes objects beside pods and nodes."""

    def add_object(self, kind: str, key: str, item: object) -> None:
        """One."""
        ...


def objects(world: Objects) -> None:
    """A Service and a ReplicaSet of each app."""
    for number in range(APPS):
        name = app(number)
        selector = selector_of_labels({"app": name})
        world.add_object("services", f"default/{name}", Workload("v1", "Service", "default", name, selector))
        replicas = Workload("apps/v1", "ReplicaSet", "default", name, selector)
        world.add_object("replicasets", f"default/{name}", replicas)


def standing(world: QualityWorld, nodes: int) -> None:
    """Each node is used, by up to two thirds of its cpu and, apart from that, of its memory."""
    for number in range(nodes):
        cpu, memory = number * 7919 % load.NODE_CPU_MILLIS * 2 // 3, number * 104_729 % load.NODE_MEMORY_MIB * 2 // 3
        world.add_pod(load.pod(f"standing-{number:05}", 1 + cpu, 1 + memory, on=f"node-{number:05}", scheduler="other"))


SCENES: dict[str, Callable[[int], Json]] = {
    "unlike": unlike, "used": unlike, "like": like, "deployments": of_deployment, "zone-spread": over_zones,
    "affinity": near_its_own, "anti-affinity": off_its_own,
}  # fmt: skip


def fill(world: QualityWorld, scene: str, nodes: int, pods: int) -> None:
    """Nodes, objects, and all pods at once."""
    for number in range(nodes):
        world.add_node(load.node(f"node-{number:05}", number))
    if scene == "deployments":
        objects(world)
    if scene == "used":
        standing(world, nodes)
    world.begin()
    world.rest(30)
    settle_garbage()
    world.phase = "load"
    for number in range(pods):
        world.add_pod(SCENES[scene](number))
