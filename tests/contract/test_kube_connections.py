"""The Kubernetes client's connections over real sockets: how many, when one is used again, proxies, who must wait.

Services run on uvloop, tools on asyncio's loop: what depends on it is tried on both. What is asked over connections:
``test_kube_api.py``; streams: ``test_kube_watch.py``.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path

import pytest
import uvloop

from shared.adapters.http import connection as connections
from shared.adapters.http import pool as pools
from shared.adapters.kube.api import KubeClient
from shared.errors import KubeRejected, KubeUnknown
from shared.kube.resources import PODS
from shared.ports import BindRequest
from tests.certificates import TestCa
from tests.faults.raw_server import BOUND, LISTED, RawServer
from tests.faults.scripted_api import ScriptedApi, StaticAccess, answer
from tests.faults.tcp_proxy import TcpProxy
from tests.patience import PATIENCE_S

BIND_PATH = "/api/v1/namespaces/default/pods/a/binding"
REQUEST = BindRequest("default", "a", "uid-a", "7", "n1")


class Access(StaticAccess):
    """``KubeAccess`` whose URL, proxy and name in the certificate a test may change."""

    def __init__(self, base_url: str, *, proxy: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(base_url, tls=[tls] if tls is not None else None)
        self.proxy = proxy


@contextlib.asynccontextmanager
async def client_to(url: str, **options: object) -> AsyncIterator[KubeClient]:
    client = KubeClient(Access(url, **options))  # type: ignore[arg-type]
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield client
    finally:
        await client.close()


# --- how many -----------------------------------------------------------------------------------------------------


async def test_requests_one_after_the_other_share_one_connection():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await server.request(reader)
            writer.write(BOUND)

    async with RawServer(serve) as server, client_to(server.url) as client:
        for _ in range(20):
            await client.bind(REQUEST)
    assert (server.accepted, len(server.requests)) == (1, 20)


async def test_a_burst_dials_a_few_connections_and_shares_them():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await server.request(reader)
            writer.write(BOUND)

    async with RawServer(serve) as server, client_to(server.url) as client:
        await asyncio.gather(*(client.bind(REQUEST) for _ in range(100)))
    assert len(server.requests) == 100
    assert server.accepted <= 50


async def test_slow_answers_get_a_connection_each_up_to_the_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pools, "MOST_CONNECTIONS", 12)
    full, go_on = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await server.request(reader)
            if len(server.requests) == 12:
                full.set()
            await go_on.wait()
            writer.write(BOUND)

    async with RawServer(serve) as server, client_to(server.url) as client:
        asked = [asyncio.create_task(client.bind(REQUEST)) for _ in range(40)]
        await full.wait()
        go_on.set()
        await asyncio.gather(*asked)
    assert (server.accepted, len(server.requests)) == (12, 40)


async def test_a_request_that_finds_no_free_connection_in_its_time_is_not_sent_later(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pools, "MOST_CONNECTIONS", 1)
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await server.request(reader)
            asked.set()
            await go_on.wait()
            writer.write(BOUND)

    async with RawServer(serve) as server, client_to(server.url) as client:
        first = asyncio.create_task(client.bind(REQUEST))
        await asked.wait()
        with pytest.raises(KubeUnknown, match="no answer within"):
            await client.bind(REQUEST, timeout_s=0.05)
        go_on.set()
        await first
        await client.bind(REQUEST)
    assert len(server.requests) == 2


# --- used again, or not -------------------------------------------------------------------------------------------


def ends_each_connection_at_its_second_request() -> RawServer:
    """As a server that closes idle connections just when a request is on its way."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.request(reader)
        writer.write(BOUND if server.requests[-1].startswith("POST") else LISTED)
        await server.request(reader)

    server = RawServer(serve)
    return server


async def test_a_read_that_meets_a_connection_the_server_closed_is_asked_again():
    async with ends_each_connection_at_its_second_request() as server, client_to(server.url) as client:
        await client.list(PODS)
        assert (await client.list(PODS)).resource_version == "9"
    assert (server.accepted, len(server.requests)) == (2, 3)


async def test_a_binding_that_meets_one_is_unknown_and_never_sent_twice():
    async with ends_each_connection_at_its_second_request() as server, client_to(server.url) as client:
        await client.bind(REQUEST)
        with pytest.raises(KubeUnknown):
            await client.bind(REQUEST)
    assert len(server.requests) == 2


async def test_a_connection_that_was_idle_for_long_is_closed_and_not_used_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pools, "IDLE_S", 0.05)
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.request(reader)
        writer.write(BOUND)
        assert await reader.read() == b""
        closed.set()

    async with RawServer(serve) as server, client_to(server.url) as client:
        await client.bind(REQUEST)
        await closed.wait()


async def test_what_a_server_says_unasked_ends_an_idle_connection():
    """Proxies send a 408 to an idle connection; read as the next answer, it would be a Binding's."""
    said = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.request(reader)
        writer.write(BOUND)
        if server.accepted == 1:
            writer.write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
            assert await reader.read() == b""
            said.set()
        await reader.read()

    async with RawServer(serve) as server, client_to(server.url) as client:
        with contextlib.suppress(KubeUnknown):  # where both came in one read the first answer cannot be trusted either
            await client.bind(REQUEST)
        await said.wait()
        await client.bind(REQUEST)
    assert server.accepted == 2


async def test_the_late_answer_of_a_request_that_was_given_up_is_nobodys():
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = server.accepted
        await server.request(reader)
        if number == 1:
            asked.set()
            await go_on.wait()
            writer.write(b"HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\n\r\n{}")
        writer.write(BOUND)
        await reader.read()

    async with RawServer(serve) as server, client_to(server.url) as client:
        given_up = asyncio.create_task(client.bind(REQUEST))
        await asked.wait()
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        go_on.set()
        await client.bind(REQUEST)
    assert server.accepted == 2


async def test_an_answer_that_breaks_off_is_unknown():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.request(reader)
        writer.write(BOUND[:-1])

    async with RawServer(serve) as server, client_to(server.url) as client:
        with pytest.raises(KubeUnknown, match="ended before the answer"):
            await client.bind(REQUEST)


async def test_after_a_renewal_that_names_another_server_requests_go_there():
    async with (
        ScriptedApi().on("POST", BIND_PATH, answer(201, {})) as old,
        ScriptedApi().on("POST", BIND_PATH, answer(201, {})) as new,
        client_to(old.url) as client,
    ):
        await client.bind(REQUEST)
        client._http._access.base_url = new.url  # type: ignore[misc]
        await client.bind(REQUEST)
    assert (len(old.seen), len(new.seen)) == (1, 1)


# --- who is made to wait ------------------------------------------------------------------------------------------


async def test_a_watch_that_nobody_reads_makes_the_server_wait():
    blocked = asyncio.Event()
    part = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(2000):
            writer.write(part)
            try:
                await asyncio.wait_for(writer.drain(), 0.5)
            except TimeoutError:
                blocked.set()
                await writer.drain()

    async with RawServer(serve) as server, client_to(server.url) as client, asyncio.timeout(PATIENCE_S):
        stream = await client._http.open_watch("/api/v1/pods", {"watch": "true"}, PATIENCE_S)
        await blocked.wait()
        assert stream._connection._held < connections.MOST_HELD + (1 << 20)
        read = 0
        while read < 4 * connections.MOST_HELD:
            read += len(await stream.read(PATIENCE_S))
        stream.close()


# --- proxies ------------------------------------------------------------------------------------------------------


def proxy_to(port: int, *, refuse: bool = False) -> RawServer:
    """A proxy that tunnels whatever is asked for to ``port``."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.request(reader)
        if refuse:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            return
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 Connection established\r\nServer: test\r\n\r\n")
        await asyncio.gather(pump(reader, upstream_writer), pump(upstream_reader, writer))

    server = RawServer(serve)
    return server


async def test_an_https_server_is_reached_through_a_tunnel_and_only_the_proxy_sees_its_password(tmp_path: Path):
    serving, trusting = TestCa().contexts(tmp_path, "localhost")
    async with ScriptedApi(tls=serving).on("POST", BIND_PATH, answer(201, {})) as api:
        port = int(api.url.rsplit(":", 1)[1])
        async with proxy_to(port) as proxy:
            through = f"http://me:p%40ss@localhost:{proxy.port}"
            async with client_to(api.url, proxy=through, tls=trusting) as client:
                await client.bind(REQUEST)
                await client.bind(REQUEST)
    assert proxy.accepted == 1
    assert proxy.requests[0].startswith(f"CONNECT localhost:{port} HTTP/1.1\r\n")
    assert f"Proxy-Authorization: Basic {base64.b64encode(b'me:p@ss').decode()}" in proxy.requests[0]
    assert all("Proxy-Authorization" not in seen.headers for seen in api.seen)


async def test_a_proxy_that_is_spoken_to_in_tls_carries_the_servers_tls_inside(tmp_path: Path):
    ca = TestCa()
    serving, trusting = ca.contexts(tmp_path, "localhost")
    async with ScriptedApi(tls=serving).on("POST", BIND_PATH, answer(201, {})) as api:
        proxy = proxy_to(int(api.url.rsplit(":", 1)[1]))
        proxy._tls = serving
        async with proxy, client_to(api.url, proxy=f"https://localhost:{proxy.port}", tls=trusting) as client:
            await client.bind(REQUEST)
    assert len(api.seen) == 1


async def test_an_http_server_is_asked_for_by_its_whole_url():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await proxy.request(reader)
        writer.write(BOUND)

    async with RawServer(serve) as proxy:
        through = f"http://me:word@localhost:{proxy.port}"
        async with client_to("http://api.example:8080/prefix", proxy=through) as client:
            await client.bind(REQUEST)
    first, *lines = proxy.requests[0].split("\r\n")
    assert first == f"POST http://api.example:8080/prefix{BIND_PATH} HTTP/1.1"
    assert "Host: api.example:8080" in lines
    assert f"Proxy-Authorization: Basic {base64.b64encode(b'me:word').decode()}" in lines


async def test_a_proxy_that_refuses_the_tunnel_is_named_with_its_answer(tmp_path: Path):
    _, trusting = TestCa().contexts(tmp_path, "localhost")
    async with (
        proxy_to(0, refuse=True) as proxy,
        client_to("https://localhost:1", proxy=f"http://localhost:{proxy.port}", tls=trusting) as client,
    ):
        with pytest.raises(KubeUnknown, match=r"the proxy refuses a tunnel to localhost:1 \(407\)"):
            await client.bind(REQUEST)


async def test_the_certificate_must_name_the_server_or_what_is_given_instead(tmp_path: Path):
    serving, trusting = TestCa().contexts(tmp_path, "kubernetes")
    async with (
        ScriptedApi(tls=serving).on("POST", BIND_PATH, answer(201, {})) as api,
        client_to(api.url, tls=trusting) as client,
    ):
        with pytest.raises(KubeUnknown, match="TLS handshake failed"):
            await client.bind(REQUEST)
        client._http._access.server_hostname = "kubernetes"  # type: ignore[misc]
        await client.bind(REQUEST)
    assert len(api.seen) == 1


async def test_credentials_that_hold_a_line_break_never_reach_the_wire(monkeypatch: pytest.MonkeyPatch):
    async def headers(_: StaticAccess) -> dict[str, str]:
        return {"Authorization": "Bearer a\r\nX-Remote-User: admin"}

    monkeypatch.setattr(StaticAccess, "headers", headers)
    async with ScriptedApi() as api, client_to(api.url) as client:
        with pytest.raises(KubeUnknown, match="line break"):
            await client.bind(REQUEST)
    assert api.seen == []


async def test_closing_the_client_ends_what_waits_and_what_is_in_flight(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pools, "MOST_CONNECTIONS", 1)
    asked = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.request(reader)
        asked.set()
        await reader.read()

    async with RawServer(serve) as server:
        client = KubeClient(Access(server.url))
        requests = [asyncio.create_task(client.bind(REQUEST)) for _ in range(3)]
        await asked.wait()
        await client.close()
        ends = await asyncio.gather(*requests, return_exceptions=True)
    assert [type(end) for end in ends] == [KubeUnknown] * 3
    assert not isinstance(ends[0], KubeRejected)


# --- the other loop -----------------------------------------------------------------------------------------------

PLAIN = (
    test_requests_one_after_the_other_share_one_connection,
    test_a_burst_dials_a_few_connections_and_shares_them,
    test_a_read_that_meets_a_connection_the_server_closed_is_asked_again,
    test_a_binding_that_meets_one_is_unknown_and_never_sent_twice,
    test_the_late_answer_of_a_request_that_was_given_up_is_nobodys,
    test_an_answer_that_breaks_off_is_unknown,
    test_a_watch_that_nobody_reads_makes_the_server_wait,
    test_an_http_server_is_asked_for_by_its_whole_url,
)
ENCRYPTED = (
    test_an_https_server_is_reached_through_a_tunnel_and_only_the_proxy_sees_its_password,
    test_a_proxy_that_is_spoken_to_in_tls_carries_the_servers_tls_inside,
    test_a_proxy_that_refuses_the_tunnel_is_named_with_its_answer,
    test_the_certificate_must_name_the_server_or_what_is_given_instead,
)


@pytest.mark.parametrize("scenario", PLAIN, ids=lambda scenario: scenario.__name__)
def test_it_is_the_same_on_uvloop(scenario: Callable[[], Coroutine[None, None, None]]):
    uvloop.run(scenario())


@pytest.mark.parametrize("scenario", ENCRYPTED, ids=lambda scenario: scenario.__name__)
def test_encrypted_it_is_the_same_on_uvloop(scenario: Callable[[Path], Coroutine[None, None, None]], tmp_path: Path):
    uvloop.run(scenario(tmp_path))


async def test_when_one_connection_is_dead_those_that_are_as_old_are_not_tried_one_by_one():
    """A balancer lost its server and goes on acknowledging: the Binding that finds it is unknown, the next is well."""
    together = asyncio.Barrier(4)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await server.request(reader)
            if server.accepted <= 4 and len(server.requests) <= 4:
                await together.wait()
            writer.write(BOUND)

    async with (
        RawServer(serve) as server,
        TcpProxy(server.port, "localhost") as balancer,
        client_to(f"http://127.0.0.1:{balancer.port}") as client,
    ):
        await asyncio.gather(*(client.bind(REQUEST) for _ in range(4)))
        assert server.accepted == 4
        balancer.lose_servers()
        with pytest.raises(KubeUnknown, match="no answer within"):
            await client.bind(REQUEST, timeout_s=0.2)
        await client.bind(REQUEST, timeout_s=PATIENCE_S)
        assert server.accepted == 5
