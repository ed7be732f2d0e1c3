"""The listener and the peer client against each other over real sockets: limits, identities, stable codes."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from pathlib import Path

import aiohttp
import msgspec
import pytest

from shared.adapters.peers.client import MEDIA_TYPE
from shared.adapters.peers.clock_skew import ClockSkew
from shared.errors import ConfigError, KubeUnknown, PeerRejected, PeerUnknown, StoreRejected, StoreUnknown, WireError
from shared.runtime.http.callers import Authenticator, Caller
from shared.runtime.http.listener import listen
from shared.runtime.http.peers import FiguresRoute, PeerRoute, build_app
from shared.runtime.http.refusals import RequestRefused
from shared.runtime.observe.metrics import Metrics
from shared.runtime.process.process import ProcessSettings
from shared.runtime.process.runtime import opened
from shared.runtime.process.service import Heartbeat, Service, boottime
from tests.unit.shared.runtime.http.listeners import calling, echo, serving, token_file


def raises(error: Exception):
    async def handler(body: bytes, caller: Caller) -> bytes:
        raise error

    return handler


async def test_bytes_go_and_come_and_are_counted_on_both_sides(tmp_path: Path):
    tokens, metrics = token_file(tmp_path), Metrics("test")
    route = PeerRoute("/v1/echo", echo)
    async with (
        serving(route, metrics=metrics, authenticator=Authenticator(tokens)) as listener,
        calling(credentials=tokens) as client,
    ):
        assert await client.call(listener.url, "/v1/echo", b"x" * 1000, timeout_s=10) == b"x" * 1000
    counted = client.traffic.route("/v1/echo")
    assert (counted.bytes_sent, counted.bytes_received, counted.outcomes) == (1000, 1000, {"ok": 1})
    assert metrics.stats()["traffic"]["server"]["/v1/echo"]["bytes_received"] == 1000


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (WireError("no such kind", code="wire_unknown_kind"), 400, "wire_unknown_kind"),
        (StoreRejected("the key is there already"), 409, "store_rejected"),
        (WireError("term 3 is over", code="stale_term"), 409, "stale_term"),
        (RequestRefused("no such agent", code="foreign_agent"), 403, "foreign_agent"),
    ],
)
async def test_a_refusal_of_the_handler_arrives_as_its_code(error: Exception, status: int, code: str):
    async with serving(PeerRoute("/v1/x", raises(error))) as listener, calling() as client:
        with pytest.raises(PeerRejected) as caught:
            await client.call(listener.url, "/v1/x", b"", timeout_s=10)
    assert (caught.value.status, caught.value.code) == (status, code)


@pytest.mark.parametrize("error", [StoreUnknown("timeout"), KubeUnknown("timeout"), RuntimeError("password=hunter2")])
async def test_a_handler_that_does_not_know_makes_the_caller_not_know(error: Exception):
    async with serving(PeerRoute("/v1/x", raises(error))) as listener, calling() as client:
        with pytest.raises(PeerUnknown) as caught:
            await client.call(listener.url, "/v1/x", b"", timeout_s=10)
    assert "hunter2" not in str(caught.value)


async def test_a_peer_that_is_not_there_has_certainly_done_nothing():
    async with serving() as listener:
        url = listener.url
    async with calling() as client:
        with pytest.raises(PeerRejected) as caught:
            await client.call(url, "/v1/x", b"", timeout_s=10)
    assert caught.value.code == "peer_unreachable"


async def test_a_peers_clock_is_read_from_its_answers():
    skew = ClockSkew(wall=lambda: time.time() - 100)
    async with serving(PeerRoute("/v1/x", echo)) as listener, calling(skew=skew) as client:
        await client.call(listener.url, "/v1/x", b"", timeout_s=10)
    ahead = skew.worst()
    assert ahead is not None
    assert 90 < ahead[1] < 110


@pytest.mark.parametrize("url", ["127.0.0.1:1", "ftp://127.0.0.1", "http://", "http://127.0.0.1:99999", "http://a..b"])
async def test_what_is_no_url_is_refused(url: str):
    async with calling() as client:
        with pytest.raises(PeerRejected) as caught:
            await client.call(url, "/v1/x", b"", timeout_s=10)
    assert caught.value.code == "peer_unreachable"


async def test_a_header_that_would_end_its_line_is_refused():
    async with serving(PeerRoute("/v1/x", echo)) as listener, calling() as client:
        with pytest.raises(PeerRejected):
            await client.call(listener.url, "/v1/x", b"", timeout_s=10, headers={"X-Told": "a\r\nX-More: b"})


async def test_calls_beyond_the_connections_of_a_peer_wait_in_line():
    together, most = 0, 0

    async def slow(body: bytes, caller: Caller) -> bytes:
        nonlocal together, most
        together += 1
        most = max(most, together)
        await asyncio.sleep(0)
        together -= 1
        return body

    async with serving(PeerRoute("/v1/x", slow)) as listener, calling(connections_per_peer=2) as client:
        await asyncio.gather(*(client.call(listener.url, "/v1/x", b"", timeout_s=10) for _ in range(9)))
    assert most <= 2


async def test_no_answer_in_time_is_unknown_and_sent_once():
    calls = []

    async def slow(body: bytes, caller: Caller) -> bytes:
        calls.append(body)
        await asyncio.Event().wait()
        return b""

    async with serving(PeerRoute("/v1/x", slow)) as listener, calling() as client:
        with pytest.raises(PeerUnknown):
            await client.call(listener.url, "/v1/x", b"", timeout_s=0.2)
    assert len(calls) == 1


async def test_a_connection_cut_before_the_answer_is_unknown_and_sent_once():
    taken = []

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.append(await reader.readuntil(b"\r\n\r\n"))
        writer.transport.abort()

    server = await asyncio.start_server(cut, "127.0.0.1", 0)
    async with server, calling() as client:
        with pytest.raises(PeerUnknown):
            await client.call(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "/v1/x", b"", timeout_s=10)
    assert len(taken) == 1


async def test_an_answer_over_the_limit_is_not_read():
    async def big(body: bytes, caller: Caller) -> bytes:
        return b"x" * 2_000_000

    async with serving(PeerRoute("/v1/x", big)) as listener, calling(max_answer_bytes=1_000_000) as client:
        with pytest.raises(PeerUnknown, match="over 1000000"):
            await client.call(listener.url, "/v1/x", b"", timeout_s=10)


async def test_a_body_over_the_routes_limit_is_refused_before_the_handler():
    async with serving(PeerRoute("/v1/x", echo, max_body_bytes=1000)) as listener, calling() as client:
        with pytest.raises(PeerRejected) as caught:
            await client.call(listener.url, "/v1/x", b"x" * 1001, timeout_s=10)
        assert (caught.value.status, caught.value.code) == (413, "wire_too_large")
        assert await client.call(listener.url, "/v1/x", b"x" * 1000, timeout_s=10) == b"x" * 1000


async def test_a_chunked_body_over_the_limit_is_refused_too():
    async def endless():
        for _ in range(100):
            yield b"x" * 65_536

    async with (
        serving(PeerRoute("/v1/x", echo, max_body_bytes=1 << 20)) as listener,
        aiohttp.ClientSession(headers={"Content-Type": MEDIA_TYPE}) as raw,
        raw.post(f"{listener.url}/v1/x", data=endless()) as response,
    ):
        assert response.status == 413


async def test_any_other_media_type_is_refused_and_told_in_json():
    async with (
        serving(PeerRoute("/v1/x", echo)) as listener,
        aiohttp.ClientSession() as raw,
        raw.post(f"{listener.url}/v1/x", json={}) as response,
    ):
        assert (response.status, (await response.json())["code"]) == (415, "media_type_unsupported")


async def test_one_request_too_many_is_told_429_and_the_others_are_served():
    release = asyncio.Event()
    running = asyncio.Semaphore(0)

    async def wait(body: bytes, caller: Caller) -> bytes:
        running.release()
        await release.wait()
        return b"done"

    async with serving(PeerRoute("/v1/x", wait, max_in_flight=2)) as listener, calling() as client:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(client.call(listener.url, "/v1/x", b"", timeout_s=10)) for _ in range(2)]
            await running.acquire()
            await running.acquire()
            with pytest.raises(PeerRejected) as caught:
                await client.call(listener.url, "/v1/x", b"", timeout_s=10)
            release.set()
        assert (caught.value.status, caught.value.code, caught.value.retry_after_s) == (429, "overloaded", 1.0)
        assert [task.result() for task in tasks] == [b"done"] * 2
        release.set()
        assert await client.call(listener.url, "/v1/x", b"", timeout_s=10) == b"done"


async def test_without_the_bound_handlers_pile_up():
    """Ablation of the test above."""
    running, most = 0, 0
    release = asyncio.Event()

    async def wait(body: bytes, caller: Caller) -> bytes:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 20:
            release.set()
        await release.wait()
        running -= 1
        return b""

    route = PeerRoute("/v1/x", wait, max_in_flight=1000)
    async with serving(route) as listener, calling(connections_per_peer=20) as client:
        await asyncio.gather(*(client.call(listener.url, "/v1/x", b"", timeout_s=10) for _ in range(20)))
    assert most == 20


async def test_a_taken_port_is_a_config_error_naming_it():
    async with serving() as listener:
        with pytest.raises(ConfigError, match=f"127.0.0.1:{listener.port}: cannot listen .the port is taken"):
            await listen(build_app(Metrics("test")), port=listener.port)


async def test_ready_is_told_apart_from_healthy():
    ready = False
    async with serving(ready=lambda: ready) as listener, aiohttp.ClientSession() as raw:
        async with raw.get(f"{listener.url}/readyz") as response:
            assert response.status == 503
        ready = True
        async with raw.get(f"{listener.url}/readyz") as response:
            assert response.status == 200


async def test_an_unknown_route_is_404_with_a_code():
    async with serving() as listener, calling() as client:
        with pytest.raises(PeerRejected) as caught:
            await client.call(listener.url, "/v1/nothing", b"", timeout_s=10)
    assert (caught.value.status, caught.value.code) == (404, "route_unknown")


async def test_stats_are_served_as_json():
    metrics = Metrics("agent")
    async with serving(metrics=metrics) as listener, aiohttp.ClientSession() as raw:
        async with raw.get(f"{listener.url}/v1/stats") as response:
            assert msgspec.json.decode(await response.read())["service"] == "agent"
        async with raw.get(f"{listener.url}/metrics") as response:
            assert "process_resident_memory_bytes" in await response.text()


async def test_settings_in_force_are_served_masked():
    @dataclasses.dataclass(frozen=True)
    class Settings:
        etcd: str = "http://user:hunter2@h"

    async with (
        serving(settings=Settings()) as listener,
        aiohttp.ClientSession() as raw,
        raw.get(f"{listener.url}/v1/settings") as response,
    ):
        assert await response.json() == {"etcd": "http://user:***@h"}


async def test_a_fault_in_a_guarded_handler_is_a_500_that_tells_nothing():
    async def broken() -> None:
        raise RuntimeError("password=hunter2")

    async with (
        serving(FiguresRoute("/v1/broken", broken)) as listener,
        aiohttp.ClientSession() as raw,
        raw.get(f"{listener.url}/v1/broken") as response,
    ):
        assert (response.status, await response.json()) == (500, {"code": "internal", "message": "internal error"})


@pytest.mark.parametrize(
    "path", ["/v1/settings", "/v1/pods/{name}/{pod}", "/healthz"], ids=["fixed", "other names of parts", "open"]
)
def test_no_route_is_registered_over_another(path: str) -> None:
    """``/v1/settings`` was registered twice where an app had routes of its own, and the empty one answered."""
    routes = [FiguresRoute("/v1/pods/{namespace}/{pod}", dict), FiguresRoute(path, dict)]
    with pytest.raises(ValueError, match="is registered twice"):
        build_app(Metrics("test"), routes=routes)


async def test_every_process_shows_its_settings() -> None:
    service = Service("agent", asyncio.TaskGroup(), Heartbeat(boottime))
    async with opened(service, ProcessSettings(id="a-7"), "agent") as runtime:
        await runtime.listen([FiguresRoute("/v1/own", dict)])
        async with aiohttp.ClientSession() as raw, raw.get(f"{runtime.url}/v1/settings") as response:
            assert (await response.json())["id"] == "a-7"
