"""When a connection may carry the next request."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from shared.adapters.http.connection import Connection

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Wire:
    """The transport of a connection whose peer is the test."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closing = False

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.closing = True


async def test_what_was_not_read_of_a_stream_never_becomes_the_next_answer() -> None:
    connection = Connection()
    connection.connection_made(cast("Any", Wire()))
    opening = asyncio.ensure_future(connection.open(b"GET /watch", 5.0))
    await asyncio.sleep(0)
    connection.data_received(HEAD + b"5\r\nfirst\r\n")
    await opening
    assert await connection.read(5.0) == b"first"
    connection.data_received(b"4\r\nlate\r\n0\r\n\r\n")
    assert not connection.usable
    assert await connection.read(5.0) == b"late"
    assert connection.usable
