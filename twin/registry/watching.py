"""One watcher: which changes it sees, as what, and how much may wait for it.

A selector turns a change into what it means for the selection: an object that enters is ADDED, one that leaves is
DELETED (shown as it was, with the change's resourceVersion). Source: apiserver ``storage/cacher``. Pure: the buffer is
a list of bytes, the shell is called to fetch it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from msgspec.json import encode

from shared.kube.label_selectors import ParsedSelector
from twin.registry.list_options import FieldSelector
from twin.registry.store import Shelf
from twin.registry.stored import ADDED, DELETED, MODIFIED, Json, StoredChange, StoredObject

MAX_WAITING_BYTES = 64 * 1024 * 1024
"""A watcher that lets more than this wait is cut off, as a real server cuts off a slow one."""

Frame = Callable[[StoredChange, str], bytes]
"""Renders a change as the given event type (JSON, Table or PartialObjectMetadata)."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What a list or watch covers."""

    namespace: str = ""
    name: str = ""
    labels: ParsedSelector | None = None
    fields: FieldSelector | None = None
    selectable: Callable[[Json], dict[str, str]] = lambda _obj: {}

    def covers(self, stored: StoredObject) -> bool:
        """Namespace and name only: these never change."""
        if self.namespace and stored.namespace != self.namespace:
            return False
        return not self.name or stored.name == self.name

    def matches(self, stored: StoredObject) -> bool:
        """Everything that can change: labels and fields."""
        if self.labels is not None and not self.labels.matches(stored.labels):
            return False
        return self.fields is None or self.fields.matches(stored.fields(self.selectable))

    @property
    def everything(self) -> bool:
        """No label and no field selector."""
        return self.labels is None and self.fields is None

    def pick(self, shelf: Shelf) -> list[StoredObject]:
        """The selected objects of a shelf, in order."""
        if self.namespace and self.name:
            one = shelf.get(f"{self.namespace}/{self.name}")
            found = [] if one is None else [one]
        else:
            found = shelf.select(self.namespace)
        return self.narrow(found, covered=True)

    def narrow(self, found: list[StoredObject], *, covered: bool = False) -> list[StoredObject]:
        """The selected ones among ``found`` (``covered``: the namespace is known to fit)."""
        if covered and self.everything and not self.name:
            return found
        return [one for one in found if self.covers(one) and self.matches(one)]


class Watcher:
    """Collects the events of one watch until its shell takes them."""

    def __init__(self, selection: Selection, frame: Frame, wake: Callable[[], None], *, after: int = 0) -> None:
        """``after``: changes up to this revision are not shown (a watch from the future waits in silence)."""
        self._selection = selection
        self._frame = frame
        self._wake = wake
        self._after = after
        self._waiting: list[bytes] = []
        self._size = 0
        self.overflowed = False

    def offer(self, change: StoredChange) -> None:
        """A change of the watched shelf."""
        if change.revision <= self._after or self.overflowed:
            return
        selection = self._selection
        if not selection.covers(change.new):
            return
        event = change.type if selection.everything else self._seen_as(change)
        if event:
            self.push(self._frame(change, event))

    def _seen_as(self, change: StoredChange) -> str:
        matches = self._selection.matches
        before = change.old is not None and matches(change.old)
        if change.type == DELETED:
            return DELETED if before else ""
        now = matches(change.new)
        if now:
            return MODIFIED if before else ADDED
        return DELETED if before else ""

    def push(self, frame: bytes) -> None:
        """Queue one event as it goes out."""
        self._waiting.append(frame)
        self._size += len(frame)
        if self._size > MAX_WAITING_BYTES:
            self.overflowed = True
            self._waiting.clear()
        self._wake()

    def take(self) -> bytes:
        """Everything that waits, in order; empty when nothing does."""
        if not self._waiting:
            return b""
        waiting, self._waiting, self._size = self._waiting, [], 0
        return waiting[0] if len(waiting) == 1 else b"".join(waiting)


def bookmark_due(now: float, deadline: float | None, every_s: float = 60.0) -> float | None:
    """When the next periodic bookmark goes out (seconds on the same clock), None = no more before the end.

    Two seconds before the watch's deadline, or about once a minute (``cacheWatcher.nextBookmarkTime``).
    """
    heartbeat = now + every_s
    if deadline is None:
        return heartbeat
    before_end = deadline - 2.0
    if before_end > now and heartbeat > before_end:
        return before_end
    return None if heartbeat > deadline else heartbeat


def bookmark_frame(
    kind: str, api_version: str, blank: Mapping[str, object], revision: int, *, initial_end: bool
) -> bytes:
    """A BOOKMARK event: an empty object of the kind with a resourceVersion."""
    meta: Json = {"resourceVersion": str(revision)}
    if initial_end:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    obj = {"kind": kind, "apiVersion": api_version, "metadata": meta, **blank}
    return encode({"type": "BOOKMARK", "object": obj}) + b"\n"
