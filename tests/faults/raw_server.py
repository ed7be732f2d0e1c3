"""A server of bare connections: the test handles each byte by byte, so that any answer and any end can be played."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Self

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

BOUND = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"
PAGE = b'{"metadata":{"resourceVersion":"9"},"items":[]}'
LISTED = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(PAGE) + PAGE


class RawServer:
    """``handler`` runs once per connection. ``accepted``: connections so far; ``requests``: the heads that came."""

    def __init__(self, handler: Handler, *, tls: ssl.SSLContext | None = None) -> None:
        self.accepted = 0
        self.requests: list[str] = []
        self.port = 0
        self._handler = handler
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://localhost:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)

    async def request(self, reader: asyncio.StreamReader) -> str:
        """The next request's head, its body read over."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next((line[16:] for line in head.split("\r\n") if line.startswith("Content-Length: ")), "0")
        await reader.readexactly(int(length))
        self.requests.append(head)
        return head

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._writers.append(writer)
        try:
            await self._handler(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
