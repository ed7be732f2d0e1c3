"""Builds audit histories by hand, line by line, so that every check can be shown a bad one."""

from __future__ import annotations

import json
from typing import Any

from lab.audit.audit import AuditReport, audit
from lab.audit.log import read_entries
from lab.traces.workload import node_json, pod_json

Json = dict[str, Any]


class History:
    """Writes entries as an API server would; every method returns self."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.objects: dict[tuple[str, str], Json] = {}
        self.rv = 1000
        self.time_s = 0.0

    def _write(self, verb: str, kind: str, obj: Json, manager: str = "") -> History:
        self.rv += 1
        self.time_s += 0.1
        meta = obj["metadata"]
        entry = {
            "rv": self.rv, "time_s": self.time_s, "verb": verb, "kind": kind, "namespace": meta.get("namespace", ""),
            "name": meta["name"], "user": "test", "object": obj,
            "manager": manager,
        }  # fmt: skip
        self.lines.append(json.dumps(entry).encode() + b"\n")
        self.objects[kind, meta["name"]] = obj
        return self

    def annotate(self, kind: str, name: str, **annotations: str) -> History:
        """In place of all that it has."""
        item = json.loads(json.dumps(self.objects[kind, name]))
        item["metadata"]["annotations"] = annotations
        return self._write("update", kind, item)

    def wait(self, seconds: float) -> History:
        self.time_s += seconds
        return self

    def node(self, name: str = "n1", capacity: dict[str, str] | None = None, **spec: Any) -> History:
        labels = spec.pop("labels", None)
        node = node_json(name, capacity or {"cpu": "1", "memory": "1Gi", "pods": "10"}, labels=labels)
        node["spec"] = spec
        return self._write("create" if ("Node", name) not in self.objects else "update", "Node", node)

    def lend(self, manager: str, name: str = "n1", *, also: Json | None = None, **amounts: str | None) -> History:
        """Some manager's write of what the node lends, ``batch_cpu`` and so on; None: it is taken away. ``also``: as
        capacity alone."""
        node = json.loads(json.dumps(self.objects["Node", name]))
        for part in ("capacity", "allocatable"):
            for short, amount in amounts.items():
                resource = f"kubernetes.io/{short.replace('_', '-')}"
                node["status"][part].pop(resource, None)
                if amount is not None:
                    node["status"][part][resource] = amount
        node["status"]["capacity"].update(also or {})
        return self._write("patch", "Node", node, manager)

    def pod(self, name: str = "p1", requests: dict[str, str] | None = None, **spec: Any) -> History:
        pod = pod_json(name, requests or {"cpu": "100m"})
        pod["metadata"]["uid"] = f"uid-{name}-{self.rv}"
        pod["spec"].update(spec)
        pod["status"] = {"phase": "Pending"}
        return self._write("create", "Pod", pod)

    def claim(self, name: str, metadata: Json, status: Json) -> History:
        """A ResourceClaim as it is now."""
        verb = "create" if ("ResourceClaim", name) not in self.objects else "update"
        meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", **metadata}
        return self._write(verb, "ResourceClaim", {"metadata": meta, "status": status})

    def other(self, kind: str, item: Json) -> History:
        """Any other object, as it is now."""
        return self._write("create" if (kind, item["metadata"]["name"]) not in self.objects else "update", kind, item)

    def bind(self, name: str = "p1", node: str = "n1", devices: str | None = None) -> History:
        pod = json.loads(json.dumps(self.objects["Pod", name]))
        pod["spec"]["nodeName"] = node
        if devices is not None:
            pod["metadata"].setdefault("annotations", {})["conclave.io/gpu-devices"] = devices
        return self._write("bind", "Pod", pod)

    def unschedulable(self, name: str = "p1", message: str = "") -> History:
        pod = json.loads(json.dumps(self.objects["Pod", name]))
        pod["status"]["conditions"] = [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        ]
        return self._write("patch", "Pod", pod)

    def phase(self, name: str, phase: str) -> History:
        pod = json.loads(json.dumps(self.objects["Pod", name]))
        pod["status"]["phase"] = phase
        return self._write("patch", "Pod", pod)

    def resize(
        self, name: str, cpu: str | None = None, *, actual: str | None = None, condition: str | None = None
    ) -> History:
        """What the spec asks for, and what its node says that it has."""
        pod = json.loads(json.dumps(self.objects["Pod", name]))
        container = pod["spec"]["containers"][0]
        if cpu is not None:
            container["resources"]["requests"]["cpu"] = cpu
        if actual is not None:
            shown = {"name": container["name"], "resources": {"requests": {"cpu": actual}}}
            pod["status"]["containerStatuses"] = [{**shown, "allocatedResources": {"cpu": actual}}]
        if condition is not None:
            pod["status"]["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": condition}]
        return self._write("patch", "Pod", pod)

    def terminate(self, name: str, grace_s: int = 30) -> History:
        pod = json.loads(json.dumps(self.objects["Pod", name]))
        pod["metadata"]["deletionTimestamp"] = "2026-11-20T00:00:00Z"
        pod["metadata"]["deletionGracePeriodSeconds"] = grace_s
        return self._write("update", "Pod", pod)

    def gone(self, kind: str, name: str) -> History:
        return self._write("delete", kind, self.objects[kind, name])

    def report(self, scheduler_name: str | None = None, drained: tuple[str, ...] = ()) -> AuditReport:
        return audit(read_entries(self.lines, "audit.jsonl"), scheduler_name, drained)
