"""The Topology, CPU, Memory and Device Managers of the twin's kubelets, and the exporter that tells of their zones.

A pod that is bound to a node with zones is let on or refused at once, in the order of the Bindings; one that is refused
is Failed for good, with the kubelet's reason. What changes in the zones is published ``late_s`` later, as the managers
stand then, where the definition of NodeResourceTopology is served, or Katalyst's of CustomNodeResource.
"""

from __future__ import annotations

from typing import Any

import msgspec

from shared.errors import ConfigError
from shared.kube import objects as api
from shared.kube.nodes.katalyst import dedicated_of
from shared.kube.nodes.node_topology import needs_of
from twin.controllers.runtime import Controller, ObjectKey
from twin.model.managers import Managers
from twin.model.usage import TWIN_NODE_ANNOTATION
from twin.model.zones import (
    KATALYST_TOPOLOGIES,
    TOPOLOGIES,
    ZONES_ANNOTATION,
    Zones,
    object_of,
    topology_of,
    zones_of,
)
from twin.registry.registry import TwinRegistry

Json = dict[str, Any]

FINISHED = ("Succeeded", "Failed")
PUBLISHED = (TOPOLOGIES, KATALYST_TOPOLOGIES)
"""Kinds that exporters write."""


class NodeZonesController(Controller[ObjectKey]):
    """Keys are nodes whose objects are to be published, and pods that are to be refused. ``refusals``: pods that were,
    by node."""

    user = "system:serviceaccount:kube-system:twin-topology-updater"

    def __init__(self, registry: TwinRegistry, *, speed: float = 1.0) -> None:
        super().__init__(registry)
        self._speed = speed
        self._managers: dict[str, tuple[Managers, Zones]] = {}
        self._node_of: dict[str, str] = {}
        self._why: dict[str, tuple[str, str]] = {}
        """Reason and message by the uid of a pod that is to be refused."""
        self.refusals: dict[str, int] = {}

    def follows(self) -> list[str]:
        return ["nodes", "pods"]

    def concerns(self, resource: str, obj: Json, *, gone: bool) -> None:
        meta = obj["metadata"]
        if resource == "nodes":
            self._node(meta["name"], obj, gone=gone)
        elif resource == "pods" and (node := obj["spec"].get("nodeName")) in self._managers:
            if gone or (obj.get("status") or {}).get("phase") in FINISHED:
                self._ended(meta["uid"], node)
            elif meta["uid"] not in self._node_of:
                self._came(obj, node)
        elif resource == "customresourcedefinitions.apiextensions.k8s.io" and meta["name"] in PUBLISHED and not gone:
            for name in self._managers:
                self.note(("nodes", "", name))

    def _node(self, name: str, node: Json, *, gone: bool) -> None:
        text = _annotation(node)
        if gone or not text:
            if self._managers.pop(name, None) is not None:
                self.note(("nodes", "", name))
            return
        known = self._managers.get(name)
        try:
            zones = zones_of(text)
            topology = topology_of(name, (node.get("status") or {}).get("allocatable") or {}, zones)
        except (ConfigError, ValueError):
            return  # its zones stay as they were
        if known is None:
            self._managers[name] = Managers(topology), zones
            for pod in self.registry.list("pods"):
                if pod["spec"].get("nodeName") == name:
                    self.concerns("pods", pod, gone=False)
            self.note(("nodes", "", name))
        elif known[0].topology != topology:
            known[0].topology = topology
            self._managers[name] = known[0], zones
            self._changed(name)

    def _came(self, pod: Json, node: str) -> None:
        spec, meta = msgspec.convert(pod["spec"], api.PodSpec), msgspec.convert(pod["metadata"], api.ObjectMeta)
        needs = needs_of(spec, dedicated_of(meta, spec))
        uid = meta.uid
        self._node_of[uid] = node
        if needs is None:
            return
        managers, _ = self._managers[node]
        managers.consumers[uid] = f"{meta.namespace}/{meta.name}/{uid}"
        verdict = managers.admit(uid, needs)
        if verdict.refusal is None:
            self._changed(node)
        else:
            self.refusals[node] = managers.refused
            self._why[uid] = verdict.refusal.value, f"Pod was rejected: {verdict.message}"
            self.note(("pods", pod["metadata"]["namespace"], pod["metadata"]["name"]))

    def _ended(self, uid: str, node: str) -> None:
        self._node_of.pop(uid, None)
        self._why.pop(uid, None)
        self._managers[node][0].consumers.pop(uid, None)
        if self._managers[node][0].remove(uid):
            self._changed(node)

    def _changed(self, node: str) -> None:
        late_s = self._managers[node][1].late_s
        if late_s:
            self.again(("nodes", "", node), late_s / self._speed)
        else:
            self.note(("nodes", "", node))

    def reconcile(self, key: ObjectKey) -> None:
        if key[0] == "pods":
            self.change(key, self._refused)
        else:
            served = {kind.resource for kind in self.registry.stored_kinds()}
            for resource in PUBLISHED:
                if resource in served:
                    self._publish(resource, key[2])

    def _refused(self, pod: Json) -> Json:
        status = pod.get("status") or {}
        why = self._why.get(pod["metadata"]["uid"])
        if why is None or status.get("phase") in FINISHED:
            return pod
        return {**pod, "status": {**status, "phase": "Failed", "reason": why[0], "message": why[1]}}

    def _publish(self, resource: str, name: str) -> None:
        stored = self.registry.get(resource, "", name)
        if name not in self._managers:
            self.delete(resource, stored)
            return
        if self._managers[name][1].resource != resource:
            return
        wanted = object_of(self._managers[name][0].report())
        if stored is None:
            self.create(resource, "", wanted)
        elif any(stored.get(part) != wanted[part] for part in wanted.keys() - {"metadata"}):
            self.change((resource, "", name), lambda one: {**one, **wanted, "metadata": one["metadata"]})


def _annotation(node: Json) -> str:
    annotations = node["metadata"].get("annotations") or {}
    return annotations.get(ZONES_ANNOTATION, "") if annotations.get(TWIN_NODE_ANNOTATION) == "true" else ""
