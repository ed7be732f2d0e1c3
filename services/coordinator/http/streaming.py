"""Sends an answer in parts to a reader that may be slow, gone or stalled; the leader's streams and a standby's alike.

A reader that takes nothing for ``STALLED_S`` gives its place up: there are few places, and one that never reads would
hold one for ever. What is cut short is broken off, so that half a document never looks like a whole one. It refuses to
know what is sent.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

STALLED_S = 30.0
"""Longest time in which a reader takes not even ``SLICE_BYTES``."""
SLICE_BYTES = 64 << 10


async def send(request: web.Request, response: web.StreamResponse, part: bytes) -> None:
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


async def finish(response: web.StreamResponse) -> None:
    """The end of a whole answer. ``ConnectionResetError``: the reader is gone."""
    try:
        await response.write_eof()
    except ConnectionError:
        raise ConnectionResetError("the reader is gone") from None


def break_off(request: web.Request, why: str) -> ConnectionResetError:
    """The error to raise once the connection is cut: no other answer can follow, and its end must not look like one."""
    if request.transport is not None:
        request.transport.abort()
    return ConnectionResetError(why)
