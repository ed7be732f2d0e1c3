"""Who connects and does not ask is cut, over real sockets: silent, a byte at a time, or in an endless TLS handshake.

Switched off (a limit of minutes), each of these connections stays: the tests then wait for its end in vain.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from itertools import chain, cycle
from typing import Any

import pytest

from shared.adapters.peers.client import MEDIA_TYPE
from shared.runtime.http.callers import Caller
from shared.runtime.http.listener import Listener, listen
from shared.runtime.http.peers import PeerRoute, build_app
from shared.runtime.observe.metrics import Metrics
from tests.certificates import TestCa
from tests.loop_clock import LoopClock
from tests.patience import PATIENCE_S

LIMIT_S = 10.0
OVER_S = 1.1 * LIMIT_S
HEAD = b"GET /healthz HTTP/1.1\r\nHost: here\r\n"
NEVER_S = 600.0
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def serving(
    metrics: Metrics, *routes: PeerRoute, tls: ssl.SSLContext | None = None, **limits: float
) -> AsyncIterator[Listener]:
    app = build_app(metrics, routes=routes)
    listener = await listen(app, tls=tls, drain_s=0.1, **{"head_timeout_s": LIMIT_S, **limits})
    try:
        yield listener
    finally:
        await listener.close()


@contextlib.asynccontextmanager
async def connected(listener: Listener, **options: Any) -> AsyncIterator[Streams]:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, **options)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def end_of(reader: asyncio.StreamReader) -> bytes:
    """Everything until the other side ends the connection, which it must."""
    async with asyncio.timeout(PATIENCE_S):
        with contextlib.suppress(ConnectionError):
            return await reader.read()
        return b""


async def answer(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(PATIENCE_S):
        return await reader.readuntil(b"ok\n")


def late(metrics: Metrics) -> float | None:
    return metrics.registry.get_sample_value("conclave_http_late_heads_total", {"listener": "peer"})


async def test_a_connection_that_sends_nothing_is_cut_and_counted() -> None:
    metrics = Metrics("test")
    async with serving(metrics) as listener, connected(listener) as (reader, _):
        await LoopClock().forward(OVER_S)
        assert await end_of(reader) == b""
        assert late(metrics) == 1


async def test_a_head_that_comes_a_byte_at_a_time_is_cut_however_long_it_goes_on() -> None:
    metrics, clock = Metrics("test"), LoopClock()
    async with serving(metrics) as listener, connected(listener) as (reader, writer):
        ended = asyncio.create_task(end_of(reader))
        bytes_sent = 0
        for byte in chain(HEAD, cycle(b"X-Slow: yes\r\n")):
            with contextlib.suppress(ConnectionError):
                writer.write(bytes((byte,)))
                await writer.drain()
            bytes_sent += 1
            await clock.forward(LIMIT_S / 5)
            if ended.done():
                break
        assert ended.result() == b""
        assert bytes_sent == 5
        assert late(metrics) == 1


async def test_a_connection_may_be_idle_between_requests_but_not_within_the_next_ones_head() -> None:
    metrics, clock = Metrics("test"), LoopClock()
    async with serving(metrics) as listener, connected(listener) as (reader, writer):
        writer.write(HEAD + b"\r\n")
        await answer(reader)
        ended = asyncio.create_task(end_of(reader))
        await clock.forward(2 * LIMIT_S)
        assert not ended.done()
        assert late(metrics) == 0
        writer.write(HEAD)
        await clock.forward(OVER_S)
        assert await ended == b""
        assert late(metrics) == 1


async def test_a_head_in_pieces_within_the_limit_is_served_and_so_is_the_next() -> None:
    metrics = Metrics("test")
    async with serving(metrics, head_timeout_s=NEVER_S) as listener, connected(listener) as (reader, writer):
        for _ in range(2):
            answered = asyncio.create_task(answer(reader))
            for piece in (HEAD[:9], HEAD[9:]):
                writer.write(piece)
                assert not (await asyncio.wait([answered], timeout=0.02))[0]
            writer.write(b"\r\n")
            await answered
        writer.write((HEAD + b"\r\n") * 3 + HEAD)
        for _ in range(3):
            await answer(reader)
        writer.write(b"\r\n")
        await answer(reader)
        assert late(metrics) == 0


async def test_neither_a_slow_body_nor_a_slow_handler_is_taken_for_a_slow_head() -> None:
    go, metrics, clock = asyncio.Event(), Metrics("test"), LoopClock()

    async def slow(body: bytes, _: Caller) -> bytes:
        await go.wait()
        return body

    async with serving(metrics, PeerRoute("/v1/slow", slow)) as listener, connected(listener) as (reader, writer):
        head = f"POST /v1/slow HTTP/1.1\r\nHost: here\r\nContent-Type: {MEDIA_TYPE}\r\nContent-Length: 3\r\n\r\n"
        writer.write(head.encode() + b"o")
        answered = asyncio.create_task(answer(reader))
        for piece in (b"", b"k\n"):
            writer.write(piece)
            await clock.forward(2 * LIMIT_S)
            assert not answered.done()
        go.set()
        assert (await answered).endswith(b"ok\n")
        assert late(metrics) == 0


# --- TLS ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """(the listener's, a caller's)"""
    return TestCa().contexts(tmp_path_factory.mktemp("tls"), "127.0.0.1")


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["silent", "a piece of a hello"])
async def test_a_handshake_that_never_ends_is_cut(contexts: tuple[ssl.SSLContext, ssl.SSLContext], sent: bytes) -> None:
    limits = {"head_timeout_s": NEVER_S, "handshake_timeout_s": LIMIT_S}
    async with (
        serving(Metrics("test"), tls=contexts[0], **limits) as listener,
        connected(listener) as (reader, writer),
    ):
        writer.write(sent)
        await LoopClock().forward(OVER_S)
        assert await end_of(reader) == b""


async def test_a_connection_that_is_silent_after_its_handshake_is_cut(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    metrics = Metrics("test")
    async with (
        serving(metrics, tls=contexts[0]) as listener,
        connected(listener, ssl=contexts[1]) as (reader, _),
    ):
        await LoopClock().forward(OVER_S)
        assert await end_of(reader) == b""
        assert late(metrics) == 1
