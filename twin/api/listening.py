"""One port for HTTP and HTTPS, and methods that the HTTP parser does not know.

A TLS ClientHello begins with 0x16, which no HTTP request does. The byte is peeked at, so whichever protocol takes the
connection reads it from the start.

A real server reads any token as a method and answers 405; aiohttp's parser answers 400 in its own words before anybody
is asked. Where a request begins with such a token it is read as ``TRACE``, which no resource has either.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Callable
from http import HTTPMethod

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from shared.adapters.http.sockets import bound_socket

_HANDSHAKE = 0x16
_BACKLOG = 1024


class SocketListener:
    """Accepts connections and hands each to a protocol."""

    def __init__(self, factory: Callable[[], asyncio.Protocol], tls: ssl.SSLContext | None) -> None:
        """``factory`` makes one protocol per connection; without ``tls`` only plain HTTP is spoken."""
        self._factory = factory
        self._tls = tls
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._starting: set[asyncio.Task[None]] = set()

    def bind(self, host: str, port: int) -> int:
        """Listen; the port. ``OSError`` when it cannot be had."""
        self._socket = bound_socket(host, port)
        self._socket.listen(_BACKLOG)
        self._accepting = asyncio.get_running_loop().create_task(self._accept())
        return int(self._socket.getsockname()[1])

    async def close(self) -> None:
        """Stop accepting; connections that are served go on."""
        tasks = [task for task in (self._accepting, *self._starting) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def _accept(self) -> None:
        assert self._socket is not None
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._socket)
            except OSError:
                # Out of file descriptors, or the client left at once: others must still get in.
                await asyncio.sleep(0.01)
                continue
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = loop.create_task(self._start(connection))
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)

    async def _start(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        handed_over = False
        try:
            tls = self._tls
            if tls is not None and await self._first_byte(connection) != _HANDSHAKE:
                tls = None
            handed_over = True
            await loop.connect_accepted_socket(self._factory, connection, ssl=tls)
        except (OSError, ssl.SSLError):
            # A client that leaves or fails in the handshake has nobody to be told.
            return
        finally:
            if not handed_over:
                connection.close()

    @staticmethod
    async def _first_byte(connection: socket.socket) -> int:
        """The first byte, left in the socket; -1 when the client closes without sending one."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                data = connection.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                readable = asyncio.Event()
                loop.add_reader(connection, readable.set)
                try:
                    await readable.wait()
                finally:
                    loop.remove_reader(connection)
                continue
            return data[0] if data else -1


_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) \S+ HTTP/1\.[01]\r\n")
_KNOWN = frozenset(one.value.encode() for one in HTTPMethod)


class _AnyMethod(RequestHandler):
    """One connection. A chunk is looked at only where it can be the beginning of a request."""

    def data_received(self, data: bytes) -> None:
        if self._current_request is None and not self._messages:
            line = _LINE.match(data)
            if line is not None and line[1] not in _KNOWN:
                data = b"TRACE" + data[line.end(1) :]
        super().data_received(data)


class AnyMethodServer(web.Server):
    """``web.Server`` whose connections read any method."""

    def __call__(self) -> RequestHandler:
        return _AnyMethod(self, loop=self._loop, **self._kwargs)
