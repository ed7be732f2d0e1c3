"""One revision of one object, and one change: encoded once, shown to everybody.

Why: a change is answered to its writer, sent to every watcher, listed, audited. All of these share the bytes made
here, so that the cost of JSON is paid once per write. It knows neither kinds nor HTTP.

``body`` is the object's JSON without the opening brace and without kind and apiVersion; a *head* such as
``{"kind":"Pod","apiVersion":"v1",`` in front of it makes the whole, ``{`` alone makes a list's item.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from twin.registry.apply.field_owners import Owner, after_change, shown

Json = dict[str, Any]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"

_MAX_UNRESOLVED = 8
_METADATA = b'"metadata":{'
_NO_LABELS: Mapping[str, str] = {}


class Inherited:
    """Owners that follow from the revision before and one write.

    Most revisions are never shown on their own (a bound pod goes to watchers), so the comparison waits until one is.
    """

    __slots__ = ("_before", "_skip_status", "_status_only", "_writer", "depth")

    def __init__(self, before: StoredObject, writer: Owner, *, status_only: bool, skip_status: bool) -> None:
        self._before = before
        self._writer = writer
        self._status_only = status_only
        self._skip_status = skip_status
        if before.unresolved >= _MAX_UNRESOLVED:
            before.owners  # noqa: B018 - worked out now, so that the chain of kept revisions stays short
        self.depth = before.unresolved + 1

    def resolve(self, obj: Json) -> tuple[Owner, ...]:
        """The owners of ``obj``."""
        return after_change(
            self._before.owners,
            self._before.obj,
            obj,
            self._writer,
            status_only=self._status_only,
            skip_status=self._skip_status,
        )


Owners = tuple[Owner, ...] | Inherited


class StoredObject:
    """One revision. ``obj`` is read-only for everybody; it has no ``kind`` and no ``apiVersion``."""

    __slots__ = ("_fields", "_obj", "_owners", "body", "key", "labels", "name", "namespace", "revision")

    def __init__(self, namespace: str, name: str, revision: int, obj: Json, owners: Owners = ()) -> None:
        """``owners``: who set which fields, or how to find out; kept beside the object, not in its bytes."""
        self.namespace = namespace
        self.name = name
        self.key = f"{namespace}/{name}" if namespace else name
        self.revision = revision
        self._owners: Owners = owners
        self.body: bytes = _encode(obj)[1:]
        self.labels: Mapping[str, str] = obj["metadata"].get("labels") or _NO_LABELS
        self._obj: Json | None = obj
        self._fields: Mapping[str, str] | None = None

    @property
    def obj(self) -> Json:
        """The object; decoded anew each time once it was released."""
        if self._obj is not None:
            return self._obj
        decoded: Json = _decode(b"{" + self.body)
        return decoded

    @property
    def owners(self) -> tuple[Owner, ...]:
        """Who set which fields; worked out when first asked for."""
        if isinstance(self._owners, Inherited):
            inherited = self._owners
            self._owners = inherited.resolve(self.obj)
        return self._owners

    @property
    def unresolved(self) -> int:
        """How many writes back the owners were last worked out."""
        return self._owners.depth if isinstance(self._owners, Inherited) else 0

    def fresh(self) -> Json:
        """A copy that the caller owns, down to the last list."""
        decoded: Json = _decode(b"{" + self.body)
        return decoded

    def body_with_owners(self) -> bytes:
        """``body`` with ``metadata.managedFields``, where there are any."""
        owners = self.owners
        if not owners:
            return self.body
        managed = shown(owners)
        if self.body.startswith(_METADATA):
            return b"".join((_METADATA, b'"managedFields":', managed, b",", self.body[len(_METADATA) :]))
        obj = self.fresh()
        obj["metadata"]["managedFields"] = msgspec.Raw(managed)
        return _encode(obj)[1:]

    def release(self) -> None:
        """Drop the decoded form (a superseded revision is kept as bytes for the history)."""
        self._obj = None

    def fields(self, selectable: Callable[[Json], dict[str, str]]) -> Mapping[str, str]:
        """Values for field selectors, computed once."""
        if self._fields is None:
            fields = selectable(self.obj)
            fields["metadata.name"] = self.name
            fields["metadata.namespace"] = self.namespace
            self._fields = fields
        return self._fields

    def at_revision(self, revision: int) -> StoredObject:
        """The same state under another resourceVersion (DELETED events show the last state with a new one)."""
        obj = dict(self.obj)
        obj["metadata"] = {**obj["metadata"], "resourceVersion": str(revision)}
        return StoredObject(self.namespace, self.name, revision, obj, self._owners)


class StoredChange:
    """One write. ``new``: the object after it (for a delete: the last state with the delete's revision)."""

    __slots__ = ("_frames", "_left", "new", "old", "revision", "type")

    def __init__(self, type_: str, new: StoredObject, old: StoredObject | None) -> None:
        self.type = type_
        self.new = new
        self.old = old
        self.revision = new.revision
        self._left: StoredObject | None = None
        self._frames: dict[tuple[bytes, str], bytes] = {}

    @property
    def left(self) -> StoredObject:
        """What a watcher sees whose selection the object left: its old state with the change's revision."""
        if self.type == DELETED or self.old is None:
            return self.new
        if self._left is None:
            self._left = self.old.at_revision(self.revision)
        return self._left

    def frame(self, head: bytes, type_: str) -> bytes:
        """The watch event as a line; ``type_`` differs from ``type`` where a selector sees it otherwise."""
        key = (head, type_)
        frame = self._frames.get(key)
        if frame is None:
            stored = self.left if type_ == DELETED else self.new
            frame = b"".join((b'{"type":"', type_.encode(), b'","object":', head, stored.body, b"}\n"))
            self._frames[key] = frame
        return frame
