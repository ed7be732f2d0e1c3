"""Bytes of lists, watch lines and Status answers into structs; what does not decode becomes a ``MalformedObject``.

The whole page or line is decoded typed in one pass (3.6 us for a pod). Only when that fails is it taken apart with
``msgspec.Raw``, so that one bad object costs itself and its neighbours nothing. It does not guess: an object whose
metadata cannot be read either keeps empty fields and its error.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from shared.errors import KubeError, KubeExpired, KubeUnknown
from shared.kube.resources import (
    Bookmark,
    DeletedObject,
    Malformed,
    MalformedObject,
    Resource,
    Upserted,
    WatchEvent,
)

T = TypeVar("T")

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bad JSON, a wrong type, bad UTF-8 and absurd depth."""

ERROR_LIMIT = 256
"""Characters kept of any error text: bodies may hold secrets (kopf cuts at the same length)."""


class KubeStatus(msgspec.Struct, frozen=True):
    """The API server's answer to everything that is not an object."""

    status: str = ""
    reason: str = ""
    message: str = ""
    code: int = 0


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """``metadata`` of a list page; ``continue_`` is the token of the next page, empty on the last."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class ListPage(msgspec.Struct, Generic[T], frozen=True):
    """One page, every item typed."""

    metadata: ListMeta
    items: list[T] | None = None


class Frame(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One line of a watch."""

    type: str
    object: T


class _RawPage(msgspec.Struct, frozen=True):
    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class _RawFrame(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class StreamBroken(KubeError):
    """A watch line that is no JSON, or an ERROR event other than 410: reconnect from the last resourceVersion."""

    code = "kube_stream_broken"


_status = msgspec.json.Decoder(KubeStatus)
_raw_page = msgspec.json.Decoder(_RawPage)
_raw_frame = msgspec.json.Decoder(_RawFrame)


def status_of(body: bytes) -> KubeStatus:
    """The Status in ``body``; where there is none (a proxy's HTML, say) the start of the text as its message."""
    try:
        found = _status.decode(body)
    except UNREADABLE:
        return KubeStatus(message=body[:ERROR_LIMIT].decode("utf-8", "replace"))
    return KubeStatus(found.status, found.reason, found.message[:ERROR_LIMIT], found.code)


class _RawItems(msgspec.Struct):
    items: list[msgspec.Raw]


def raw_items(body: bytes, noun: str) -> list[msgspec.Raw]:
    """The items of a list of any kind, unread. ``KubeUnknown``: it is no ``noun``."""
    try:
        return msgspec.json.decode(body, type=_RawItems).items
    except UNREADABLE as error:
        raise KubeUnknown(f"no {noun} ({error!s:.120})") from None


_Decoders = tuple[msgspec.json.Decoder[Any], msgspec.json.Decoder[Any], msgspec.json.Decoder[Any]]
_made: dict[Any, _Decoders] = {}


def _decoders(type_: Any) -> _Decoders:
    """Of one object, a list page and a watch line; made once per kind, of which there are few."""
    found = _made.get(type_)
    if found is None:
        found = _made[type_] = (
            msgspec.json.Decoder(type_),
            msgspec.json.Decoder(ListPage[type_]),
            msgspec.json.Decoder(Frame[type_]),
        )
    return found


def object_decoder(resource: Resource[T]) -> msgspec.json.Decoder[T]:
    """The decoder of one object of ``resource``."""
    return _decoders(resource.type)[0]


def decode_page(resource: Resource[T], body: bytes) -> tuple[list[T], ListMeta, list[MalformedObject]]:
    """Items, list metadata and what did not decode. ``KubeUnknown`` when the page is no list."""
    one, page, _ = _decoders(resource.type)
    try:
        whole: ListPage[T] = page.decode(body)
    except UNREADABLE:
        pass
    else:
        return whole.items or [], whole.metadata, []
    try:
        raw = _raw_page.decode(body)
    except UNREADABLE as error:
        raise KubeUnknown(f"list of {resource.plural}: the answer is no list ({str(error)[:ERROR_LIMIT]})") from error
    items: list[T] = []
    malformed: list[MalformedObject] = []
    for part in raw.items or ():
        try:
            items.append(one.decode(part))
        except UNREADABLE as error:
            malformed.append(recover(resource.kind, bytes(part), error))
    return items, raw.metadata, malformed


class FrameDecoder(Generic[T]):
    """Watch lines of one resource into events."""

    def __init__(self, resource: Resource[T]) -> None:
        self._kind = resource.kind
        self._decode = _decoders(resource.type)[2].decode

    def __call__(self, line: bytes) -> WatchEvent[T]:
        """The event of one line, without its newline.

        ``KubeExpired``: an ERROR event of 410. ``StreamBroken``: any other ERROR, or the line is no JSON.
        """
        try:
            frame = self._decode(line)
        except UNREADABLE as error:
            return self._slow(line, error)
        kind = frame.type
        if kind == "MODIFIED" or kind == "ADDED":
            return Upserted(frame.object)
        if kind == "DELETED":
            return DeletedObject(frame.object)
        return self._slow(line, None)

    def _slow(self, line: bytes, error: Exception | None) -> WatchEvent[T]:
        try:
            frame = _raw_frame.decode(line)
        except UNREADABLE as broken:
            raise StreamBroken(f"a watch line is not JSON: {str(broken)[:ERROR_LIMIT]}") from broken
        if frame.type == "ERROR":
            status = status_of(bytes(frame.object))
            if status.code == 410:
                raise KubeExpired(status.message or "resourceVersion too old")
            raise StreamBroken(f"the watch reported {status.code} {status.reason}: {status.message}")
        recovered = recover(self._kind, bytes(frame.object), error)
        if frame.type == "BOOKMARK" and recovered.resource_version:
            return Bookmark(recovered.resource_version)
        if error is None:
            raise StreamBroken(f"a watch event of unknown type {frame.type[:64]!r}")
        return Malformed(recovered, deleted=frame.type == "DELETED")


def recover(kind: str, body: bytes, error: Exception | None) -> MalformedObject:
    """Who the object in ``body`` is, as far as its metadata can be read."""
    try:
        found = msgspec.json.decode(body)
    except UNREADABLE:
        found = None
    meta = found.get("metadata") if isinstance(found, dict) else None

    def text(key: str) -> str:
        value = meta.get(key) if isinstance(meta, dict) else None
        return value[:ERROR_LIMIT] if isinstance(value, str) else ""

    return MalformedObject(
        kind=kind,
        namespace=text("namespace"),
        name=text("name"),
        uid=text("uid"),
        resource_version=text("resourceVersion"),
        error=str(error)[:ERROR_LIMIT] if error is not None else "",
    )


class LineSplitter:
    """Chunks of a stream into lines, each byte copied at most twice however the chunks fall.

    ``max_line_bytes`` bounds what an endless line can make us hold; beyond it ``StreamBroken``.
    """

    def __init__(self, max_line_bytes: int = 16 << 20) -> None:
        self._parts: list[bytes] = []
        self._held = 0
        self._max = max_line_bytes

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that ``chunk`` completes; blank lines are left out."""
        if self._parts:
            end = chunk.find(b"\n")
            if end < 0:
                self._hold(chunk)
                return []
            self._parts.append(chunk[:end])
            lines = [b"".join(self._parts), *chunk[end + 1 :].split(b"\n")]
            self._parts, self._held = [], 0
        else:
            lines = chunk.split(b"\n")
        tail = lines.pop()
        if tail:
            self._hold(tail)
        return [line for line in lines if line and not line.isspace()]

    def _hold(self, part: bytes) -> None:
        self._held += len(part)
        if self._held > self._max:
            raise StreamBroken(f"a watch line is over {self._max} bytes")
        self._parts.append(part)
