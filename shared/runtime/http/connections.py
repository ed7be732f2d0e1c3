"""Connections of a listener that keep a place and ask nothing: how long each may take to say what it wants.

A caller that connects and is silent, or sends its request's head a byte at a time, or never ends the TLS handshake,
holds a socket and its buffers (slow loris). The head of a request, from its first byte (the first request: from the
connection) to its last, has ``HEAD_TIMEOUT_S``; the handshake before it ``HANDSHAKE_TIMEOUT_S``. A connection that is
idle between two requests is aiohttp's ``keepalive_timeout``, a body is the route's.

It costs a request whose head comes in one piece two comparisons: a timer exists only while a head is unfinished.

Refuses to do: bodies, knowing callers, answering: whoever is late is cut.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

from aiohttp import web

HEAD_TIMEOUT_S = 10.0
"""A peer's head is one packet, a browser's two; what takes longer than this is no caller of ours."""

HANDSHAKE_TIMEOUT_S = 10.0
"""asyncio's own is 60 s. A busy machine ends a handshake within a second."""

BACKLOG = 1024


class TimedHandler(web.RequestHandler):
    """aiohttp's protocol of one connection, which is cut when a request's head takes too long.

    ``_waiter`` (aiohttp's) is there and not done while no request is at work: bytes that came then and made no request
    are an unfinished head. ``_request_count`` grows with each head that is whole, or refused as malformed.
    """

    __slots__ = ("_head_timer", "_heads_before", "_late", "_timeout_s")

    def __init__(self, *arguments: Any, timeout_s: float, late: Callable[[], object], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._timeout_s = timeout_s
        self._late = late
        self._head_timer: asyncio.TimerHandle | None = None
        self._heads_before = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The first head is due from now on."""
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """As aiohttp does; then the head is whole, or due."""
        super().data_received(data)
        if self._head_timer is not None:
            if self._request_count != self._heads_before:
                self._head_timer.cancel()
                self._head_timer = None
        elif self._waiter is not None and not self._waiter.done():
            self._await_head()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Nothing is due any more."""
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._heads_before = self._request_count
        self._head_timer = self._loop.call_later(self._timeout_s, self._cut)

    def _cut(self) -> None:
        self._head_timer = None
        if self.transport is not None:
            self._late()
            self.transport.abort()  # closing it would wait for whatever it was sent, and for TLS's farewell


class TimedSite(web.BaseSite):
    """A TCP address; ``connection`` makes the protocol of each connection, whose TLS handshake is bounded."""

    def __init__(
        self,
        runner: web.AppRunner,
        host: str,
        port: int,
        *,
        connection: Callable[[], TimedHandler],
        tls: ssl.SSLContext | None,
        handshake_timeout_s: float,
    ) -> None:
        super().__init__(runner, ssl_context=tls, backlog=BACKLOG)
        self._host = host
        self._port = port
        self._connection = connection
        self._handshake_timeout_s = handshake_timeout_s

    @property
    def name(self) -> str:
        """For people."""
        return f"{'http' if self._ssl_context is None else 'https'}://{self._host}:{self._port}"

    async def start(self) -> None:
        """Listen. ``OSError``: the address cannot be had."""
        await super().start()
        self._server = await asyncio.get_running_loop().create_server(
            self._connection,
            self._host,
            self._port,
            ssl=self._ssl_context,
            ssl_handshake_timeout=self._handshake_timeout_s if self._ssl_context is not None else None,
            backlog=self._backlog,
        )
