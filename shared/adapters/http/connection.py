"""One connection to a server and one exchange at a time over it: a request, its answer whole or as a stream.

    idle --ask---> request written, answer awaited --done--> idle
     |   --open--> head awaited --> read, read, ... --done--> idle
     +--the peer ends it, bytes unasked--> over        timeout, cancellation, an answer we cannot read --> over

A request is written once. Whether one that got no answer took effect is unknown to this file; it tells how the
connection ended (``AnswerBroken``, ``NoAnswer``, ``TimeoutError``) and never writes again. Nothing is pipelined: the
server works on the requests of a connection in turn, so a slow one would hold up those behind it.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

from shared.adapters.http.answers import AnswerBroken, AnswerReader, NoAnswer, ResponseHead

MOST_HELD = 64 << 10
"""Bytes of a stream that nobody has taken; beyond it the peer is made to wait (TCP's window). What is decoded at once
should fit a core's cache: at four times as much an event costs a third more."""


class Connection(asyncio.Protocol):
    """One connection. ``ended`` is done when it is over; ``idle_since``: the pool's note of when it was given back;
    ``most_bytes``: a longer answer to ``ask`` is not read to its end."""

    def __init__(self, *, most_bytes: int = sys.maxsize) -> None:
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self.made_at = self._loop.time()
        self.idle_since = 0.0
        self.transport: asyncio.Transport | None = None
        self._reader = AnswerReader()
        self._body: list[bytes] = []
        self._held = 0
        self._most_bytes = most_bytes
        self._waiting: asyncio.Future[None] | None = None
        self._error: OSError | None = None
        self._streaming = self._paused = False
        self._served = 0
        self._silent = True
        """No byte of the answer has come."""

    @property
    def usable(self) -> bool:
        """Whether it can take a request now: what is left unread of an answer would be taken for the next one's."""
        head, transport = self._reader.head, self.transport
        return (
            self._reader.done
            and not self._body
            and self._error is None
            and transport is not None
            and not transport.is_closing()
            and (head is None or head.keep_alive)
        )

    @property
    def mute(self) -> bool:
        """Whether it has served before and gave no byte in answer to what was asked last."""
        return self._silent and self._served > 1

    async def ask(self, request: bytes, timeout_s: float, *, connecting: bool = False) -> tuple[ResponseHead, bytes]:
        """The answer to ``request``; only while ``usable``. ``connecting``: the request is a CONNECT.

        ``TimeoutError``, ``AnswerBroken``: it may have taken effect, and the connection is over."""
        self._streaming = False
        self._begin(request, bodiless=connecting)
        await self._wait(timeout_s)
        head, body = self._reader.head, self._take()
        assert head is not None
        return head, body

    async def open(self, request: bytes, timeout_s: float) -> ResponseHead:
        """The head of the answer to ``request``; its body comes by ``read``. Errors as of ``ask``."""
        self._streaming = True
        self._begin(request)
        await self._wait(timeout_s)
        assert self._reader.head is not None
        return self._reader.head

    async def read(self, timeout_s: float) -> bytes:
        """What has come of the body, at least one byte; nothing at its end. Errors as of ``ask``."""
        while not self._body and not self._reader.done and self._error is None:
            await self._wait(timeout_s)
        body = self._take()
        if not body and self._error is not None:
            raise self._error
        if self._paused and self.transport is not None and not self.transport.is_closing():
            self._paused = False
            self.transport.resume_reading()
        return body

    def close(self) -> None:
        """End it in good order; for one that is idle."""
        if self.transport is not None:
            self.transport.close()

    def give_up(self, why: str) -> None:
        """End it at once; who waits for it gets ``AnswerBroken``."""
        self._fail(AnswerBroken(why))

    def abort(self) -> None:
        """End it at once, whatever is on its way."""
        if self.transport is not None:
            self.transport.abort()

    # --- asyncio.Protocol -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``; also called with the encrypted transport inside a tunnel."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        reader, body = self._reader, self._body
        parts, headless = len(body), reader.head is None
        self._silent = False
        try:
            reader.feed(data, body)
        except AnswerBroken as error:
            self._fail(error)
            return
        if reader.done:
            self._wake()
        elif not self._streaming:
            self._held += len(data)
            if self._held > self._most_bytes:
                self._fail(AnswerBroken(f"the answer is over {self._most_bytes} bytes"))
        else:
            if len(body) > parts:
                self._held += len(data)
                if self._held > MOST_HELD and not self._paused:
                    assert self.transport is not None
                    self._paused = True
                    self.transport.pause_reading()
                self._wake()
            elif headless and reader.head is not None:
                self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        if not self.ended.done():
            self.ended.set_result(None)
        if self._error is not None or self._reader.done:
            return
        try:
            if exc is not None:
                raise AnswerBroken(str(exc) or type(exc).__name__) from exc
            self._reader.end()
        except AnswerBroken as error:
            stale = self._silent and self._served > 1
            self._fail(NoAnswer("the server had closed the connection") if stale else error)
        else:
            self._wake()

    def _begin(self, request: bytes, *, bodiless: bool = False) -> None:
        assert self.transport is not None
        self._served += 1
        self._silent = True
        self._reader.begin(bodiless=bodiless)
        self.transport.write(request)

    async def _wait(self, timeout_s: float) -> None:
        """Until there is something to take. Ends the connection where the wait is given up."""
        waiting = self._waiting = self._loop.create_future()
        timer = self._loop.call_later(timeout_s, self._expired, timeout_s)
        try:
            await waiting
        except BaseException:
            self.abort()
            raise
        finally:
            timer.cancel()
            self._waiting = None

    def _take(self) -> bytes:
        body = self._body
        if not body:
            return b""
        self._body, self._held = [], 0
        return body[0] if len(body) == 1 else b"".join(body)

    def _expired(self, timeout_s: float) -> None:
        self._fail(TimeoutError(f"no answer within {timeout_s:g} s"))

    def _wake(self) -> None:
        waiting = self._waiting
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def _fail(self, error: OSError) -> None:
        """Nothing more comes of this connection."""
        if self._error is None:
            self._error = error
        waiting = self._waiting
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)
        self.abort()
