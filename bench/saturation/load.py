"""The nodes and pods of the saturation loads, as the API server takes them, made from a seed.

``full``: every node is filled by four fillers; what waits is of lower priority than they are, what is urgent needs two
fillers' room. ``churn``: every node has a quarter free, which small pods take and leave; what waits asks for more.
"""

from __future__ import annotations

from random import Random
from typing import Any

from bench.stand.cluster import LOW, STANDING, URGENT

NODE_CPU_MILLIS, NODE_MEMORY_MIB = 16_000, 65_536
FILLERS_PER_NODE = 4

OTHER_TAINT = {"key": "conclave.bench/other", "value": "true", "effect": "NoSchedule"}
ZONES = 3


def node(name: str, number: int, *, other: bool = False) -> dict[str, Any]:
    """``other``: one that no pod of these loads may use."""
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{number % ZONES}"}
    capacity = {"cpu": f"{NODE_CPU_MILLIS}m", "memory": f"{NODE_MEMORY_MIB}Mi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": [OTHER_TAINT]} if other else {},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}],
        },
    }


def pod(
    name: str, cpu_millis: int, memory_mib: int, *, priority: int = STANDING, app: str = "", on: str = "",
    scheduler: str = "conclave", **spec: Any,
) -> dict[str, Any]:  # fmt: skip
    """One pod; ``on``: bound to that node as it is made, by nobody's decision."""
    requests = {"cpu": f"{cpu_millis}m", "memory": f"{memory_mib}Mi"}
    body: dict[str, Any] = {
        "schedulerName": scheduler,
        "priority": priority,
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "c", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": requests}}],
        **spec,
    }
    if on:
        body["nodeName"] = on
    labels = {"app": app or "bench"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": body,
        "status": {"phase": "Pending"},
    }


def filler(number: int, node_name: str) -> dict[str, Any]:
    """One of those that fill a node."""
    cpu, memory = NODE_CPU_MILLIS // FILLERS_PER_NODE, NODE_MEMORY_MIB // FILLERS_PER_NODE
    return pod(f"filler-{number:05}", cpu, memory, app="filler", on=node_name, scheduler="nobody")


def low(number: int, shapes: int) -> dict[str, Any]:
    """One that waits in ``full``: any room above half a core would let it in."""
    shape = number % shapes
    return pod(f"low-{number:05}", 500 + 20 * shape, 256 * (1 + shape % 7), priority=LOW, app=f"low-{shape}")


def urgent(number: int) -> dict[str, Any]:
    """One that must preempt: more than one filler's room."""
    cpu, memory = NODE_CPU_MILLIS // FILLERS_PER_NODE * 3 // 2, NODE_MEMORY_MIB // FILLERS_PER_NODE
    return pod(f"urgent-{number:05}", cpu, memory, priority=URGENT, app="urgent")


def hopeless(number: int, classes: int, *, guided: float, preempting: float) -> dict[str, Any]:
    """One that waits in ``churn`` and fits nowhere, one of ``classes``: a share of the classes is also ``guided`` by
    pods and domains, a share would preempt if that helped (it asks for more than an empty node has)."""
    kind = number % classes
    name, app = f"hopeless-{number:05}", f"hopeless-{kind}"
    share = (kind * 0.618034) % 1.0
    cpu, memory = NODE_CPU_MILLIS // 4 + 500 + 10 * kind, 1024
    if share < guided:
        selector = {"matchLabels": {"app": app}}
        if kind % 2:
            spread = {
                "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": selector,
            }  # fmt: skip
            return pod(name, cpu, memory, app=app, topologySpreadConstraints=[spread])
        term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
        return pod(
            name, cpu, memory, app=app,
            affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
        )  # fmt: skip
    if share < guided + preempting:
        return pod(name, NODE_CPU_MILLIS + 100 + kind, memory, priority=URGENT, app=app)
    return pod(name, cpu, memory, app=app)


def small(number: int, rng: Random) -> dict[str, Any]:
    """One that comes and goes in ``churn``, one of twelve shapes."""
    shape = rng.randrange(12)
    return pod(f"small-{number:06}", 100 + 50 * shape, 128 * (1 + shape % 4), app=f"small-{shape}")
