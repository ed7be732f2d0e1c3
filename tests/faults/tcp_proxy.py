"""A TCP proxy with faults, between a client and a real server; at this level TLS and gRPC pass unseen.

Toxics may be changed at any time: ``latency_s`` (both ways), ``blackhole`` (connections stay open, nothing passes),
``drop_replies`` (requests pass, answers do not: every outcome becomes unknown), ``lose_servers`` (the connections that
stand lose their server and go on taking what is sent; new ones are fine), ``reset`` (break all connections), ``refuse``
(new connections are reset).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Self


class TcpProxy:
    """Forwards from a free loopback port to ``(host, port)``."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._pipes: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._flows: dict[asyncio.StreamWriter, asyncio.StreamWriter] = {}
        """By the side of the client: the side of the server."""
        self._lost: set[asyncio.StreamWriter] = set()
        self._passing = asyncio.Event()
        self._passing.set()
        self.latency_s = 0.0
        self.drop_replies = False
        self.refuse = False
        self.bytes_up = 0
        self.bytes_dropped = 0
        self.request_passed = asyncio.Event()

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def blackhole(self, on: bool) -> None:
        """Stop reading in both directions, or go on (what was sent meanwhile arrives late)."""
        self._passing.clear() if on else self._passing.set()

    def lose_servers(self) -> None:
        """As a balancer whose server has lost its power."""
        self._lost |= self._writers

    def lose_one_server(self) -> None:
        """As a NAT that forgot one flow: the one that stands for longest."""
        self._lost |= {*next((client, server) for client, server in self._flows.items() if client in self._writers)}

    def reset(self) -> None:
        """Break every connection with a RST."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.reset()
        for task in tuple(self._pipes):
            task.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuse:
            writer.transport.abort()
            return
        try:
            up_reader, up_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, up_writer}
        self._flows[writer] = up_writer
        self._spawn(self._pipe(reader, up_writer, self._count_up))
        self._spawn(self._pipe(up_reader, writer, self._may_reply))

    def _spawn(self, pipe: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(pipe)
        self._pipes.add(task)
        task.add_done_callback(self._pipes.discard)

    def _count_up(self, size: int) -> bool:
        self.bytes_up += size
        self.request_passed.set()
        return True

    def _may_reply(self, size: int) -> bool:
        if self.drop_replies:
            self.bytes_dropped += size
        return not self.drop_replies

    async def _pipe(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: Callable[[int], bool]
    ) -> None:
        try:
            while data := await reader.read(1 << 16):
                await self._passing.wait()
                if self.latency_s:
                    await asyncio.sleep(self.latency_s)
                if passes(len(data)) and writer not in self._lost:
                    writer.write(data)
                    await writer.drain()
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            self._flows.pop(writer, None)
            with contextlib.suppress(OSError):
                writer.close()
