"""The protection of pod groups: one that is deleted stays until no pod of it is left that has not ended.

What ``pkg/controller/scheduling/podgroupprotection`` does: its finalizer is on every group that has such pods, and is
taken off one that is being deleted when the last of them has ended.
"""

from __future__ import annotations

from typing import Any

from twin.controllers.runtime import Controller, ObjectKey
from twin.kinds.workload.pod_groups import PODGROUPS
from twin.registry.registry import TwinRegistry

Json = dict[str, Any]

PROTECTION = "scheduling.k8s.io/podgroup-protection"
_ENDED = ("Succeeded", "Failed")


class PodGroupProtection(Controller[ObjectKey]):
    """Keys are pod groups."""

    user = "system:serviceaccount:kube-system:podgroup-protection-controller"

    def __init__(self, registry: TwinRegistry) -> None:
        super().__init__(registry)
        self._members: dict[ObjectKey, set[str]] = {}
        """Of each group that has any: the uids of its pods that have not ended."""

    def follows(self) -> list[str]:
        return [PODGROUPS, "pods"]

    def concerns(self, resource: str, obj: Json, *, gone: bool) -> None:
        meta = obj["metadata"]
        if resource == PODGROUPS:
            if not gone:
                self.note((PODGROUPS, meta["namespace"], meta["name"]))
            return
        if resource != "pods":
            return
        name = (obj["spec"].get("schedulingGroup") or {}).get("podGroupName")
        if name is None:
            return
        key = (PODGROUPS, meta["namespace"], name)
        members = self._members.setdefault(key, set())
        if gone or (obj.get("status") or {}).get("phase") in _ENDED:
            members.discard(meta["uid"])
            if not members:
                del self._members[key]
                self.note(key)
        elif meta["uid"] not in members:
            members.add(meta["uid"])
            self.note(key)

    def reconcile(self, key: ObjectKey) -> None:
        group = self.registry.get(*key)
        if group is None:
            return
        finalizers, used = group["metadata"].get("finalizers") or [], key in self._members
        if group["metadata"].get("deletionTimestamp"):
            if not used:
                self.release(key, group, PROTECTION)
        elif used and PROTECTION not in finalizers:
            self.set_metadata(key, {"finalizers": [*finalizers, PROTECTION]})
