"""The objects of all kinds, their history and the one revision counter.

Stands where etcd and the watch cache stand behind a real API server: one counter for all kinds, a window of changes per
kind, "compacted" before it, exact snapshots inside it. Pure: no I/O, no clock; a write is one synchronous call.
It knows neither metadata rules (``metadata.py``) nor selectors (``list_options.py``).

Invariants: the revision grows by one with each write; a shelf's history is ordered by revision; a watcher sees every
change after its start exactly once and in order (I8 of the design), because registering and writing never interleave.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

from twin.registry.stored import ADDED, DELETED, MODIFIED, Json, Owners, StoredChange, StoredObject

FIRST_REVISION = 1000
"""Everything at and below is history that a client cannot have: treated as compacted."""

_SNAPSHOTS = 4
"""Exact snapshots kept per shelf, so that the pages of one list cost one reconstruction."""


class Compacted(Exception):
    """The revision is older than the history; ``oldest`` is the first one that can be served."""

    def __init__(self, revision: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {revision} ({oldest})")
        self.oldest = oldest


class Receiver(Protocol):
    """Who wants the changes of a shelf."""

    def offer(self, change: StoredChange) -> None:
        """Take a change, at once and without failing."""
        ...


class Shelf:
    """All objects of one resource, ordered by key, with the last ``window`` changes."""

    def __init__(self, window: int, compacted: int) -> None:
        self._window = window
        self._keys: list[str] = []
        self._objects: dict[str, StoredObject] = {}
        self._history: list[StoredChange] = []
        self._compacted = compacted
        self._snapshots: OrderedDict[int, list[StoredObject]] = OrderedDict()
        self.receivers: list[Receiver] = []

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: str) -> StoredObject | None:
        """One object by ``namespace/name``, or ``name``."""
        return self._objects.get(key)

    def select(self, namespace: str = "") -> list[StoredObject]:
        """The objects of a namespace, or all, in order of their keys."""
        objects = self._objects
        if not namespace:
            return [objects[key] for key in self._keys]
        start = bisect_left(self._keys, namespace + "/")
        end = bisect_left(self._keys, namespace + "0")  # "0" follows "/"
        return [objects[key] for key in self._keys[start:end]]

    def put(self, stored: StoredObject) -> StoredChange:
        """Store a new revision; watchers are not told yet (``announce``)."""
        key = stored.key
        old = self._objects.get(key)
        if old is None:
            insort(self._keys, key)
            change = StoredChange(ADDED, stored, None)
        else:
            change = StoredChange(MODIFIED, stored, old)
        self._objects[key] = stored
        return change

    def remove(self, old: StoredObject, revision: int) -> StoredChange:
        """Take an object away; the change carries its last state with the delete's revision."""
        del self._objects[old.key]
        self._keys.pop(bisect_left(self._keys, old.key))
        return StoredChange(DELETED, old.at_revision(revision), old)

    def announce(self, change: StoredChange) -> None:
        """Remember the change and hand it to every watcher; then let go of the old revision's decoded form."""
        self._history.append(change)
        if len(self._history) > self._window:
            drop = max(1, self._window // 8)
            self._compacted = self._history[drop - 1].revision
            del self._history[:drop]
        for receiver in tuple(self.receivers):
            receiver.offer(change)
        if change.old is not None:
            change.old.release()
        if change.type == DELETED:
            change.new.release()

    def compact(self, revision: int) -> None:
        """Forget the changes up to ``revision``."""
        self._compacted = max(self._compacted, revision)
        del self._history[: bisect_right(self._history, revision, key=_revision_of)]
        self._snapshots.clear()

    @property
    def oldest(self) -> int:
        """The oldest revision that a watch may start from."""
        return self._compacted

    def since(self, revision: int) -> Sequence[StoredChange]:
        """The changes after ``revision``, in order. Raises ``Compacted``."""
        if revision < self._compacted:
            raise Compacted(revision, self._compacted)
        return self._history[bisect_right(self._history, revision, key=_revision_of) :]

    def at(self, revision: int) -> list[StoredObject]:
        """All objects as they were at ``revision``, in order of their keys. Raises ``Compacted``."""
        if revision < self._compacted:
            raise Compacted(revision, self._compacted)
        known = self._snapshots.get(revision)
        if known is not None:
            self._snapshots.move_to_end(revision)
            return known
        objects = dict(self._objects)
        for change in reversed(self.since(revision)):
            if change.old is None:
                del objects[change.new.key]
            else:
                objects[change.new.key] = change.old
        snapshot = [objects[key] for key in sorted(objects)]
        self._snapshots[revision] = snapshot
        if len(self._snapshots) > _SNAPSHOTS:
            self._snapshots.popitem(last=False)
        return snapshot


def _revision_of(change: StoredChange) -> int:
    return change.revision


class ObjectStore:
    """Shelves by resource (``pods``, ``leases.coordination.k8s.io``) under one revision counter."""

    def __init__(self, *, window: int = 16384, first_revision: int = FIRST_REVISION) -> None:
        self._window = window
        self.revision = first_revision
        self._first = first_revision
        self._shelves: dict[str, Shelf] = {}
        self._waiting: list[tuple[int, Callable[[], None]]] = []

    def shelf(self, resource: str) -> Shelf:
        """The shelf of one resource, made on first use."""
        shelf = self._shelves.get(resource)
        if shelf is None:
            shelf = self._shelves[resource] = Shelf(self._window, self._first)
        return shelf

    def write(self, resource: str, namespace: str, name: str, obj: Json, owners: Owners = ()) -> StoredChange:
        """Create or replace; sets ``metadata.resourceVersion``. The caller announces it after its own book-keeping."""
        revision = self._next()
        obj["metadata"]["resourceVersion"] = str(revision)
        return self.shelf(resource).put(StoredObject(namespace, name, revision, obj, owners))

    def delete(self, resource: str, old: StoredObject) -> StoredChange:
        """Remove one object."""
        return self.shelf(resource).remove(old, self._next())

    def _next(self) -> int:
        self.revision += 1
        if self._waiting:
            due = [call for revision, call in self._waiting if revision <= self.revision]
            self._waiting = [entry for entry in self._waiting if entry[0] > self.revision]
            for call in due:
                call()
        return self.revision

    def when_revision(self, revision: int, call: Callable[[], None]) -> Callable[[], None]:
        """Call once when the counter reaches ``revision`` (a list that is ahead of us waits for it).

        Returns what takes the wish back: many wait for a revision that never comes.
        """
        entry = (revision, call)
        self._waiting.append(entry)

        def forget() -> None:
            if entry in self._waiting:
                self._waiting.remove(entry)

        return forget

    def compact(self, revision: int) -> None:
        """Forget all history up to ``revision``."""
        for shelf in self._shelves.values():
            shelf.compact(revision)
        self._first = max(self._first, revision)
