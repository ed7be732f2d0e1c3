"""Which objects a consumer has been told about, so that a fresh list becomes events and nothing else.

Pure. A list is taken in page by page (``ListingInProgress``), so that no more of it is held at once. Keeps (namespace,
name, resourceVersion) per uid and no object: 5,000 pods cost 2 MB, not 20. So a ``DeletedObject`` that comes of a list
carries metadata only; consumers key by uid and need no more. With ``content`` it keeps what that makes of the object
too, and a change that leaves it as it was is noted and not told.

Invariants: K1 after a list L the known uids are those of L · K2 an object whose resourceVersion or content
is known yields no event · K3 replaying events and lists in any mix leaves a consumer with the state of the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from shared.kube.objects import ObjectMeta
from shared.kube.resources import (
    Bookmark,
    DeletedObject,
    Malformed,
    MalformedObject,
    ObjectList,
    Resource,
    Upserted,
    WatchEvent,
)

T = TypeVar("T")

_Known = tuple[str, str, str, bool, int | None]
"""namespace, name, resourceVersion, whether it was malformed, content"""


class KnownObjects(Generic[T]):
    """What has been told of one resource."""

    def __init__(self, resource: Resource[T], content: Callable[[T], int | None] | None = None) -> None:
        self._resource = resource
        self._content = content
        self._known: dict[str, _Known] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, uid: str) -> bool:
        return uid in self._known

    def apply(self, events: Iterable[WatchEvent[T]]) -> list[WatchEvent[T]]:
        """Note watch events; those worth telling: bookmarks are not, nor what is known already (I9)."""
        told: list[WatchEvent[T]] = []
        known = self._known
        for event in events:
            if isinstance(event, Bookmark):
                continue
            if isinstance(event, DeletedObject) or (isinstance(event, Malformed) and event.deleted):
                known.pop(_entry_of_event(event)[0], None)
                told.append(event)
            else:
                self.note(told, event)
        return told

    def doubt(self) -> None:
        """What is known may be shown in another way now: the next list tells every object anew."""
        self._known = {
            uid: (namespace, name, "", bad, None) for uid, (namespace, name, _, bad, _) in self._known.items()
        }

    def relist(self, *pages: ObjectList[T]) -> list[WatchEvent[T]]:
        """The events that lead from what is known to the list of these ``pages``."""
        listing = ListingInProgress(self)
        return [*(event for page in pages for event in listing.page(page)), *listing.end()]

    def note(self, told: list[WatchEvent[T]], event: WatchEvent[T]) -> None:
        """Note an object that there is; it is told where something else was known of it."""
        uid, (namespace, name, resource_version, malformed) = _entry_of_event(event)
        known = self._known.get(uid)
        if known is not None and known[:4] == (namespace, name, resource_version, malformed):
            return
        content = self._content(event.object) if self._content is not None and isinstance(event, Upserted) else None
        self._known[uid] = namespace, name, resource_version, malformed, content
        if content is None or known is None or content != known[4]:
            told.append(event)

    def forget(self, uid: str) -> WatchEvent[T]:
        """The deletion of an object that is known."""
        return self._deletion(uid, self._known.pop(uid))

    def version_of(self, uid: str) -> str:
        """The resourceVersion that is known of it; empty where nothing is."""
        known = self._known.get(uid)
        return known[2] if known is not None else ""

    def uids(self) -> dict[tuple[str, str], str]:
        """Of all that is known, by namespace and name."""
        return {entry[:2]: uid for uid, entry in self._known.items()}

    def _deletion(self, uid: str, entry: _Known) -> WatchEvent[T]:
        namespace, name, resource_version, malformed, _ = entry
        if malformed:
            found = MalformedObject(self._resource.kind, namespace, name, uid, resource_version, "")
            return Malformed(found, deleted=True)
        type_: Any = self._resource.type
        meta = ObjectMeta(name=name, namespace=namespace or None, uid=uid, resource_version=resource_version)
        return DeletedObject(type_(metadata=meta))


class ListingInProgress(Generic[T]):
    """A list on its way: each page becomes the events that it brings, and its end those of what is not there any more.

    One that breaks off leaves no debt: what was told is known, and the next list begins from there. An object that
    bears the name of another one that is known is told after that one's deletion.

    ``since``: a watch that began at this revision goes on beside the list (``apply``), and neither is always ahead of
    the other: what is told of an object never goes back, and one that the watch showed deleted does not come back. Nor
    is a name given back to an earlier object that bore it, nor its end told once another one bears it."""

    def __init__(self, known: KnownObjects[T], *, since: int | None = None) -> None:
        self._known = known
        self._since = since
        self._named = known.uids()
        self._missing = set(self._named.values())
        """What is known and was not listed yet."""
        self._gone: set[str] = set()
        """What the watch showed deleted."""

    def page(self, listed: ObjectList[T]) -> list[WatchEvent[T]]:
        """Changes and additions of one page."""
        told: list[WatchEvent[T]] = []
        events: list[WatchEvent[T]] = [Upserted(item) for item in listed.items]
        events += (Malformed(bad) for bad in listed.malformed)
        for event in events:
            uid, (namespace, name, resource_version, _) = _entry_of_event(event)
            self._missing.discard(uid)
            if uid not in self._gone and not self._is_behind(uid, resource_version):
                self._note(told, event, uid, (namespace, name), listed.resource_version)
        return told

    def apply(self, events: Iterable[WatchEvent[T]]) -> list[WatchEvent[T]]:
        """What the watch beside the list brings; as ``KnownObjects.apply``."""
        told: list[WatchEvent[T]] = []
        for event in events:
            if isinstance(event, Bookmark):
                continue
            uid, (namespace, name, resource_version, _) = _entry_of_event(event)
            if isinstance(event, DeletedObject) or (isinstance(event, Malformed) and event.deleted):
                self._missing.discard(uid)
                self._gone.add(uid)
                if uid in self._known:  # else its end was told with the one that bears its name now, or never its being
                    told += self._known.apply((event,))
                continue
            new = uid not in self._known
            if not self._is_behind(uid, resource_version):
                self._note(told, event, uid, (namespace, name), resource_version)
            if new and uid in self._known:
                self._missing.add(uid)
        return told

    def _note(
        self, told: list[WatchEvent[T]], event: WatchEvent[T], uid: str, name: tuple[str, str], revision: str
    ) -> None:
        """An object that bore its ``name`` at ``revision``: one that bears it since counts, one of before has ended."""
        before = self._named.get(name, uid)
        if before != uid and before in self._known:
            if self._is_behind(before, revision):
                return
            self._missing.discard(before)
            told.append(self._known.forget(before))
        self._named[name] = uid
        self._known.note(told, event)

    def _is_behind(self, uid: str, resource_version: str) -> bool:
        """Whether the other one, list or watch, has told something newer of it. What was known before both began says
        nothing: it may be of a history that was taken back."""
        known = self._known.version_of(uid)
        if self._since is None or not (known.isdecimal() and resource_version.isdecimal()):
            return False
        return int(known) > max(self._since, int(resource_version))

    def end(self, revision: str = "") -> list[WatchEvent[T]]:
        """Deletions of what no page had; once."""
        return self.forget(self.missing(revision))

    def missing(self, revision: str) -> list[str]:
        """What no page had; what the watch showed after the list's ``revision`` is there."""
        missing = [uid for uid in self._named.values() if uid in self._missing]
        return [uid for uid in missing if not self._is_behind(uid, revision)]

    def forget(self, uids: Iterable[str]) -> list[WatchEvent[T]]:
        """Deletions of those that are still known."""
        return [self._known.forget(uid) for uid in uids if uid in self._known]


def uid_of(event: Upserted[Any] | DeletedObject[Any] | Malformed) -> str:
    """By which an event's object is known: its uid, or the name of one that shows none."""
    return _entry_of_event(event)[0]


def position_after(events: Sequence[Any], position: str) -> str:
    """The resourceVersion of the last of a watch's events that has one; ``position`` where none has."""
    for event in reversed(events):
        if isinstance(event, Bookmark):
            found = event.resource_version
        elif isinstance(event, Malformed):
            found = event.object.resource_version
        else:
            found = event.object.metadata.resource_version
        if found:
            return str(found)
    return position


def has_reached(position: str, revision: str) -> bool:
    """Whether ``position`` is certainly no older than ``revision``. resourceVersions are comparable as integers since
    1.35 (KEP-5504); where they are not, only equal ones are."""
    if position.isdecimal() and revision.isdecimal():
        return int(position) >= int(revision)
    return bool(position) and position == revision


def _entry_of_event(event: Any) -> tuple[str, tuple[str, str, str, bool]]:
    found = event.object
    if isinstance(event, Malformed):
        # without a uid the name must do: two such objects are two, not one
        uid = found.uid or f"{found.namespace}/{found.name}"
        return uid, (found.namespace, found.name, found.resource_version, True)
    meta = found.metadata
    return meta.uid, (meta.namespace or "", meta.name, meta.resource_version, False)
