"""Sends an answer in parts to a reader that may be slow, gone or stalled; the leader's streams and a standby's alike.

A reader that takes nothing for ``STALLED_S`` gives its place up: there are few places, and one that never reads would
hold one for ever. What is cut short is broken off, so that half a document never looks like a whole one; a stream of
events may end anywhere, its reader begins anew. What is sent is not looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

import structlog
from aiohttp import web

from shared.runtime.http.refusals import RequestRefused

log = structlog.get_logger()

STALLED_S = 30.0
"""Longest time in which a reader takes not even ``SLICE_BYTES``."""
SLICE_BYTES = 64 << 10


class _Stopped(Exception):
    """This process is ending."""


async def stream(
    request: web.Request,
    parts: AsyncIterator[bytes],
    *,
    stopping: asyncio.Event,
    begin: Callable[[], Awaitable[web.StreamResponse]],
    endless: bool,
) -> web.StreamResponse:
    """Parts as they come, until the reader goes, the source ends, or ``stopping`` is set. ``begin`` is called with the
    first part: what is refused before has a status of its own. ``endless``: it may end anywhere.

    ``ConnectionResetError``: the reader is gone, or what it has got is half of an answer.
    """
    response: web.StreamResponse | None = None
    try:
        async for part in _until(stopping, parts):
            if response is None:
                response = await begin()
            await _send(request, response, part)
        response = response or await begin()
        await _finish(response)
        return response
    except _Stopped:
        if response is None:
            raise RequestRefused("this coordinator is ending", code="no_leader") from None
        if not endless:
            raise break_off(request, "this coordinator is ending") from None
        await _finish(response)
        return response
    except Exception as error:
        if response is None or isinstance(error, ConnectionError):
            raise
        log.error("stream_failed", route=request.path[:128], exc_info=error)
        raise break_off(request, "the stream has failed") from error


async def _until(stopping: asyncio.Event, parts: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The parts; ``_Stopped`` once ``stopping`` is set, and the part that was under way is given up."""
    stopped = asyncio.ensure_future(stopping.wait())
    try:
        while True:
            coming = asyncio.ensure_future(anext(parts, None))
            try:
                await asyncio.wait((coming, stopped), return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not coming.done():
                    coming.cancel()
                    await asyncio.gather(coming, return_exceptions=True)
            if coming.cancelled():
                raise _Stopped
            part = coming.result()
            if part is None:
                return
            yield part
    finally:
        stopped.cancel()


async def _send(request: web.Request, response: web.StreamResponse, part: bytes) -> None:
    """``part``, slice by slice. ``ConnectionResetError``: the reader is gone, or was cut off since it reads nothing."""
    try:
        for start in range(0, len(part), SLICE_BYTES):
            async with asyncio.timeout(STALLED_S):
                await response.write(part[start : start + SLICE_BYTES])
    except TimeoutError:
        raise break_off(request, "the reader takes nothing") from None
    except ConnectionError:
        # aiohttp's is one of its client's errors too: a standby must not take it for the leader's
        raise ConnectionResetError("the reader is gone") from None


async def _finish(response: web.StreamResponse) -> None:
    try:
        await response.write_eof()
    except ConnectionError:
        raise ConnectionResetError("the reader is gone") from None


def break_off(request: web.Request, why: str) -> ConnectionResetError:
    """The error to raise once the connection is cut: no other answer can follow, and its end must not look like one."""
    if request.transport is not None:
        request.transport.abort()
    return ConnectionResetError(why)
