"""The shapes of gangs, as scheduler_perf has them, and what the API server is sent for each. From a seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

Json = dict[str, Any]

RACK = "topology.kubernetes.io/rack"
RACKS = 50
NODE = {"cpu": "4", "memory": "32Gi", "pods": "110"}
POD = {"cpu": "100m", "memory": "500Mi"}
"""scheduler_perf's node and pod (``test/integration/scheduler_perf``, pod-default and node-default)."""
SMALLEST, LARGEST = 8, 64
"""Members of a gang of the mixed load."""


@dataclass(frozen=True, slots=True)
class GangShape:
    """So many gangs of so many members; ``size`` 0: drawn from 8 to 64, until there are ``gangs`` pods in all;
    ``size`` 1: lone pods. ``racks``: each gang in one rack."""

    name: str
    gangs: int
    size: int
    racks: bool = False

    def sizes(self, rng: Random) -> list[int]:
        """Members of each gang."""
        if self.size:
            return [self.size] * self.gangs
        left, sizes = self.gangs, []
        while left:
            size = min(left, rng.randint(SMALLEST, LARGEST))
            if 0 < left - size < SMALLEST:
                size = left
            sizes.append(size)
            left -= size
        return sizes

    def scaled(self, share: float) -> GangShape:
        """The same in small: gangs of the same size, fewer of them; members of one that would be alone."""
        if share == 1 or self.gangs * share >= 2 or self.size <= 1:
            return replace(self, gangs=max(1, round(self.gangs * share)))
        return replace(self, gangs=2, size=max(2, round(self.gangs * self.size * share / 2)))


SHAPES = [
    GangShape("lone", 3000, 1),
    GangShape("mixed", 3000, 0),
    GangShape("1000x3", 1000, 3),
    GangShape("300x16", 300, 16),
    GangShape("3x1000", 3, 1000),
    GangShape("750x4-racks", 750, 4, racks=True),
]


LARGEST_GANG = GangShape("1x4096", 1, 4096)
"""As many members as are placed together at most."""


def node(number: int, racks: int = RACKS) -> Json:
    """A ready node in one of the racks."""
    name = f"node-{number:05}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, RACK: f"rack-{number % racks:02}"}},
        "spec": {},
        "status": {
            "capacity": NODE,
            "allocatable": NODE,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}],
        },
    }


def group(name: str, size: int, *, racks: bool, api_version: str, namespace: str) -> Json:
    """A native PodGroup that needs all of its members."""
    spec: Json = {"schedulingPolicy": {"gang": {"minCount": size}}}
    if racks:
        spec["schedulingConstraints"] = {"topology": [{"key": RACK}]}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": api_version, "kind": "PodGroup", "metadata": metadata, "spec": spec}


def pod(name: str, *, in_group: str = "", app: str) -> Json:
    """One small pod for the scheduler that is measured."""
    container = {"name": "c", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": POD}}
    spec: Json = {"schedulerName": "conclave", "containers": [container]}
    if in_group:
        spec["schedulingGroup"] = {"podGroupName": in_group}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": app}}, "spec": spec}


def members(shape: GangShape, sizes: list[int]) -> Iterator[tuple[str, Json]]:
    """(the gang's name, "" of a lone pod; the pod), gang after gang."""
    for number, size in enumerate(sizes):
        gang = f"{shape.name}-{number:04}"
        for member in range(size):
            in_group = "" if shape.size == 1 else gang
            yield in_group, pod(f"{gang}-{member:04}", in_group=in_group, app=shape.name)
