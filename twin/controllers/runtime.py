"""What the twin's controllers share: following the registry, a queue of what to look at, and the writes.

A controller notes keys when something changes (``concerns``) and looks at them one by one (``reconcile``), a few writes
per turn of the event loop. A key is noted once however often it changes; who is asked for often rests in between,
longer the more it costs, so that no set of pods takes the loop for itself.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from twin.registry.changes import Accepted
from twin.registry.registry import TwinRegistry
from twin.registry.status import ApiError
from twin.registry.stored import DELETED

Json = dict[str, Any]
ObjectKey = tuple[str, str, str]
"""Resource, namespace, name."""

BATCH = 32
"""Writes before the event loop turns: about 5 ms, so that no request waits longer for us."""

RETRY_S = 1.0

Key = TypeVar("Key", bound=Hashable)


class Controller(ABC, Generic[Key]):
    """Attach to a registry with ``start``; ``stop`` leaves everything as it is."""

    user = "system:admin"
    """Who writes, where a call does not say."""
    manager = "unknown"
    retries = True
    """Whether a key whose write was refused (a quota, a name) is looked at again after ``RETRY_S``."""

    def __init__(self, registry: TwinRegistry) -> None:
        self.registry = registry
        self.refused = 0
        """Writes the registry refused: a quota, or the object had changed or gone meanwhile."""
        self.writes = 0
        self._todo: dict[Key, None] = {}
        self._timers: dict[Key, tuple[float, asyncio.TimerHandle]] = {}
        """When, as it was asked for: uvloop's handle of what is due already knows no time."""
        self._rests: dict[Key, float] = {}
        self._running: asyncio.Handle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unsubscribe: Callable[[], None] | None = None

    # --- what a controller says of itself -------------------------------------------------------------------------

    @abstractmethod
    def follows(self) -> list[str]:
        """The resources that it takes over at the start, in this order."""

    @abstractmethod
    def concerns(self, resource: str, obj: Json, *, gone: bool) -> None:
        """``obj`` came, changed or went (any resource): note what may have something to do now."""

    @abstractmethod
    def reconcile(self, key: Key) -> None:
        """Look at one key. Refused writes are counted and retried by the caller."""

    # --- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take over what there is and what is to come. Call inside the server's event loop."""
        self._loop = asyncio.get_running_loop()
        for resource in self.follows():
            for obj in list(self.registry.list(resource)):
                self.concerns(resource, obj, gone=False)
        self._unsubscribe = self.registry.subscribe(self._on_change)

    def stop(self) -> None:
        """Do nothing from now on."""
        if self._unsubscribe is not None:
            self._unsubscribe()
        for handle in (self._running, *(timer for _, timer in self._timers.values())):
            if handle is not None:
                handle.cancel()
        self._unsubscribe = self._running = self._loop = None
        self._timers.clear()
        self._todo.clear()
        self._rests.clear()

    @property
    def busy(self) -> bool:
        """Whether something is to be looked at now; what waits for its time does not count."""
        return bool(self._todo)

    def loop_s(self) -> float:
        """Seconds on the event loop's clock."""
        assert self._loop is not None
        return self._loop.time()

    def _on_change(self, accepted: Accepted) -> None:
        change = accepted.change
        self.concerns(accepted.kind.storage, change.new.obj, gone=change.type == DELETED)

    # --- the queue ------------------------------------------------------------------------------------------------

    def note(self, key: Key) -> None:
        """Look at ``key`` soon; when its rest is over where it rests."""
        if self._loop is None or key in self._todo:
            return
        rests_until = self._rests.get(key, 0.0)
        if rests_until > self._loop.time():
            self.at(key, rests_until)
            return
        self._todo[key] = None
        if self._running is None:
            self._running = self._loop.call_soon(self._run)

    def again(self, key: Key, after_s: float) -> None:
        """Look at ``key`` again after so long, or before."""
        if self._loop is not None:
            self.at(key, self._loop.time() + after_s)

    def rest(self, key: Key, for_s: float) -> None:
        """Do not look at ``key`` for so long."""
        if self._loop is not None:
            self._rests[key] = self._loop.time() + for_s

    def forget(self, key: Key) -> None:
        """``key`` is gone."""
        self._rests.pop(key, None)
        self._todo.pop(key, None)
        _, timer = self._timers.pop(key, (0.0, None))
        if timer is not None:
            timer.cancel()

    def at(self, key: Key, when: float) -> None:
        """Look at ``key`` at this time of the loop's clock, or before."""
        assert self._loop is not None
        known_s, timer = self._timers.get(key, (0.0, None))
        if timer is not None:
            if known_s <= when:
                return
            timer.cancel()
        self._timers[key] = when, self._loop.call_at(when, self._due, key)

    def _due(self, key: Key) -> None:
        self._timers.pop(key, None)
        self._rests.pop(key, None)
        self.note(key)

    def _run(self) -> None:
        self._running = None
        self.writes = looks = 0
        while self._todo and self.writes < BATCH and looks < BATCH:
            key = next(iter(self._todo))
            del self._todo[key]
            looks += 1
            try:
                self.reconcile(key)
            except ApiError:
                self.refused += 1
                if self.retries:
                    self.again(key, RETRY_S)
        if self._todo and self._running is None and self._loop is not None:
            self._running = self._loop.call_soon(self._run)

    # --- writes ---------------------------------------------------------------------------------------------------

    def create(self, resource: str, namespace: str, obj: Json, *, user: str = "") -> None:
        """Create an object."""
        name = obj["metadata"].get("name", "")
        ctx = self.registry.context("create", resource, namespace, name, user=user or self.user, manager=self.manager)
        self.registry.create(ctx, resource, namespace, obj)
        self.writes += 1

    def change(self, key: ObjectKey, change: Callable[[Json], Json], *, user: str = "", verb: str = "patch") -> Json:
        """Replace an object by ``change(old)``, which is the old one where there is nothing to change."""
        ctx = self.registry.context(verb, *key, user=user or self.user, manager=self.manager)
        after = self.registry.guaranteed_update(ctx, *key, change, audit_verb=verb)
        self.writes += 1
        return after

    def set_metadata(self, key: ObjectKey, metadata: Json) -> None:
        """Merge into an object's metadata."""
        ctx = self.registry.context("patch", *key, user=self.user, manager=self.manager)
        self.registry.patch(ctx, *key, {"metadata": metadata})
        self.writes += 1

    def release(self, key: ObjectKey, obj: Json, ours: str) -> None:
        """Take our finalizer off; the last one taken ends the object."""
        finalizers = obj["metadata"].get("finalizers") or []
        if ours in finalizers:
            self.set_metadata(key, {"finalizers": [one for one in finalizers if one != ours] or None})

    def delete(self, resource: str, obj: Json | None, *, policy: str = "Background", user: str = "") -> None:
        """Delete this very object, where it is not being deleted already."""
        if obj is None or obj["metadata"].get("deletionTimestamp"):
            return
        meta = obj["metadata"]
        key = (resource, meta.get("namespace") or "", meta["name"])
        ctx = self.registry.context("delete", *key, user=user or self.user)
        self.registry.delete(ctx, *key, {"preconditions": {"uid": meta["uid"]}, "propagationPolicy": policy})
        self.writes += 1
