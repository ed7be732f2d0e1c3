"""Watches: from the first event to the last byte.

Opening is synchronous (what exists is read and the watcher registered in one step, so nothing falls between); then this
shell only moves bytes: the watcher's buffer to the socket, bookmarks when due, the end at the deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from twin.api.pages import wait_for_revision
from twin.api.requests.negotiation import Form
from twin.registry.discovery import tables
from twin.registry.list_options import ListOptions
from twin.registry.registry import TwinRegistry
from twin.registry.served import ServedKind
from twin.registry.status import Json, expired
from twin.registry.store import Compacted
from twin.registry.stored import ADDED, DELETED, StoredChange, StoredObject
from twin.registry.watching import Frame, Selection, Watcher, bookmark_due, bookmark_frame

MIN_TIMEOUT_S = 1800.0
"""A watch without timeoutSeconds ends after 30 to 60 minutes (``--min-request-timeout``)."""

COALESCE_S = 0.001
"""Under load, events of a millisecond leave in one write: each write costs as much as ten events."""


@dataclass(frozen=True, slots=True)
class Render:
    """How one watch shows changes, objects that exist, and bookmarks."""

    change: Frame
    existing: Callable[[StoredObject], bytes]
    bookmark: Callable[[int, bool], bytes]


def render_for(kind: ServedKind, form: Form, include: str, clock: Callable[[], float]) -> Render:
    """JSON objects, Tables or PartialObjectMetadata, as the client accepts."""
    if form.transform == "Table":
        frames = tables.TableFrames(kind, include, form.version, clock)

        def empty_table(revision: int, initial_end: bool) -> bytes:
            meta = _bookmark_meta(revision, initial_end=initial_end)
            body = tables.table(
                kind, [], meta, include=include, now_s=clock(), version=form.version, with_columns=False
            )
            return tables.event("BOOKMARK", body)

        return Render(frames, lambda stored: frames.frame(stored, ADDED), empty_table)
    if form.transform:

        def partial_change(change: StoredChange, type_: str) -> bytes:
            stored = change.left if type_ == DELETED else change.new
            return tables.event(type_, tables.partial(stored, form.version))

        def partial_bookmark(revision: int, initial_end: bool) -> bytes:
            meta = _bookmark_meta(revision, initial_end=initial_end)
            body = {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{form.version}", "metadata": meta}
            return tables.event("BOOKMARK", body)

        return Render(
            partial_change, lambda stored: tables.event(ADDED, tables.partial(stored, form.version)), partial_bookmark
        )
    return _plain(kind)


def _bookmark_meta(revision: int, *, initial_end: bool) -> Json:
    meta: Json = {"resourceVersion": str(revision)}
    if initial_end:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    return meta


def _plain(kind: ServedKind) -> Render:
    head = kind.head

    def line(stored: StoredObject, type_: str) -> bytes:
        return b"".join((b'{"type":"', type_.encode(), b'","object":', kind.whole(stored), b"}\n"))

    def converted(change: StoredChange, type_: str) -> bytes:
        return line(change.left if type_ == DELETED else change.new, type_)

    def shared(change: StoredChange, type_: str) -> bytes:
        return change.frame(head, type_)

    def bookmark(revision: int, initial_end: bool) -> bytes:
        info = kind.info
        return bookmark_frame(info.kind, info.api_version, kind.strategy.blank, revision, initial_end=initial_end)

    return Render(converted if kind.converts else shared, lambda stored: line(stored, ADDED), bookmark)


class WatchStream:
    """One open watch; ``run`` answers the request."""

    def __init__(
        self,
        registry: TwinRegistry,
        kind: ServedKind,
        selection: Selection,
        options: ListOptions,
        form: Form,
        include: str,
    ) -> None:
        self._registry = registry
        self._shelf = registry.store.shelf(kind.storage)
        self._options = options
        self._render = render_for(kind, form, include, registry.clock)
        self._content_type = form.content_type
        self._wake = asyncio.Event()
        self._ended = False
        self._watcher = self._open(selection)

    def _open(self, selection: Selection) -> Watcher:
        """Queue what the client is to see first, and register: one step, so no change is missed or doubled."""
        options, store = self._options, self._registry.store
        revision = options.revision
        after = revision if revision is not None and revision > store.revision else 0
        watcher = Watcher(selection, self._render.change, self._wake.set, after=after)
        if options.send_initial_events or (not revision and options.send_initial_events is None):
            for stored in selection.pick(self._shelf):
                watcher.push(self._render.existing(stored))
            if options.send_initial_events and options.bookmarks:
                watcher.push(self._render.bookmark(store.revision, True))
        elif revision and not after:
            try:
                for change in self._shelf.since(revision):
                    watcher.offer(change)
            except Compacted as error:
                watcher.push(tables.event("ERROR", expired(str(error)).body))
                self._ended = True
                return watcher
        self._shelf.receivers.append(watcher)
        return watcher

    def close(self) -> None:
        """End the stream: the client sees the end of the body."""
        self._ended = True
        self._wake.set()

    async def run(self, request: web.BaseRequest, timeout_s: float) -> web.StreamResponse:
        """Stream until the deadline, a fault or the client's leaving."""
        response = web.StreamResponse(
            headers={"Content-Type": self._content_type, "Cache-Control": "no-cache, private"}
        )
        response.enable_chunked_encoding()
        try:
            await response.prepare(request)
            await self._pump(response, timeout_s)
            await response.write_eof()
        except (ConnectionError, asyncio.CancelledError):
            # The client left; there is nobody to tell.
            pass
        finally:
            if self._watcher in self._shelf.receivers:
                self._shelf.receivers.remove(self._watcher)
        return response

    async def _pump(self, response: web.StreamResponse, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        deadline = now + timeout_s
        bookmark_at = bookmark_due(now, deadline) if self._options.bookmarks else None
        watcher, wake = self._watcher, self._wake
        last_write = 0.0
        while True:
            data = watcher.take()
            if data:
                await response.write(data)
                last_write = loop.time()
                continue
            now = loop.time()
            if self._ended or watcher.overflowed or now >= deadline:
                return
            if bookmark_at is not None and now >= bookmark_at:
                await response.write(self._render.bookmark(self._registry.store.revision, False))
                bookmark_at = bookmark_due(now, deadline)
                continue
            wake.clear()
            due = deadline if bookmark_at is None else min(deadline, bookmark_at)
            await _wait(wake, due - now)
            if loop.time() - last_write < COALESCE_S:
                await asyncio.sleep(COALESCE_S)


async def _wait(wake: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await wake.wait()
    except TimeoutError:
        return


async def open_stream(
    registry: TwinRegistry,
    kind: ServedKind,
    selection: Selection,
    options: ListOptions,
    form: Form,
    include: str,
) -> WatchStream:
    """Open a watch; with sendInitialEvents it first waits for the asked revision. Refused: 504."""
    if options.send_initial_events and options.revision:
        await wait_for_revision(registry, options.revision)
    return WatchStream(registry, kind, selection, options, form, include)
