"""What the pods of a drain are, and what must be there before them: ``--scene``.

Pods are those of ``bench.quality`` where it has the scene. ReplicaSets, claims and volumes are made by this side as
their controllers would leave them, so on a real server none may run: they would undo it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.gangs import load
from bench.quality import scenes as bursts
from bench.stand.cluster import NAMESPACE, BenchCluster
from bench.stand.contest import pods

Json = dict[str, Any]
LIKE, DEPLOYMENTS, VOLUMES, JOIN = "like", "deployments", "volumes", "join"
SCENES = (LIKE, *(name for name in bursts.SCENES if name not in (LIKE, "used")), VOLUMES, JOIN)
DRIVER, ATTACHED = "csi.conclave.bench", 64
"""Of the volumes, and how many of them a node takes."""
JOINING = "conclave.bench/joining"
"""The label of nodes that join, by which the pods of that scene ask for them."""
SELECTOR = {JOINING: "true"}
REPLICASETS, SERVICES = f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets", f"/api/v1/namespaces/{NAMESPACE}/services"
CLAIMS, PERSISTENT = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims", "/api/v1/persistentvolumes"
CSI_NODES, NODES = "/apis/storage.k8s.io/v1/csinodes", "/api/v1/nodes"
NODE_LIST = 500


def node(number: int) -> Json:
    """scheduler_perf's, in one of three zones."""
    body = load.node(number)
    body["metadata"]["labels"][bursts.ZONE] = f"zone-{number % 3}"
    return body


def standing(count: int, nodes: int) -> Iterator[Json]:
    """Pods that run already, spread over the nodes."""
    for number in range(count):
        body = load.pod(f"running-{number:06}", app=f"running-{number % 20}")
        body["spec"]["nodeName"] = node(number % nodes)["metadata"]["name"]
        body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "10m", "memory": "16Mi"}}
        yield body


class DrainScene:
    """One scene on a cluster with so many nodes. ``prepare`` it; for each drain ``pods``, ``join`` and ``clear``."""

    def __init__(self, name: str, cluster: BenchCluster, *, shapes: int, joining: int) -> None:
        self.name = name
        self._cluster = cluster
        self._shapes = shapes
        self._joining = joining
        self._owners: dict[str, str] = {}

    async def prepare(self, nodes: int) -> None:
        """What outlives a drain is there; what an earlier run left of it is replaced."""
        cluster = self._cluster
        if self.name == DEPLOYMENTS:
            apps = [bursts.app(number) for number in range(bursts.APPS)]
            for path in (SERVICES, REPLICASETS):
                await cluster.remove(path, apps)
            await cluster.add(SERVICES, (_service(app) for app in apps))
            await cluster.add(REPLICASETS, (_replica_set(app) for app in apps))
            async for one in cluster.each(REPLICASETS, NODE_LIST):
                self._owners[one["metadata"]["name"]] = one["metadata"]["uid"]
        if self.name == VOLUMES:
            names = [node(number)["metadata"]["name"] for number in range(nodes)]
            await cluster.remove(CSI_NODES, names)
            await cluster.add(CSI_NODES, (_csi_node(name) for name in names))

    async def pods(self, prefix: str, count: int) -> list[Json]:
        """The pods of a drain; what they name is there."""
        if self.name in (LIKE, JOIN, VOLUMES):
            made = list(pods(prefix, count, self._shapes))
        else:
            made = [bursts.SCENES[self.name](number) for number in range(count)]
        for number, body in enumerate(made):
            name = body["metadata"]["name"] = f"{prefix}-{number:06}"
            for owner in body["metadata"].get("ownerReferences", ()):
                owner["uid"] = self._owners[owner["name"]]
            if self.name == JOIN:
                body["spec"]["nodeSelector"] = SELECTOR
            if self.name == VOLUMES:
                body["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
        if self.name == VOLUMES:
            names = [body["metadata"]["name"] for body in made]
            await self._cluster.add(PERSISTENT, (_volume(name) for name in names))
            await self._cluster.add(CLAIMS, (_claim(name) for name in names))
        return made

    async def join(self) -> None:
        """The nodes come that pods wait for."""
        await self._cluster.add_nodes(_joining(number) for number in range(self._joining))

    async def clear(self, made: list[Json]) -> None:
        """The pods are gone: what was there for them alone goes too."""
        if self.name == JOIN:
            await self._cluster.remove(NODES, [_joining(number)["metadata"]["name"] for number in range(self._joining)])
        if self.name == VOLUMES:
            names = [body["metadata"]["name"] for body in made]
            for path in (CLAIMS, PERSISTENT):
                await self._cluster.drop(path, names)


def _joining(number: int) -> Json:
    body = node(number)
    name = body["metadata"]["name"] = f"joining-{number:05}"
    body["metadata"]["labels"] |= {"kubernetes.io/hostname": name, **SELECTOR}
    return body


def _service(app: str) -> Json:
    spec = {"clusterIP": "None", "selector": {"app": app}, "ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": app}, "spec": spec}


def _replica_set(app: str) -> Json:
    labels = {"app": app}
    container = {"name": "c", "image": "registry.k8s.io/pause:3.10"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": app}, "spec": spec}


def _csi_node(name: str) -> Json:
    driver = {"name": DRIVER, "nodeID": name, "topologyKeys": [], "allocatable": {"count": ATTACHED}}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name},
            "spec": {"drivers": [driver]}}  # fmt: skip


def _volume(name: str) -> Json:
    reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": NAMESPACE, "name": name}
    spec = {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
        "csi": {"driver": DRIVER, "volumeHandle": name}, "claimRef": reference,
    }  # fmt: skip
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def _claim(name: str) -> Json:
    spec = {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": name,
        "resources": {"requests": {"storage": "1Gi"}},
    }  # fmt: skip
    annotations = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
    metadata = {"name": name, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
