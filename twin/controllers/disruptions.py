"""The disruption controller of the twin: what PodDisruptionBudgets allow, by which evictions are judged.

``twin.model.disruptions`` decides. A pod that changes leads to the budgets of its namespace that cover it, so a cluster
without budgets pays a look-up per change; one that covers it counts it anew, and none of its other pods. It lives in
real seconds, however fast pods run.
"""

from __future__ import annotations

from typing import Any

from twin.controllers.runtime import Controller, ObjectKey
from twin.kinds.rules.names import selector_matches
from twin.model.disruptions import CoveredPods, UncountedPod, budget_status
from twin.model.replicas import controller_of
from twin.registry.registry import TwinRegistry

Json = dict[str, Any]

BUDGETS = "poddisruptionbudgets.policy"
_SCALED = {
    "Deployment": "deployments.apps", "ReplicaSet": "replicasets.apps", "StatefulSet": "statefulsets.apps",
    "ReplicationController": "replicationcontrollers",
}  # fmt: skip
"""Kinds of owners that tell how many pods they want."""
_UNSCALED = {"Job": "jobs.batch", "DaemonSet": "daemonsets.apps"}


class DisruptionController(Controller[ObjectKey]):
    """Keys are budgets."""

    user = "system:serviceaccount:kube-system:disruption-controller"
    manager = "kube-controller-manager"

    def __init__(self, registry: TwinRegistry) -> None:
        super().__init__(registry)
        self._budgets: dict[str, dict[str, Json | None]] = {}
        """The selectors of each namespace's budgets, by name."""
        self._covered: dict[ObjectKey, CoveredPods] = {}

    def follows(self) -> list[str]:
        return [BUDGETS]

    def concerns(self, resource: str, obj: Json, *, gone: bool) -> None:
        if not self._budgets and resource != BUDGETS:
            return
        meta = obj["metadata"]
        namespace = meta.get("namespace") or ""
        if resource == BUDGETS:
            self._know(namespace, obj, gone=gone)
        elif resource == "pods":
            for name, selector in self._budgets.get(namespace, {}).items():
                key = (BUDGETS, namespace, name)
                if not gone and selector_matches(selector, meta.get("labels") or {}):
                    self._covered[key].put(obj)
                elif not self._covered[key].drop(meta["name"]):
                    continue
                self.note(key)
        elif resource in _SCALED.values():  # how many pods it wants may have changed
            for name in self._budgets.get(namespace, ()):
                self.note((BUDGETS, namespace, name))

    def _know(self, namespace: str, budget: Json, *, gone: bool) -> None:
        name, there = budget["metadata"]["name"], self._budgets.setdefault(namespace, {})
        key = (BUDGETS, namespace, name)
        if not gone:
            selector = budget["spec"].get("selector")
            if key not in self._covered or there[name] != selector:
                pods = self.registry.list("pods", namespace)
                matching = (pod for pod in pods if selector_matches(selector, pod["metadata"].get("labels") or {}))
                self._covered[key] = CoveredPods(matching)
            there[name] = selector
            self.note(key)
            return
        there.pop(name, None)
        self._covered.pop(key, None)
        if not there:
            del self._budgets[namespace]
        self.forget(key)

    def reconcile(self, key: ObjectKey) -> None:
        budget = self.registry.get(*key)
        if budget is None or budget["metadata"].get("deletionTimestamp"):
            return
        now_s = self.registry.clock()
        now = self.registry.now_text(now_s)
        status, again_s = budget_status(budget, self._covered[key], self._scale_of, now, now_s)
        if again_s is not None:
            self.again(key, again_s)
        if status != budget.get("status"):
            self.change(key, lambda old: {**old, "status": status}, verb="update")

    def _scale_of(self, pod: Json, owner: Json) -> tuple[str, int]:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        if owner["kind"] in _UNSCALED:
            raise UncountedPod(f"{_UNSCALED[owner['kind']]} does not implement the scale subresource")
        resource = _SCALED.get(owner["kind"])
        found = self.registry.get(resource, namespace, owner["name"]) if resource is not None else None
        if found is None or found["metadata"]["uid"] != owner["uid"]:
            raise UncountedPod(f'found no controllers for pod "{name}"')
        above = controller_of(found)
        if owner["kind"] == "ReplicaSet" and above is not None and above["kind"] == "Deployment":
            return self._scale_of(pod, above)
        return owner["uid"], found["spec"].get("replicas", 1)
