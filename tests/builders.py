"""Fluent builders of model and API objects for tests: ``make_pod("a").cpu("500m").pod()``."""

from __future__ import annotations

from typing import Any, Self

import msgspec

from shared.kube import objects as api
from shared.kube.pods.convert import node_from_api, pod_from_api
from shared.model.node import Node
from shared.model.pod import Pod


class PodBuilder:
    """Builds a pod's JSON step by step."""

    def __init__(self, name: str) -> None:
        self.json: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "1"},
            "spec": {"schedulerName": "conclave", "containers": [{"name": "c", "image": "i", "resources": {}}]},
            "status": {"phase": "Pending"},
        }

    def request(self, **amounts: str) -> Self:
        """Requests by resource name; ``_`` in a keyword stands for ``-``."""
        requests = self.json["spec"]["containers"][0]["resources"].setdefault("requests", {})
        requests.update({name.replace("_", "-"): value for name, value in amounts.items()})
        return self

    def cpu(self, quantity: str) -> Self:
        return self.request(cpu=quantity)

    def memory(self, quantity: str) -> Self:
        return self.request(memory=quantity)

    def gpu_milli(self, milli: int) -> Self:
        self.json["spec"]["containers"][0]["resources"].setdefault("requests", {})["conclave.io/gpu-milli"] = str(milli)
        return self

    def port(self, port: int, *, ip: str | None = None, protocol: str = "TCP") -> Self:
        entry = {"containerPort": port, "hostPort": port, "protocol": protocol} | ({"hostIP": ip} if ip else {})
        self.json["spec"]["containers"][0].setdefault("ports", []).append(entry)
        return self

    def select(self, **labels: str) -> Self:
        self.json["spec"].setdefault("nodeSelector", {}).update(labels)
        return self

    def tolerate(self, **toleration: str) -> Self:
        self.json["spec"].setdefault("tolerations", []).append(toleration)
        return self

    def prefer(self, weight: int, key: str, *values: str) -> Self:
        affinity = self.json["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
        term = {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}
        affinity.setdefault("preferredDuringSchedulingIgnoredDuringExecution", []).append(
            {"weight": weight, "preference": term}
        )
        return self

    def priority(self, value: int) -> Self:
        self.json["spec"]["priority"] = value
        return self

    def on(self, node: str) -> Self:
        self.json["spec"]["nodeName"] = node
        return self

    def phase(self, phase: str) -> Self:
        self.json["status"]["phase"] = phase
        return self

    def set(self, **metadata: Any) -> Self:
        self.json["metadata"].update(metadata)
        return self

    def api(self) -> api.Pod:
        return msgspec.convert(self.json, api.KubePod)

    def pod(self) -> Pod:
        return pod_from_api(self.api())


class NodeBuilder:
    """Builds a node's JSON step by step; 4 CPU, 8 GiB, 110 pods unless said otherwise."""

    def __init__(self, name: str) -> None:
        self.json: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "labels": {}},
            "spec": {},
            "status": {
                "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }

    def allocatable(self, **amounts: str) -> Self:
        self.json["status"]["allocatable"].update({k.replace("_", "-"): v for k, v in amounts.items()})
        return self

    def gpus(self, count: int) -> Self:
        self.json["status"]["allocatable"]["conclave.io/gpu-milli"] = str(1000 * count)
        return self

    def label(self, **labels: str) -> Self:
        self.json["metadata"]["labels"].update(labels)
        return self

    def taint(self, key: str, effect: str, value: str = "") -> Self:
        self.json["spec"].setdefault("taints", []).append({"key": key, "value": value, "effect": effect})
        return self

    def cordon(self) -> Self:
        self.json["spec"]["unschedulable"] = True
        return self

    def api(self) -> api.Node:
        return msgspec.convert(self.json, api.KubeNode)

    def node(self) -> Node:
        return node_from_api(self.api())


def make_pod(name: str = "pod") -> PodBuilder:
    return PodBuilder(name)


def make_node(name: str = "node") -> NodeBuilder:
    return NodeBuilder(name)
