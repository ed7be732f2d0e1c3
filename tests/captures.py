"""A small capture whose truth is known: the use of pods and nodes is chosen here, and the series follow from it."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from shared.kube import objects as api
from twin.model.capture import PARTS, SCHEMA, Capture, CapturedPod

STEP_S = 15.0
TRUE_USE = {"web": (300.0, 40e6, 0.0, 4e5), "job": (50.0, 120e6, 5e5, 0.0)}
BASE = (100.0, 500e6, 1e4, 2e4)


def node(name: str, cpu: str = "4", memory: str = "8Gi") -> api.KubeNode:
    labels = {"kubernetes.io/hostname": name}
    annotations = {"conclave.io/twin-limits": '{"disk":10000000,"net":10000000}'}
    return api.KubeNode(
        api.ObjectMeta(name=name, labels=labels, annotations=annotations),
        status=api.NodeStatus(allocatable={"cpu": cpu, "memory": memory, "pods": "110"}),
    )


def pod(name: str, owner: str, node_name: str, cpu: str = "100m") -> api.KubePod:
    owners = [api.OwnerReference("apps/v1", "ReplicaSet", owner, owner, controller=True)]
    requests = {"cpu": cpu, "memory": "64Mi"}
    return api.KubePod(
        api.ObjectMeta(name=name, namespace="default", uid=f"uid-{name}", owner_references=owners),
        api.PodSpec(
            node_name=node_name, containers=[api.Container("main", resources=api.ResourceRequirements(requests))]
        ),
    )


def make_capture(*, steps: int = 80, pods: int = 24, seed: int = 1, metrics: bool = True) -> Capture:
    """Two nodes; web and job pods come and go; each pod uses what ``TRUE_USE`` says, each node ``BASE`` besides."""
    rng = np.random.default_rng(seed)
    length_s = (steps - 1) * STEP_S
    names = ("n1", "n2")
    found = []
    truth = np.tile(np.array(BASE), (len(names), steps, 1))
    times = np.arange(steps) * STEP_S
    for number in range(pods):
        owner, on = ("web", "job")[number % 2], int(rng.integers(2))
        start = float(np.round(rng.uniform(-100, length_s * 0.8), 3))
        end = float(np.round(start + rng.uniform(100, 100 + length_s / 2), 3))
        found.append(CapturedPod(pod(f"{owner}-{number}", owner, names[on]), start, start, end))
        running = (times >= start) & (times < end)
        truth[on, running] += TRUE_USE[owner]
    series = {
        name: {part: [float(value) for value in truth[row, :, column]] for column, part in enumerate(PARTS)}
        for row, name in enumerate(names)
    }
    return Capture(
        SCHEMA, "2026-01-01T00:00:00+00:00", length_s, [node(name) for name in names], found,
        STEP_S if metrics else 0.0, series if metrics else {},
    )  # fmt: skip


def day_capture(days: int = 8, *, nodes: int = 4, hours: dict[str, float] | None = None, each: int = 4) -> Capture:
    """Nothing is measured. Each day at each of ``hours`` (owner to hour of the day) ``each`` pods of that owner come, a
    minute apart, for ten minutes."""
    length_s = days * 86_400.0
    names = [f"n{number}" for number in range(nodes)]
    found = []
    for day in range(days):
        for owner, hour in (hours or {"night": 2.0, "noon": 12.0, "evening": 20.0}).items():
            for number in range(each):
                at = day * 86_400.0 + hour * 3_600.0 + number * 60.0
                one = pod(f"{owner}-{day}-{number}", owner, names[number % nodes])
                found.append(CapturedPod(one, at, at, at + 600.0))
    return Capture(SCHEMA, "2026-01-01T00:00:00+00:00", length_s, [node(name) for name in names], found)


def with_gpus(capture: Capture) -> Capture:
    """The same with four GPUs a node; every other pod asks for one to three."""
    nodes = [
        replace(one, status=replace(one.status, allocatable={**one.status.allocatable, "nvidia.com/gpu": "4"}))
        for one in capture.nodes
    ]
    pods = []
    for number, one in enumerate(capture.pods):
        (container,) = one.pod.spec.containers
        asks = container.resources.requests | ({"nvidia.com/gpu": str(1 + number % 3)} if number % 2 else {})
        asking = replace(container, resources=replace(container.resources, requests=asks))
        pods.append(replace(one, pod=replace(one.pod, spec=replace(one.pod.spec, containers=[asking]))))
    return replace(capture, nodes=nodes, pods=pods)
