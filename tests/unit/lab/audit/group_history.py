"""Histories with groups, queues and evictions, on top of the audit's plain ones."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tests.unit.lab.audit.audit_history import History

Json = dict[str, Any]
ROOM = {"cpu": "4", "memory": "8Gi", "pods": "20"}


class GroupHistory(History):
    """Every method returns self. ``old``: groups are written in the form of v1alpha2."""

    def __init__(self, *, old: bool = False) -> None:
        super().__init__()
        self.old = old

    def write(self, verb: str, kind: str, obj: Json) -> GroupHistory:
        """One change; the object is known afterwards."""
        self._write(verb, kind, obj)
        return self

    def group(
        self, name: str = "g", minimum: int | None = 2, *, topology: str = "", whole: bool = False,
        annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None, **more: Any,
    ) -> GroupHistory:  # fmt: skip
        """A native PodGroup, made or changed. ``minimum`` None: the policy basic."""
        spec: Json = {"schedulingPolicy": {"basic": {}} if minimum is None else {"gang": {"minCount": minimum}}, **more}
        if topology:
            spec["schedulingConstraints"] = {"topology": [{"key": topology}]}
        spec["disruptionMode"] = ("PodGroup" if whole else "Pod") if self.old else {"all" if whole else "single": {}}
        meta = {"name": name, "namespace": "default", "annotations": annotations or {}, "labels": labels or {}}
        version = f"scheduling.k8s.io/{'v1alpha2' if self.old else 'v1beta1'}"
        verb = "update" if ("PodGroup", name) in self.objects else "create"
        return self.write(verb, "PodGroup", {"apiVersion": version, "metadata": meta, "spec": spec})

    def plugins_group(self, name: str = "g", minimum: int = 2, **more: Any) -> GroupHistory:
        """A PodGroup of the scheduler plug-ins."""
        meta = {"name": name, "namespace": "default"}
        version = "scheduling.x-k8s.io/v1alpha1"
        return self.write(
            "create", "PodGroup", {"apiVersion": version, "metadata": meta, "spec": {"minMember": minimum, **more}}
        )

    def refused(self, name: str) -> GroupHistory:
        """The pod's condition says that the API server did not take its Binding."""
        condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulerError", "message": "a webhook"}
        return self.changed(name, lambda pod: pod["status"].update(conditions=[condition]))

    def members(self, *names: str, group: str = "g", labels: dict[str, str] | None = None, **spec: Any) -> GroupHistory:
        """Pods of a native group."""
        for name in names:
            self.pod(name, spec.pop("requests", None), schedulingGroup={"podGroupName": group}, **spec)
            if labels:
                self.changed(name, lambda pod: pod["metadata"].update(labels=labels))
        return self

    def changed(self, name: str, change: Any) -> GroupHistory:
        """A pod after ``change(pod)``."""
        pod = json.loads(json.dumps(self.objects["Pod", name]))
        change(pod)
        return self.write("patch", "Pod", pod)

    def bound(self, names: Iterable[str], node: str = "n1") -> GroupHistory:
        """One after the other."""
        for name in names:
            self.bind(name, node)
        return self

    def nominated(self, name: str, node: str) -> GroupHistory:
        return self.changed(name, lambda pod: pod["status"].update(nominatedNodeName=node))

    def evicted(self, name: str, *, leaves: bool = True, message: str = "m") -> GroupHistory:
        """Marked by a scheduler; then it is gone."""
        mark = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": message}
        self.changed(name, lambda pod: pod["status"].update(conditions=[mark]))
        if leaves:
            self.gone("Pod", name)
        return self

    def queue(self, name: str, *, maximum: dict[str, str] | None = None, **spec: Any) -> GroupHistory:
        """A Queue, made or changed."""
        if maximum is not None:
            spec["maximum"] = maximum
        verb = "update" if ("Queue", name) in self.objects else "create"
        return self.write(verb, "Queue", {"metadata": {"name": name}, "spec": spec})
