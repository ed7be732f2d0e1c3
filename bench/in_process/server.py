"""The API server of an in-process mesh: pods and nodes as bytes that its watches send, Bindings with their rules.

It keeps what a Binding is checked against (uid, resourceVersion, not bound yet) and puts a bound pod together by
replacing marks in the bytes of a template, so that its own cost stays small beside what is measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from bench.gangs import load
from bench.in_process.meters import SERVER, Meter
from shared.errors import KubeRejected
from shared.ports import BindRequest

NAMESPACE = "default"
_NAME, _VERSION, _NODE, _CONDITION = "@name", "@version", "@node", "@condition"
_SCHEDULED = b'{"type":"PodScheduled","status":"True","lastTransitionTime":"2026-01-01T00:00:01Z"}'


def pod_template(shape: int, *, scheduler: str = "conclave") -> bytes:
    """scheduler_perf's small pod as a server shows it after admission, with marks for what differs."""
    body = load.pod(_NAME, app="bench")
    requests = {"cpu": f"{100 + 10 * shape}m", "memory": load.POD["memory"]}
    body["metadata"] |= {
        "namespace": NAMESPACE, "uid": f"uid-{_NAME}", "resourceVersion": _VERSION,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    taints = [
        {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for what in ("not-ready", "unreachable")
    ]
    body["spec"] |= {
        "nodeName": _NODE, "schedulerName": scheduler, "tolerations": taints, "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "serviceAccountName": "default",
        "securityContext": {}, "enableServiceLinks": True, "preemptionPolicy": "PreemptLowerPriority", "priority": 0,
    }  # fmt: skip
    body["spec"]["containers"][0] |= {"resources": {"requests": requests}, "imagePullPolicy": "IfNotPresent"}
    body["status"] = {"phase": "Pending", "qosClass": "Burstable", "conditions": [_CONDITION]}
    line = msgspec.json.encode({"type": "@type", "object": body})
    return line.replace(f'"{_CONDITION}"'.encode(), _CONDITION.encode())


@dataclass(slots=True)
class StoredPod:
    """``line``: its bytes but for type, version, node and condition."""

    line: bytes
    revision: int
    node: str = ""

    def shown(self) -> bytes:
        """As a watch sends it."""
        kind, condition = (b"MODIFIED", _SCHEDULED) if self.node else (b"ADDED", b"")
        node = f'"nodeName":"{self.node}",'.encode() if self.node else b""
        return (
            self.line.replace(b"@type", kind, 1)
            .replace(_VERSION.encode(), b"%d" % self.revision, 1)
            .replace(b'"nodeName":"@node",', node, 1)
            .replace(_CONDITION.encode(), condition, 1)
        )


class InProcessServer:
    """``lines``: what the watch of pods has sent so far. ``calls``: by verb, and ``bytes`` of the bodies of both."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._templates: dict[int, bytes] = {}
        self.revision = 1000
        self.pods: dict[str, StoredPod] = {}
        self.lines: list[bytes] = []
        self.calls: dict[str, int] = {"bind": 0, "patch": 0, "get": 0, "create": 0}
        self.watch_bytes = 0

    def create(self, name: str, shape: int = 0) -> None:
        """A pending pod of ours."""
        template = self._templates.get(shape)
        if template is None:
            template = self._templates[shape] = pod_template(shape)
        self.pods[name] = pod = StoredPod(template.replace(_NAME.encode(), name.encode()), 0)
        self._tell(pod)

    def node_lines(self, count: int) -> list[bytes]:
        """Nodes as their watch sends them."""
        found = []
        for number in range(count):
            body: dict[str, Any] = load.node(number)
            self.revision += 1
            name = body["metadata"]["name"]
            body["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": str(self.revision)}
            found.append(msgspec.json.encode({"type": "ADDED", "object": body}))
        return found

    async def bind(self, request: BindRequest, *, timeout_s: float = 5.0) -> None:
        """See ``KubeApi.bind``."""
        del timeout_s
        self._meter.enter(SERVER)
        try:
            self.calls["bind"] += 1
            pod = self.pods[request.name]
            if pod.node or request.uid != f"uid-{request.name}" or request.resource_version != str(pod.revision):
                raise KubeRejected(f"pods {request.name!r}: precondition", status=409, reason="Conflict")
            pod.node = request.node_name
            self._tell(pod)
        finally:
            self._meter.leave()

    def bound(self) -> int:
        """How many pods have a node."""
        return sum(bool(pod.node) for pod in self.pods.values())

    def _tell(self, pod: StoredPod) -> None:
        self.revision += 1
        pod.revision = self.revision
        line = pod.shown()
        self.watch_bytes += len(line)
        self.lines.append(line)
