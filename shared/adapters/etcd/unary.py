r"""One HTTP/2 connection for short gRPC calls: a request, its answer, no stream, no retry. A second way beside grpc.

    dialed --server's SETTINGS--> usable --call--> HEADERS, DATA out; HEADERS, DATA, trailers in --> answer
                                     \--GOAWAY, a broken frame, a call that was late--> over; calls go by grpc again

Why: a transaction by grpc.aio wakes three threads of this process, among them the lease thread, whose loop listens to
the same queue; that is several times the work of the transaction itself, and a lone pod waits for one. What is unusual
is left to grpc, before a byte is sent: a request larger than the server has room for, no connection, proxies.

An answer is the server's or none: after the request was written, whatever goes wrong is *unknown* to the caller. Only a
stream that the server says it refused, or has not looked at (GOAWAY), had no effect.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import lru_cache
from typing import cast

from shared.adapters.etcd.headers import HeadersBroken, headers_of, literal

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
TABLE_SIZE, ENABLE_PUSH, MAX_STREAMS, INITIAL_WINDOW, MAX_FRAME = 1, 2, 3, 4, 5
REFUSED_STREAM, CANCEL = 7, 8
FRAME_BYTES = 16_384
"""What a frame may hold unless its receiver has said more; we never do."""
WINDOW_BYTES = 65_535
"""What may be under way on a stream, and on the connection, unless its receiver has said more."""
MOST_STREAMS = 2**31 - 1
GIVE_BACK_BYTES = 16_384
"""So much of answers taken in, the server is told that there is room again."""
OURS = ((TABLE_SIZE, 0), (ENABLE_PUSH, 0))


class CallFailed(OSError):
    """The server's answer is an error. ``status``: gRPC's code."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class CallRefused(OSError):
    """The server has not looked at the call: it had no effect."""


class ConnectionBroken(OSError):
    """What came is no HTTP/2 as we speak it, or the connection ended."""


@dataclass(slots=True)
class _Stream:
    """One call under way."""

    answer: asyncio.Future[bytes]
    body: bytearray = field(default_factory=bytearray)
    headers: dict[str, str] = field(default_factory=dict)


class UnaryConnection(asyncio.Protocol):
    """One connection. ``usable`` from the server's first word until anything is unusual; ``ended``: it is over."""

    def __init__(self, authority: str, *, tls: bool, metadata: tuple[tuple[str, str], ...] = ()) -> None:
        self._loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = self._loop.create_future()
        """Done when the server has said its settings, or the connection is over."""
        self._first = bytes((0x83, 0x87 if tls else 0x86)) + literal(":authority", authority)
        own = (("te", "trailers"), ("content-type", "application/grpc"), ("user-agent", "conclave"), *metadata)
        self._fixed = b"".join(literal(name, value) for name, value in own)
        self._transport: asyncio.Transport | None = None
        self._held = b""
        self._streams: dict[int, _Stream] = {}
        self._next = 1
        self._taken = 0
        self._window, self._initial, self._frame = WINDOW_BYTES, WINDOW_BYTES, FRAME_BYTES
        self._most = MOST_STREAMS
        self._over = False

    @property
    def over(self) -> bool:
        """Whether no call can be made any more."""
        return self._over

    def takes(self, size: int) -> bool:
        """Whether a call with a message of ``size`` bytes can go out now, all of it at once."""
        return (
            not self._over
            and self.ready.done()
            and size + 5 <= min(self._window, self._initial)
            and len(self._streams) < self._most
            and self._next < MOST_STREAMS
        )

    async def call(self, path: str, message: bytes, timeout_s: float) -> bytes:
        """The answer's message; only where ``takes`` said so.

        Refused: ``CallRefused``, ``CallFailed`` by its status. Unknown: ``TimeoutError``, ``ConnectionBroken``; the
        connection is over then."""
        number, self._next = self._next, self._next + 2
        stream = self._streams[number] = _Stream(self._loop.create_future())
        timeout = b"%dm" % max(1, int(timeout_s * 1000))
        headers = b"%s%s%s\0\x0cgrpc-timeout%c%s" % (self._first, _path(path), self._fixed, len(timeout), timeout)
        body = b"\0%s%s" % (len(message).to_bytes(4, "big"), message)
        self._window -= len(body)
        parts = [_frame(HEADERS, END_HEADERS, number, headers)]
        for at in range(0, len(body), self._frame):
            last = at + self._frame >= len(body)
            parts.append(_frame(DATA, END_STREAM if last else 0, number, body[at : at + self._frame]))
        assert self._transport is not None
        self._transport.write(b"".join(parts))
        timer = self._loop.call_later(timeout_s, self._late, timeout_s)
        try:
            return await stream.answer
        except asyncio.CancelledError:
            if self._streams.pop(number, None) is not None and not self._over:
                self._transport.write(_frame(RST_STREAM, 0, number, CANCEL.to_bytes(4, "big")))
            raise
        finally:
            timer.cancel()

    def close(self) -> None:
        """End it; who waits is told."""
        self._end(ConnectionBroken("the connection was closed"))

    # --- asyncio.Protocol -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``."""
        self._transport = cast("asyncio.Transport", transport)
        settings = b"".join(name.to_bytes(2, "big") + value.to_bytes(4, "big") for name, value in OURS)
        self._transport.write(PREFACE + _frame(SETTINGS, 0, 0, settings))

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        self._end(ConnectionBroken(str(exc) if exc is not None else "the connection ended"))

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        if self._held:
            data, self._held = self._held + data, b""
        at, size = 0, len(data)
        try:
            while size - at >= 9 and not self._over:
                length = int.from_bytes(data[at : at + 3], "big")
                if length > FRAME_BYTES:
                    raise ConnectionBroken(f"a frame of {length} bytes")
                end = at + 9 + length
                if end > size:
                    break
                number = int.from_bytes(data[at + 5 : at + 9], "big") & MOST_STREAMS
                self._take(data[at + 3], data[at + 4], number, data[at + 9 : end])
                at = end
        except (ConnectionBroken, HeadersBroken) as error:
            self._end(ConnectionBroken(str(error)))
            return
        self._held = data[at:]

    # --- frames -----------------------------------------------------------------------------------------------------

    def _take(self, kind: int, flags: int, number: int, text: bytes) -> None:
        match kind:
            case 0:
                self._data(flags, number, text)
            case 1:
                self._headers(flags, number, text)
            case 3:
                code = int.from_bytes(text[:4], "big")
                refused = CallRefused("the server refused the call") if code == REFUSED_STREAM else None
                self._fail(number, refused or ConnectionBroken(f"the server ended the call with code {code}"))
            case 4:
                if not flags & ACK:
                    self._settings(text)
            case 6:
                if not flags & ACK:
                    self._write(_frame(PING, ACK, 0, text))
            case 7:
                last = int.from_bytes(text[:4], "big") & MOST_STREAMS
                self._next = MOST_STREAMS  # what is under way may still be answered
                for later in [one for one in self._streams if one > last]:
                    self._fail(later, CallRefused("the server goes away"))
                self._close_if_done()
            case 8:
                if not number:
                    self._window += int.from_bytes(text[:4], "big") & MOST_STREAMS
            case 5 | 9:
                raise ConnectionBroken(f"a frame of type {kind}")
            case _:
                pass  # one that is not known is passed over, as is PRIORITY

    def _data(self, flags: int, number: int, text: bytes) -> None:
        if flags & PADDED:
            raise ConnectionBroken("a padded frame")
        self._taken += len(text)
        if self._taken >= GIVE_BACK_BYTES:
            self._write(_frame(WINDOW_UPDATE, 0, 0, self._taken.to_bytes(4, "big")))
            self._taken = 0
        stream = self._streams.get(number)
        if stream is None:
            return  # it was given up
        stream.body += text
        if flags & END_STREAM:
            raise ConnectionBroken("an answer without trailers")

    def _headers(self, flags: int, number: int, text: bytes) -> None:
        if flags & (PADDED | PRIORITY) or not flags & END_HEADERS:
            raise ConnectionBroken("headers of a kind that is not spoken here")
        found, stream = headers_of(text), self._streams.get(number)
        if stream is None:
            return
        stream.headers.update(found)
        if not flags & END_STREAM:
            return
        del self._streams[number]
        if not stream.answer.done():
            try:
                stream.answer.set_result(_message(stream))
            except OSError as error:
                stream.answer.set_exception(error)
        self._close_if_done()

    def _settings(self, text: bytes) -> None:
        for at in range(0, len(text) - 5, 6):
            name, value = int.from_bytes(text[at : at + 2], "big"), int.from_bytes(text[at + 2 : at + 6], "big")
            if name == MAX_STREAMS:
                self._most = value
            elif name == INITIAL_WINDOW:
                self._initial = value
            elif name == MAX_FRAME:
                self._frame = value
        self._write(_frame(SETTINGS, ACK, 0, b""))
        if not self.ready.done():
            self.ready.set_result(None)

    # --- ends -------------------------------------------------------------------------------------------------------

    def _write(self, text: bytes) -> None:
        if self._transport is not None:
            self._transport.write(text)

    def _fail(self, number: int, error: OSError) -> None:
        stream = self._streams.pop(number, None)
        if stream is not None and not stream.answer.done():
            stream.answer.set_exception(error)

    def _late(self, timeout_s: float) -> None:
        """A server that is late is paused, or gone without a word: nothing more is asked of this connection."""
        self._end(TimeoutError(f"no answer within {timeout_s:g} s"))

    def _close_if_done(self) -> None:
        if self._next == MOST_STREAMS and not self._streams:
            self.close()

    def _end(self, error: OSError) -> None:
        if self._over:
            return
        self._over = True
        if self._transport is not None:
            self._transport.abort()
        if not self.ready.done():
            self.ready.set_result(None)
        for number in list(self._streams):
            self._fail(number, error)


@lru_cache(maxsize=64)
def _path(path: str) -> bytes:
    return literal(":path", path)


def _frame(kind: int, flags: int, number: int, text: bytes) -> bytes:
    return b"%s%c%c%s%s" % (len(text).to_bytes(3, "big"), kind, flags, number.to_bytes(4, "big"), text)


def _message(stream: _Stream) -> bytes:
    """The one message of an answer. ``CallFailed``: the server says that there is none; ``ConnectionBroken``."""
    headers, body = stream.headers, stream.body
    status = headers.get("grpc-status", "")
    if headers.get(":status") != "200" or not status.isdigit():
        raise ConnectionBroken(f"an answer of status {headers.get(':status', 'unknown')}, gRPC's {status or 'unknown'}")
    if int(status):
        raise CallFailed(int(status), _unquoted(headers.get("grpc-message", "")))
    if len(body) < 5 or body[0] or int.from_bytes(body[1:5], "big") != len(body) - 5:
        raise ConnectionBroken("an answer that is not one plain message")
    return bytes(body[5:])


@lru_cache(maxsize=64)
def _unquoted(message: str) -> str:
    from urllib.parse import unquote

    return unquote(message)
