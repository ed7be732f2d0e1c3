"""The garbage collector of the twin: what an object owned goes when it goes.

Deletions cascade in the background, in the foreground (the owner last) or leave orphans, as the request said. Also the
namespace controller: what stands in a namespace that ends goes, then the namespace. Source: ``pkg/controller/
{garbagecollector,namespace}`` of Kubernetes 1.36. It refuses to judge owners that it never saw: a reference to nothing
stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from services.twin.controllers.queue import BATCH, ControllerQueue
from services.twin.registry.status import ApiError
from services.twin.registry.stored import DELETED

if TYPE_CHECKING:
    from services.twin.registry.changes import Accepted
    from services.twin.registry.registry import TwinRegistry

Json = dict[str, Any]
Key = tuple[str, str, str]
"""Resource, namespace, name; of an owner that is gone: its uid in place of the name, and no resource."""

USER = "system:serviceaccount:kube-system:generic-garbage-collector"
NAMESPACES = "namespaces"
RETRY_S = 1.0
"""Until a write that was refused is tried again."""
_FOREGROUND, _ORPHAN = "foregroundDeletion", "orphan"


class GarbageCollector:
    """Attach to a registry with ``start``; ``stop`` leaves everything as it is."""

    def __init__(self, registry: TwinRegistry) -> None:
        self._registry = registry
        self._queue: ControllerQueue[Key] = ControllerQueue(self._look)
        self._dependents: dict[str, dict[Key, None]] = {}
        self._ending: dict[str, Key] = {}
        self._ending_namespaces: set[str] = set()
        self._unsubscribe: Callable[[], None] | None = None
        self._writes = 0
        self.refused = 0
        """Writes the registry refused: the object had changed or gone meanwhile."""

    def start(self) -> None:
        """Take over what there is and what is to come. Call inside the server's event loop."""
        self._queue.start()
        for kind in self._registry.stored_kinds():
            for obj in list(self._registry.list(kind.storage)):
                self._concerns(kind.storage, obj, gone=False)
        self._unsubscribe = self._registry.subscribe(self._on_change)

    def stop(self) -> None:
        """Do nothing from now on."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        self._queue.stop()

    @property
    def busy(self) -> bool:
        """Whether something is to be looked at now."""
        return self._queue.busy

    # --- in -------------------------------------------------------------------------------------------------------

    def _on_change(self, accepted: Accepted) -> None:
        change = accepted.change
        self._concerns(accepted.kind.storage, change.new.obj, gone=change.type == DELETED)

    def _concerns(self, resource: str, obj: Json, *, gone: bool) -> None:
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
                self._queue.note(self._ending[owner["uid"]])
        if gone:
            self._ending.pop(uid, None)
            if uid in self._dependents:
                self._queue.note(("", "", uid))
            if resource == NAMESPACES:
                self._ending_namespaces.discard(meta["name"])
            elif namespace in self._ending_namespaces:
                self._queue.note((NAMESPACES, "", namespace))
        elif meta.get("deletionTimestamp"):
            if resource == NAMESPACES:
                self._ending_namespaces.add(meta["name"])
                self._queue.note(key)
            elif any(one in (_FOREGROUND, _ORPHAN) for one in meta.get("finalizers") or ()):
                self._ending[uid] = key
                self._queue.note(key)

    # --- out ------------------------------------------------------------------------------------------------------

    def _look(self, key: Key) -> int:
        """Look at one owner; how many writes that took."""
        self._writes = 0
        try:
            if not key[0]:
                self._after(key)
            elif key[0] == NAMESPACES:
                self._empty(key)
            else:
                self._before(key)
        except ApiError:
            self.refused += 1
            self._queue.again(key, RETRY_S)
        return self._writes

    def _after(self, key: Key) -> None:
        """The owner is gone: dependents that have no other owner go, the others lose the reference."""
        uid = key[2]
        for dependent, obj in self._some(uid):
            others = [one for one in obj["metadata"]["ownerReferences"] if one["uid"] != uid]
            if others:
                self._patch(dependent, {"ownerReferences": others})
            else:
                self._delete(dependent, obj, "Background")
            self._drop(uid, dependent)
        if self._dependents.get(uid):
            self._queue.note(key)

    def _before(self, key: Key) -> None:
        """The owner waits for us: in the foreground for its dependents, or until they are orphans."""
        owner = self._registry.get(*key)
        if owner is None:
            return
        uid, finalizers = owner["metadata"]["uid"], owner["metadata"].get("finalizers") or []
        if _ORPHAN in finalizers:
            for dependent, obj in self._some(uid):
                others = [one for one in obj["metadata"]["ownerReferences"] if one["uid"] != uid]
                self._patch(dependent, {"ownerReferences": others or None})
                self._drop(uid, dependent)
            if self._dependents.get(uid):
                self._queue.note(key)
            else:
                self._release(key, finalizers, _ORPHAN)
            return
        for dependent, obj in self._some(uid, fresh_only=True):
            self._delete(dependent, obj, "Foreground")
        if self._writes >= BATCH:
            self._queue.note(key)
        elif not any(self._blocks(dependent, uid) for dependent in self._dependents.get(uid, ())):
            self._release(key, finalizers, _FOREGROUND)

    def _blocks(self, dependent: Key, uid: str) -> bool:
        """Whether the dependent is still there and holds its owner."""
        obj = self._registry.get(*dependent)
        owners = (obj["metadata"].get("ownerReferences") or ()) if obj is not None else ()
        return any(one["uid"] == uid and one.get("blockOwnerDeletion") for one in owners)

    def _drop(self, uid: str, dependent: Key) -> None:
        dependents = self._dependents.get(uid, {})
        dependents.pop(dependent, None)
        if not dependents:
            self._dependents.pop(uid, None)

    def _some(self, uid: str, *, fresh_only: bool = False) -> list[tuple[Key, Json]]:
        """A batch of the objects that refer to ``uid``; names whose object is gone, or another's, are dropped."""
        found: list[tuple[Key, Json]] = []
        dependents = self._dependents.get(uid, {})
        for key in list(dependents):
            obj = self._registry.get(*key)
            if obj is None or all(one["uid"] != uid for one in obj["metadata"].get("ownerReferences") or ()):
                del dependents[key]
            elif not (fresh_only and obj["metadata"].get("deletionTimestamp")):
                found.append((key, obj))
                if len(found) >= BATCH:
                    break
        return found

    def _empty(self, key: Key) -> None:
        """What is in an ending namespace goes; then its finalizer is taken off."""
        namespace = key[2]
        left = False
        for kind in self._registry.stored_kinds():
            if not kind.namespaced:
                continue
            for obj in list(self._registry.list(kind.storage, namespace)):
                left = True
                if self._writes >= BATCH:
                    self._queue.note(key)
                    return
                self._delete((kind.storage, namespace, obj["metadata"]["name"]), obj, "Background")
        found = self._registry.get(NAMESPACES, "", namespace)
        if not left and found is not None and found["spec"].get("finalizers"):
            ctx = self._registry.context("patch", NAMESPACES, "", namespace, user=USER)
            nothing = {"spec": {"finalizers": None}}
            self._registry.patch(ctx, NAMESPACES, "", namespace, nothing, subresource="finalize")
            self._writes += 1

    # --- writes ---------------------------------------------------------------------------------------------------

    def _patch(self, key: Key, metadata: Json) -> None:
        ctx = self._registry.context("patch", *key, user=USER)
        self._registry.patch(ctx, *key, {"metadata": metadata})
        self._writes += 1

    def _release(self, key: Key, finalizers: list[str], ours: str) -> None:
        """Take our finalizer off; the last one taken ends the object."""
        if ours in finalizers:
            self._patch(key, {"finalizers": [one for one in finalizers if one != ours] or None})

    def _delete(self, key: Key, obj: Json, policy: str) -> None:
        if obj["metadata"].get("deletionTimestamp"):
            return
        ctx = self._registry.context("delete", *key, user=USER)
        options = {"preconditions": {"uid": obj["metadata"]["uid"]}, "propagationPolicy": policy}
        self._registry.delete(ctx, *key, options)
        self._writes += 1
