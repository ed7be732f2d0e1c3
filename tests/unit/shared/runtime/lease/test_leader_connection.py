"""How a standby learns that the leader's process has ended: by a connection that ends, and others that are refused."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shared.adapters.peers.client import PeerClient
from shared.runtime.http.listener import Listener, listen
from shared.runtime.http.peers import build_app
from shared.runtime.lease.leader_connection import LeaderConnection, await_end
from shared.runtime.observe.metrics import Metrics

PATIENCE_S = 20.0
URL = "http://127.0.0.1:1"
REFUSED, SILENT, NO_WAY = ConnectionRefusedError(), TimeoutError(), OSError(113, "No route to host")
DISTRUSTED, NO_URL = ssl.SSLError("certificate verify failed"), ValueError("port")


class Held:
    """A connection that the other side has ended already."""

    def __init__(self) -> None:
        self.ended = asyncio.get_running_loop().create_future()
        self.ended.set_result(None)

    def abort(self) -> None:
        """Nothing is left to end."""


class Scripted:
    """What dialing brings, in order: an error, or None for a connection."""

    def __init__(self, *script: Exception | None) -> None:
        self._left: Iterator[Exception | None] = iter(script)
        self.over = asyncio.Event()

    async def hold(self, _url: str, *, service: str = "") -> Any:
        try:
            step = next(self._left)
        except StopIteration:
            self.over.set()
            await asyncio.Event().wait()
        if step is not None:
            raise step
        return Held()


async def leads_at_first(metrics: Metrics | None = None) -> Listener:
    return await listen(build_app(metrics or Metrics("t")))


async def test_a_connection_that_ends_and_two_that_are_refused_say_that_the_process_has_ended() -> None:
    client: Any = Scripted(None, REFUSED, REFUSED)
    async with asyncio.timeout(PATIENCE_S):
        await await_end(client, URL)
    assert not client.over.is_set()


@pytest.mark.parametrize(
    "script",
    [
        (REFUSED, REFUSED),
        (None, SILENT, NO_WAY),
        (None, None),
        (DISTRUSTED, REFUSED),
        (NO_URL, REFUSED),
        (None, REFUSED),
        (None, REFUSED, None, REFUSED),
        (None, REFUSED, SILENT, REFUSED),
        (REFUSED, None, REFUSED),
    ],
    ids=[
        "never connected",
        "no way to it",
        "it lives",
        "not trusted",
        "no url",
        "refused once",
        "refused twice, and it lives",
        "refused twice, a silence between",
        "refused before and after",
    ],
)
async def test_nothing_else_says_so(script: tuple[Exception | None, ...]) -> None:
    client: Any = Scripted(*script)
    waiting = asyncio.ensure_future(await_end(client, URL))
    async with asyncio.timeout(PATIENCE_S):
        await client.over.wait()
    assert not waiting.done()
    waiting.cancel()


async def test_a_refusal_is_believed_however_long_after_the_connection_it_comes() -> None:
    client: Any = Scripted(None, SILENT, NO_WAY, REFUSED, REFUSED)
    async with asyncio.timeout(PATIENCE_S):
        await await_end(client, URL)


async def test_a_listener_that_closes_is_noticed_over_real_sockets() -> None:
    client, told, listener = PeerClient(), asyncio.Queue[int](), await leads_at_first()
    async with LeaderConnection(client, told.put_nowait) as connection:
        connection.follow(listener.url, 7)
        await until(lambda: len(listener_connections(listener)) == 1)
        await listener.close()
        async with asyncio.timeout(PATIENCE_S):
            assert await told.get() == 7
    await client.close()


async def test_a_listener_that_lets_go_of_its_connections_lives() -> None:
    client, told, listener = PeerClient(), asyncio.Queue[int](), await leads_at_first()
    async with LeaderConnection(client, told.put_nowait) as connection:
        connection.follow(listener.url, 7)
        await until(lambda: len(listener_connections(listener)) == 1)
        (first,) = listener_connections(listener)
        first.transport.abort()
        await until(lambda: [one for one in listener_connections(listener) if one is not first])
        assert told.empty()
        await listener.close()
        async with asyncio.timeout(PATIENCE_S):
            assert await told.get() == 7
    await client.close()


async def test_of_a_leader_that_is_followed_no_more_nothing_is_told() -> None:
    client, told = PeerClient(), asyncio.Queue[int]()
    first, second = await leads_at_first(), await leads_at_first()
    async with LeaderConnection(client, told.put_nowait) as connection:
        connection.follow(first.url, 7)
        await until(lambda: len(listener_connections(first)) == 1)
        connection.follow(second.url, 9)
        await until(lambda: len(listener_connections(second)) == 1)
        await first.close()
        await second.close()
        async with asyncio.timeout(PATIENCE_S):
            assert await told.get() == 9
    assert told.empty()
    await client.close()


def listener_connections(listener: Listener) -> list[Any]:
    server = listener._runner.server
    assert server is not None
    return server.connections


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110  of the other side
            await asyncio.sleep(0.01)
