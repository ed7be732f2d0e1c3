"""The garbage collector of the twin: what an object owned goes when it goes.

Deletions cascade in the background, in the foreground (the owner last) or leave orphans, as the request said. Also the
namespace controller: what stands in a namespace that ends goes, then the namespace. Source: ``pkg/controller/
{garbagecollector,namespace}`` of Kubernetes 1.36. It does not judge owners that it never saw: a reference to nothing
stays.
"""

from __future__ import annotations

from typing import Any

from twin.controllers.runtime import BATCH, Controller, ObjectKey
from twin.registry.registry import TwinRegistry

Json = dict[str, Any]

NAMESPACES = "namespaces"
_FOREGROUND, _ORPHAN = "foregroundDeletion", "orphan"


class GarbageCollector(Controller[ObjectKey]):
    """Keys are owners; of an owner that is gone: its uid in place of the name, and no resource."""

    user = "system:serviceaccount:kube-system:generic-garbage-collector"

    def __init__(self, registry: TwinRegistry) -> None:
        super().__init__(registry)
        self._dependents: dict[str, dict[ObjectKey, None]] = {}
        self._ending: dict[str, ObjectKey] = {}
        self._ending_namespaces: set[str] = set()

    def follows(self) -> list[str]:
        return [kind.storage for kind in self.registry.stored_kinds()]

    def concerns(self, resource: str, obj: Json, *, gone: bool) -> None:
        meta = obj["metadata"]
        namespace, uid = meta.get("namespace") or "", meta["uid"]
        key = (resource, namespace, meta["name"])
        for owner in meta.get("ownerReferences") or ():
            if not gone:
                self._dependents.setdefault(owner["uid"], {})[key] = None
                continue
            siblings = self._dependents.get(owner["uid"], {})
            siblings.pop(key, None)
            if not siblings:
                self._dependents.pop(owner["uid"], None)
            if owner["uid"] in self._ending:
                self.note(self._ending[owner["uid"]])
        if gone:
            self._ending.pop(uid, None)
            if uid in self._dependents:
                self.note(("", "", uid))
            if resource == NAMESPACES:
                self._ending_namespaces.discard(meta["name"])
            elif namespace in self._ending_namespaces:
                self.note((NAMESPACES, "", namespace))
        elif meta.get("deletionTimestamp"):
            if resource == NAMESPACES:
                self._ending_namespaces.add(meta["name"])
                self.note(key)
            elif any(one in (_FOREGROUND, _ORPHAN) for one in meta.get("finalizers") or ()):
                self._ending[uid] = key
                self.note(key)

    def reconcile(self, key: ObjectKey) -> None:
        if not key[0]:
            self._after(key)
        elif key[0] == NAMESPACES:
            self._empty(key)
        else:
            self._before(key)

    def _after(self, key: ObjectKey) -> None:
        """The owner is gone: dependents that have no other owner go, the others lose the reference."""
        uid = key[2]
        for dependent, obj in self._some(uid):
            others = [one for one in obj["metadata"]["ownerReferences"] if one["uid"] != uid]
            if others:
                self.set_metadata(dependent, {"ownerReferences": others})
            else:
                self.delete(dependent[0], obj)
            self._drop(uid, dependent)
        if self._dependents.get(uid):
            self.note(key)

    def _before(self, key: ObjectKey) -> None:
        """The owner waits for us: in the foreground for its dependents, or until they are orphans."""
        owner = self.registry.get(*key)
        if owner is None:
            return
        uid, finalizers = owner["metadata"]["uid"], owner["metadata"].get("finalizers") or []
        if _ORPHAN in finalizers:
            for dependent, obj in self._some(uid):
                others = [one for one in obj["metadata"]["ownerReferences"] if one["uid"] != uid]
                self.set_metadata(dependent, {"ownerReferences": others or None})
                self._drop(uid, dependent)
            if self._dependents.get(uid):
                self.note(key)
            else:
                self.release(key, owner, _ORPHAN)
            return
        for dependent, obj in self._some(uid, fresh_only=True):
            self.delete(dependent[0], obj, policy="Foreground")
        if self.writes >= BATCH:
            self.note(key)
        elif not any(self._blocks(dependent, uid) for dependent in self._dependents.get(uid, ())):
            self.release(key, owner, _FOREGROUND)

    def _blocks(self, dependent: ObjectKey, uid: str) -> bool:
        """Whether the dependent is still there and holds its owner."""
        obj = self.registry.get(*dependent)
        owners = (obj["metadata"].get("ownerReferences") or ()) if obj is not None else ()
        return any(one["uid"] == uid and one.get("blockOwnerDeletion") for one in owners)

    def _drop(self, uid: str, dependent: ObjectKey) -> None:
        dependents = self._dependents.get(uid, {})
        dependents.pop(dependent, None)
        if not dependents:
            self._dependents.pop(uid, None)

    def _some(self, uid: str, *, fresh_only: bool = False) -> list[tuple[ObjectKey, Json]]:
        """A batch of the objects that refer to ``uid``; names whose object is gone, or another's, are dropped."""
        found: list[tuple[ObjectKey, Json]] = []
        dependents = self._dependents.get(uid, {})
        for key in list(dependents):
            obj = self.registry.get(*key)
            if obj is None or all(one["uid"] != uid for one in obj["metadata"].get("ownerReferences") or ()):
                del dependents[key]
            elif not (fresh_only and obj["metadata"].get("deletionTimestamp")):
                found.append((key, obj))
                if len(found) >= BATCH:
                    break
        return found

    def _empty(self, key: ObjectKey) -> None:
        """What is in an ending namespace goes; then its finalizer is taken off."""
        namespace = key[2]
        left = False
        for kind in self.registry.stored_kinds():
            if not kind.namespaced:
                continue
            for obj in list(self.registry.list(kind.storage, namespace)):
                left = True
                if self.writes >= BATCH:
                    self.note(key)
                    return
                self.delete(kind.storage, obj)
        found = self.registry.get(NAMESPACES, "", namespace)
        if not left and found is not None and found["spec"].get("finalizers"):
            ctx = self.registry.context("patch", NAMESPACES, "", namespace, user=self.user)
            nothing = {"spec": {"finalizers": None}}
            self.registry.patch(ctx, NAMESPACES, "", namespace, nothing, subresource="finalize")
            self.writes += 1
