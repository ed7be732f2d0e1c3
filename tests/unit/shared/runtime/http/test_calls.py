"""Calls read without aiohttp: exactly what our client writes, and to all else the same answers as aiohttp gives."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from shared.adapters.peers.client import MEDIA_TYPE
from shared.errors import PeerRejected, PeerUnknown, StoreUnknown
from shared.runtime.http import guard, listener
from shared.runtime.http.callers import Authenticator, Caller
from shared.runtime.http.calls import CallAnswer, CallRoute, CallRoutes
from shared.runtime.http.limits import Rate
from shared.runtime.http.listener import Listener
from shared.runtime.http.peers import PeerRoute
from shared.runtime.observe.metrics import Metrics
from tests.loop_clock import LoopClock
from tests.patience import PATIENCE_S
from tests.unit.shared.runtime.http.listeners import TOKEN, calling, echo, serving, token_file

HEAD = f"POST /v1/x HTTP/1.1\r\nHost: here:1\r\nContent-Type: {MEDIA_TYPE}\r\n"
ANOTHER = {"X-More": "yes"}
"""A header of the caller's own: aiohttp reads the call."""


def written(body: bytes, head: str = HEAD) -> bytes:
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def read_by_aiohttp(served: Listener) -> int:
    server: Any = served._runner.server
    return int(server.requests_count)


@contextlib.asynccontextmanager
async def connected(served: Listener) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield reader, writer
    finally:
        writer.transport.abort()


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
    return int(head.split()[1]), await reader.readexactly(length)


# --- what is a call -------------------------------------------------------------------------------------------------


def routes() -> CallRoutes:
    async def handle(_: Any) -> CallAnswer:
        return CallAnswer(200, b"")

    found = CallRoutes()
    found.add("/v1/x", CallRoute(handle, lambda call: call.authorization == "Bearer known", 1000))
    return found


def test_what_the_client_writes_is_a_call() -> None:
    begun = routes().begun(written(b"ask", f"{HEAD}Authorization: Bearer t\r\n"), asyncio.BaseTransport())
    assert begun is not None
    assert (begun[1].path, begun[1].authorization, begun[1].body, begun[2]) == ("/v1/x", "Bearer t", b"ask", 0)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(written(b"ask") + b"P", id="more than one"),
        pytest.param(written(b"ask", HEAD + "X-More: yes\r\n"), id="another header"),
        pytest.param(written(b"ask", HEAD + "Transfer-Encoding: chunked\r\n"), id="chunked"),
        pytest.param(written(b"ask", HEAD + "Content-Length: 2\r\n"), id="two lengths"),
        pytest.param(written(b"ask", HEAD + " folded\r\n"), id="a folded line"),
        pytest.param(written(b"ask").replace(b"\r\n", b"\n"), id="bare line feeds"),
        pytest.param(written(b"ask").replace(b"HTTP/1.1", b"HTTP/1.0"), id="HTTP/1.0"),
        pytest.param(written(b"ask").replace(b"POST", b"GET"), id="GET"),
        pytest.param(written(b"ask").replace(b"/v1/x", b"/v1/y"), id="another path"),
        pytest.param(written(b"ask").replace(b"/v1/x", b"/v1/x?a=b"), id="a query"),
        pytest.param(written(b"ask").replace(b"msgpack", b"json"), id="another type"),
        pytest.param(written(b"ask").replace(b"Length: 3", b"Length: +3"), id="a signed length"),
        pytest.param(written(b"ask")[:40], id="half a head"),
        pytest.param(written(b"x" * 1001), id="over the route's limit"),
        pytest.param(written(b"ask")[:-1], id="in pieces, of a stranger"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_whatever_differs_is_no_call(data: bytes) -> None:
    assert routes().begun(data, asyncio.BaseTransport()) is None


def test_of_a_known_caller_the_rest_of_the_body_is_waited_for() -> None:
    begun = routes().begun(written(b"ask", f"{HEAD}Authorization: Bearer known\r\n")[:-2], asyncio.BaseTransport())
    assert begun is not None
    assert begun[2] == 2


# --- over sockets ---------------------------------------------------------------------------------------------------


async def test_a_call_of_our_client_never_reaches_aiohttp() -> None:
    async with serving(PeerRoute("/v1/x", echo)) as served, calling() as client:
        for _ in range(3):
            assert await client.call(served.url, "/v1/x", b"ask", timeout_s=10) == b"ask"
        assert read_by_aiohttp(served) == 0
        assert await client.call(served.url, "/v1/x", b"ask", timeout_s=10, headers=ANOTHER) == b"ask"
        assert read_by_aiohttp(served) == 1


async def test_a_route_with_a_rate_of_its_callers_is_aiohttps() -> None:
    async with serving(PeerRoute("/v1/x", echo, rate_of_one=Rate(1, 1))) as served, calling() as client:
        await client.call(served.url, "/v1/x", b"ask", timeout_s=10)
        assert read_by_aiohttp(served) == 1


async def fails(_: bytes, __: Caller) -> bytes:
    raise RuntimeError("password=hunter2")


async def unknown(_: bytes, __: Caller) -> bytes:
    raise StoreUnknown("no answer")


@pytest.mark.parametrize(
    ("route", "tokens"),
    [
        pytest.param(PeerRoute("/v1/x", echo), f"{'o' * 32}\n", id="401"),
        pytest.param(PeerRoute("/v1/x", echo, roles=frozenset({"agent"})), f"{TOKEN} binder\n", id="403"),
        pytest.param(PeerRoute("/v1/x", echo, max_body_bytes=2), f"{TOKEN}\n", id="413"),
        pytest.param(PeerRoute("/v1/x", echo, max_in_flight=0), f"{TOKEN}\n", id="429"),
        pytest.param(PeerRoute("/v1/x", fails), f"{TOKEN}\n", id="500"),
        pytest.param(PeerRoute("/v1/x", unknown), f"{TOKEN}\n", id="503"),
    ],
)
async def test_a_refusal_is_the_same_however_the_call_is_read(route: PeerRoute, tokens: str, tmp_path: Path) -> None:
    known, told = Authenticator(token_file(tmp_path, tokens)), []
    other = tmp_path / "own"
    other.mkdir()
    async with (
        serving(route, authenticator=known) as served,
        calling(credentials=token_file(other)) as client,
    ):
        for headers in (None, ANOTHER):
            with pytest.raises((PeerRejected, PeerUnknown)) as caught:
                await client.call(served.url, "/v1/x", b"ask", timeout_s=10, headers=headers)
            error = caught.value
            told.append((type(error), str(error), getattr(error, "retry_after_s", None)))
    assert told[0] == told[1]
    assert "hunter2" not in told[0][1]


async def test_a_body_in_pieces_is_waited_for_and_the_next_call_follows() -> None:
    metrics = Metrics("test")
    async with (
        serving(PeerRoute("/v1/x", echo), metrics=metrics) as served,
        connected(served) as (reader, writer),
    ):
        writer.write(written(b"first")[:-3])
        answered = asyncio.create_task(answer(reader))
        for piece in (b"rs", b"t"):
            assert not (await asyncio.wait([answered], timeout=0.02))[0]
            writer.write(piece)
        assert await answered == (200, b"first")
        writer.write(written(b"next"))
        assert await answer(reader) == (200, b"next")
        assert read_by_aiohttp(served) == 0


async def test_calls_in_one_write_are_answered_in_turn_by_aiohttp() -> None:
    async with serving(PeerRoute("/v1/x", echo)) as served, connected(served) as (reader, writer):
        writer.write(written(b"first") + written(b"second"))
        assert [await answer(reader), await answer(reader)] == [(200, b"first"), (200, b"second")]
        assert read_by_aiohttp(served) == 2


async def test_what_comes_while_a_call_is_at_work_waits_for_its_answer() -> None:
    go, begun = asyncio.Event(), asyncio.Event()

    async def slow(body: bytes, _: Caller) -> bytes:
        begun.set()
        await go.wait()
        return body

    async with serving(PeerRoute("/v1/x", slow)) as served, connected(served) as (reader, writer):
        writer.write(written(b"first"))
        await begun.wait()
        begun.clear()
        writer.write(written(b"second") + b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n")
        go.set()
        assert await answer(reader) == (200, b"first")
        assert await answer(reader) == (200, b"second")
        assert await answer(reader) == (200, b"ok\n")


async def test_who_does_not_read_its_answers_gets_no_more_of_them() -> None:
    begun, large = asyncio.Event(), b"x" * (1 << 20)

    async def answers(_: bytes, __: Caller) -> bytes:
        begun.set()
        return large

    async with serving(PeerRoute("/v1/x", answers)) as served, connected(served) as (reader, writer):
        server: Any = served._runner.server
        calls, paused = 0, False
        while not paused:
            begun.clear()
            writer.write(written(b"ask"))
            await begun.wait()
            calls += 1
            paused = server.connections[0].writing_paused
        begun.clear()
        writer.write(written(b"ask"))
        waiting = asyncio.create_task(begun.wait())
        assert not (await asyncio.wait([waiting], timeout=0.1))[0], "what is not read piles up"
        for _ in range(calls + 1):
            assert await answer(reader) == (200, large)
        assert begun.is_set()
        await waiting


async def test_who_never_reads_its_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "UNREAD_TIMEOUT_S", 10.0)

    async def answers(_: bytes, __: Caller) -> bytes:
        return b"x" * (16 << 20)

    async with serving(PeerRoute("/v1/x", answers)) as served, connected(served) as (reader, writer):
        server: Any = served._runner.server
        writer.write(written(b"ask"))
        await reader.readexactly(1)
        connection = server.connections[0]
        assert connection.writing_paused
        call = connection._call
        await LoopClock().forward(11.0)
        await asyncio.wait_for(call, PATIENCE_S)
        assert not server.connections


async def test_a_listener_that_closes_does_not_wait_for_who_does_not_read() -> None:
    large = b"x" * (16 << 20)

    async def answers(_: bytes, __: Caller) -> bytes:
        return large

    async with serving(PeerRoute("/v1/x", answers)) as served, connected(served) as (reader, writer):
        server: Any = served._runner.server
        writer.write(written(b"ask"))
        await reader.readexactly(1)
        assert server.connections[0].writing_paused
        async with asyncio.timeout(PATIENCE_S):
            await served.close()


async def test_a_body_that_comes_too_slowly_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (listener, guard):
        monkeypatch.setattr(module, "BODY_TIMEOUT_S", 0.05)
    async with serving(PeerRoute("/v1/x", echo)) as served, connected(served) as (reader, writer):
        writer.write(written(b"ask")[:-1])
        status, body = await answer(reader)
    assert (status, b"body_timeout" in body) == (408, True)


@pytest.mark.parametrize("most", [listener.MOST_GATHERING, 0])
async def test_so_many_bodies_are_held_and_no_more(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """With none allowed, aiohttp reads the body that comes in pieces."""
    monkeypatch.setattr(listener, "MOST_GATHERING", most)
    async with serving(PeerRoute("/v1/x", echo)) as served, connected(served) as (reader, writer):
        answered = asyncio.create_task(answer(reader))
        writer.write(written(b"ask")[:-1])
        assert not (await asyncio.wait([answered], timeout=0.02))[0]
        writer.write(b"k")
        assert await answered == (200, b"ask")
        assert read_by_aiohttp(served) == (0 if most else 1)


async def test_a_listener_that_closes_lets_a_call_end() -> None:
    go, begun = asyncio.Event(), asyncio.Event()

    async def slow(body: bytes, _: Caller) -> bytes:
        begun.set()
        await go.wait()
        return body

    async with serving(PeerRoute("/v1/x", slow)) as served, connected(served) as (reader, writer):
        writer.write(written(b"ask"))
        await begun.wait()
        closing = asyncio.create_task(served.close())
        asyncio.get_running_loop().call_soon(go.set)
        assert await answer(reader) == (200, b"ask")
        await closing


async def test_a_listener_that_closes_gives_up_a_call_that_does_not_end() -> None:
    given_up, begun = asyncio.Event(), asyncio.Event()

    async def slow(_: bytes, __: Caller) -> bytes:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()
        return b""

    async with serving(PeerRoute("/v1/x", slow)) as served, connected(served) as (_, writer):
        writer.write(written(b"ask"))
        await begun.wait()
        await served.close()
        async with asyncio.timeout(PATIENCE_S):
            await given_up.wait()
