"""The connections to one server: no more than the work needs, each used by one request at a time.

    take --one is idle--> the one used last                 give --somebody waits--> handed over
         |--none--> wait in line --dialed, given back-->         |--nobody--> idle, closed after ``IDLE_S``

Waiting requests make it dial, a few at a time, so a burst after the start costs a few handshakes and not one each: what
was answered meanwhile serves those behind it. A connection that cannot be dialed fails one of those who wait. What is
taken for a stream (``part``) counts no longer, until it is back (``rejoin``). It refuses to know what is asked over its
connections.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from functools import partial

from shared.adapters.http.connection import Connection
from shared.adapters.http.dialing import DIAL_S, ServerTarget, dial

MOST_CONNECTIONS = 128
"""Requests in flight. A server that takes 200 ms for each still answers 640 in a second."""

MOST_DIALS = 8
"""Handshakes under way."""

IDLE_S = 30.0
"""An idle connection is not used again after so long: load balancers drop theirs silently from 60 s on."""

STREAMS_S = 590.0
"""A connection serves streams for so long, then another is dialed: where a name has several addresses, or a balancer
several servers, watches move on to those that came lately."""

CLOSING_S = 0.5
"""How long ``close`` waits for the peer's side of a TLS shutdown."""


class ConnectionPool:
    """Connections to one target, ``most`` at a time (0: ``MOST_CONNECTIONS``). ``close`` it at the end; ``retire`` it
    when requests go elsewhere. ``connect_s`` and ``most_bytes`` as of ``dial``."""

    def __init__(
        self,
        target: ServerTarget,
        *,
        most: int = 0,
        connect_s: float = DIAL_S,
        most_bytes: int = sys.maxsize,
    ) -> None:
        self.target = target
        self._most = most or MOST_CONNECTIONS
        self._dial_to = partial(dial, target, connect_s=connect_s, most_bytes=most_bytes)
        self._idle: list[Connection] = []
        """The one given back last is at the end and goes out first, so what is not needed grows old."""
        self._open: set[Connection] = set()
        self._waiting: deque[asyncio.Future[Connection]] = deque()
        self._dials: set[asyncio.Task[None]] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._retired = False

    def __len__(self) -> int:
        return len(self._open)

    async def take(self, timeout_s: float) -> Connection:
        """A usable connection, to be given back. ``OSError``: none came about; ``TimeoutError``: none in time."""
        if self._idle:
            too_old = asyncio.get_running_loop().time() - IDLE_S
            while self._idle:
                connection = self._idle.pop()
                if connection.idle_since >= too_old and connection.usable:
                    return connection
                connection.close()
        waiting: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._dial()
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    connection = await waiting
                    if connection.usable:  # it may have ended between the hand-over and now
                        return connection
                    waiting = asyncio.get_running_loop().create_future()
                    self._waiting.appendleft(waiting)
                    self._dial()
        except BaseException:
            if not waiting.done():
                waiting.cancel()
            elif not waiting.cancelled() and waiting.exception() is None:
                self.give(waiting.result())
            raise

    def give(self, connection: Connection) -> None:
        """Back from a request that has ended, however it did."""
        usable = connection.usable
        while usable and self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(connection)
                return
        if not usable or self._retired:
            self._open.discard(connection)
            connection.close()
            self._dial()
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.append(connection)
        if self._sweep is None:
            self._sweep = loop.call_later(IDLE_S, self._close_idle)

    def part(self, connection: Connection) -> None:
        """The connection was taken for good; whoever has it ends it."""
        self._open.discard(connection)
        self._dial()

    def rejoin(self, connection: Connection) -> None:
        """Back from a stream, where that has ended in good order; else it is ended here."""
        age_s = asyncio.get_running_loop().time() - connection.made_at
        if not connection.usable or self._retired or age_s > STREAMS_S or len(self._open) >= self._most:
            connection.abort()
            return
        self._open.add(connection)
        self.give(connection)

    def doubt(self) -> None:
        """A connection that had served before gave no answer: those that are idle are as old, and may be as dead (a
        balancer lost its server). They are not used again."""
        while self._idle:
            self._idle.pop().close()

    def retire(self) -> None:
        """Close what is idle now and the rest when it is given back. Who waits is served."""
        self._retired = True
        if self._sweep is not None:
            self._sweep.cancel()
        while self._idle:
            self._idle.pop().close()

    async def close(self) -> None:
        """End everything; who waits is told."""
        self.retire()
        for dialing in self._dials:
            dialing.cancel()
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(OSError("the client is closed"))
        self._waiting.clear()
        if self._open:
            for connection in self._open:
                connection.close()
            await asyncio.wait([connection.ended for connection in self._open], timeout=CLOSING_S)
        for connection in self._open:
            connection.abort()
        if self._dials:
            await asyncio.wait(self._dials)

    def _dial(self) -> None:
        """As many as wait and are not dialed for, within the limits."""
        wanted = min(len(self._waiting), MOST_DIALS, self._most - len(self._open))
        while len(self._dials) < wanted:
            task = asyncio.create_task(self._dial_one())
            self._dials.add(task)
            task.add_done_callback(self._dialed)

    async def _dial_one(self) -> None:
        try:
            connection = await self._dial_to()
        except (OSError, ValueError, RuntimeError) as error:  # the last is uvloop's for a handle that closed meanwhile
            told = error if isinstance(error, OSError) else OSError(str(error))
            for waiting in self._waiting:
                if not waiting.done():
                    waiting.set_exception(told)
                    break
            return
        self._open.add(connection)
        connection.ended.add_done_callback(lambda _: self._open.discard(connection))
        self.give(connection)

    def _dialed(self, task: asyncio.Task[None]) -> None:
        self._dials.discard(task)
        while self._waiting and self._waiting[0].done():
            self._waiting.popleft()
        self._dial()

    def _close_idle(self) -> None:
        """Those given back longest ago are at the beginning."""
        loop = asyncio.get_running_loop()
        too_old = loop.time() - IDLE_S
        kept = next((at for at, one in enumerate(self._idle) if one.idle_since > too_old), len(self._idle))
        for connection in self._idle[:kept]:
            connection.close()
        del self._idle[:kept]
        self._sweep = loop.call_at(self._idle[0].idle_since + IDLE_S, self._close_idle) if self._idle else None
