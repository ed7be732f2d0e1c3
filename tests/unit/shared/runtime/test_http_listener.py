"""The listener and the peer client against each other over real sockets: limits, identities, stable codes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import structlog
import trustme
from aiohttp import web

from shared.adapters.credentials import TokenFile, client_tls, server_tls
from shared.adapters.peer_client import MEDIA_TYPE, PeerClient
from shared.errors import (
    ConfigError,
    KubeUnknown,
    PeerRejected,
    PeerUnknown,
    StoreFenced,
    StoreUnknown,
    WireError,
)
from shared.runtime.http import Authenticator, Caller, Listener, PeerRoute, Refused, build_app, guarded, listen
from shared.runtime.metrics import Metrics

TOKEN = "t" * 32


def token_file(tmp_path: Path, text: str = TOKEN) -> TokenFile:
    file = tmp_path / "token"
    file.write_text(text + "\n")
    return TokenFile(file)


async def echo(body: bytes, caller: Caller) -> bytes:
    return body + caller.role.encode()


def raises(error: Exception):
    async def handler(body: bytes, caller: Caller) -> bytes:
        raise error

    return handler


@contextlib.asynccontextmanager
async def serving(*routes: PeerRoute, metrics: Metrics | None = None, **options: Any) -> AsyncIterator[Listener]:
    tls = options.pop("tls", None)
    app = build_app(metrics or Metrics("test"), peer_routes=routes, **options)
    listener = await listen(app, tls=tls, drain_s=0.1)
    try:
        yield listener
    finally:
        await listener.close()


@contextlib.asynccontextmanager
async def calling(**options: Any) -> AsyncIterator[PeerClient]:
    client = PeerClient(**options)
    try:
        yield client
    finally:
        await client.close()


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
        (WireError("no such kind", code="wire_kind"), 400, "wire_kind"),
        (StoreFenced("term 3 is over"), 409, "store_fenced"),
        (Refused("view too old", code="view_gap"), 409, "view_gap"),
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


@pytest.mark.parametrize("header", ["", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer", f"Bearer \udce4{TOKEN}"])
async def test_without_the_token_nothing_but_health_is_answered(tmp_path: Path, header: str):
    authenticator = Authenticator(token_file(tmp_path))
    headers = {"Authorization": header, "Content-Type": MEDIA_TYPE} if header.isascii() else {}
    async with (
        serving(PeerRoute("/v1/x", echo), authenticator=authenticator) as listener,
        aiohttp.ClientSession(headers=headers) as raw,
    ):
        for method, path in (("POST", "/v1/x"), ("GET", "/metrics"), ("GET", "/v1/stats"), ("GET", "/v1/settings")):
            async with raw.request(method, listener.url + path) as response:
                assert response.status == 401
        async with raw.get(f"{listener.url}/healthz") as response:
            assert response.status == 200


async def test_a_role_may_call_only_its_routes(tmp_path: Path):
    tokens = token_file(tmp_path, f"{TOKEN} agent\n{'u' * 32} coordinator")
    route = PeerRoute("/v1/x", echo, roles=frozenset({"coordinator"}))
    async with (
        serving(route, PeerRoute("/v1/y", echo), authenticator=Authenticator(tokens)) as listener,
        calling(credentials=tokens) as client,
    ):
        assert await client.call(listener.url, "/v1/y", b"", timeout_s=10) == b"agent"
        with pytest.raises(PeerRejected) as caught:
            await client.call(listener.url, "/v1/x", b"", timeout_s=10)
    assert (caught.value.status, caught.value.code) == (403, "forbidden")


async def test_a_changed_token_file_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shared.adapters.credentials.RECHECK_S", 0.0)
    tokens = token_file(tmp_path)
    async with (
        serving(PeerRoute("/v1/x", echo), authenticator=Authenticator(tokens)) as listener,
        calling(credentials=TokenFile(tmp_path / "token")) as client,
    ):
        (tmp_path / "token").write_text("n" * 40)
        assert await client.call(listener.url, "/v1/x", b"", timeout_s=10) == b""
        assert tokens.role_of(f"Bearer {TOKEN}") is None


@pytest.mark.parametrize("damage", ["", "half", None], ids=["emptied", "half-written", "removed"])
def test_a_token_file_that_is_damaged_later_keeps_the_token_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str | None
):
    monkeypatch.setattr("shared.adapters.credentials.RECHECK_S", 0.0)
    tokens, file = token_file(tmp_path), tmp_path / "token"
    if damage is None:
        file.unlink()
    else:
        file.write_text(damage)
    assert tokens.role_of(f"Bearer {TOKEN}") == ""
    assert tokens.authorization() == f"Bearer {TOKEN}"


@pytest.mark.parametrize("damage", ["", "too-short\n"])
def test_a_token_file_that_stays_unusable_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """A token that was taken away stays good while the file is damaged: somebody must be told."""
    monkeypatch.setattr("shared.adapters.credentials.RECHECK_S", 0.0)
    tokens = token_file(tmp_path)
    (tmp_path / "token").write_text(damage)
    with structlog.testing.capture_logs() as lines:
        tokens.authorization()
        assert not lines  # perhaps somebody is writing it
        for _ in range(3):
            tokens.authorization()
    assert [line["event"] for line in lines] == ["credentials_not_followed"]
    assert TOKEN not in str(lines)


def test_a_certificate_without_its_key_is_told_once_and_the_old_pair_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.adapters.credentials.RECHECK_S", 0.0)
    identities = Identities(tmp_path)
    ours, other = identities.files("agent:a-0"), identities.files("agent:a-1")
    context = server_tls(**ours)
    ours["cert_file"].write_bytes(other["cert_file"].read_bytes())
    with structlog.testing.capture_logs() as lines:
        for _ in range(4):
            context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True)
    assert [line["event"] for line in lines] == ["credentials_not_followed"]
    assert "not usable as certificate and key" in lines[0]["error"]


def test_a_certificate_that_is_gone_is_told_once_and_the_old_pair_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.adapters.credentials.RECHECK_S", 0.0)
    ours = Identities(tmp_path).files("agent:a-0")
    context = server_tls(**ours)
    ours["key_file"].unlink()
    with structlog.testing.capture_logs() as lines:
        for _ in range(4):
            context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True)
    assert [line["event"] for line in lines] == ["credentials_not_followed"]
    assert "gone" in lines[0]["error"]


@pytest.mark.parametrize(
    ("text", "expected"), [("", "no token"), ("short", "at least 16"), ("spaß" * 8, "printable ASCII")]
)
def test_a_token_file_that_cannot_be_used_is_a_config_error(tmp_path: Path, text: str, expected: str):
    with pytest.raises(ConfigError, match=expected) as caught:
        token_file(tmp_path, text)
    assert not text or text not in str(caught.value)


class Identities:
    """A CA of our own and files of certificates with a common name each."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ca = folder, trustme.CA()
        self.ca.cert_pem.write_to_path(str(folder / "ca.pem"))

    def files(self, common_name: str, ca: trustme.CA | None = None) -> dict[str, Path]:
        issued = (ca or self.ca).issue_cert("127.0.0.1", "localhost", common_name=common_name)
        cert, key = self.folder / f"{common_name}.pem", self.folder / f"{common_name}.key"
        cert.unlink(missing_ok=True)
        for blob in issued.cert_chain_pems:
            blob.write_to_path(str(cert), append=True)
        issued.private_key_pem.write_to_path(str(key))
        return {"ca_file": self.folder / "ca.pem", "cert_file": cert, "key_file": key}


async def test_with_mutual_tls_the_certificates_name_is_the_role(tmp_path: Path):
    identities = Identities(tmp_path)
    route = PeerRoute("/v1/x", echo, roles=frozenset({"coordinator"}))
    async with (
        serving(
            route, authenticator=Authenticator(mutual_tls=True), tls=server_tls(**identities.files("agent:a-0"))
        ) as listener,
        calling(tls=client_tls(**identities.files("coordinator:c-0"))) as allowed,
        calling(tls=client_tls(**identities.files("binder:b-0"))) as other,
    ):
        assert await allowed.call(listener.url, "/v1/x", b"", timeout_s=10) == b"coordinator"
        with pytest.raises(PeerRejected) as caught:
            await other.call(listener.url, "/v1/x", b"", timeout_s=10)
    assert caught.value.code == "forbidden"


@pytest.mark.parametrize("name", ["coordinator", "coordinator:"])
async def test_a_certificate_of_an_etcd_user_has_no_role_between_services(tmp_path: Path, name: str):
    """The etcd user of the coordinator is called ``coordinator``; whose CA signs both must not open both doors."""
    identities = Identities(tmp_path)
    route = PeerRoute("/v1/x", echo, roles=frozenset({"coordinator"}))
    async with (
        serving(
            route, authenticator=Authenticator(mutual_tls=True), tls=server_tls(**identities.files("agent:a-0"))
        ) as listener,
        calling(tls=client_tls(**identities.files(name))) as client,
    ):
        with pytest.raises(PeerRejected) as caught:
            await client.call(listener.url, "/v1/x", b"", timeout_s=10)
    assert caught.value.code == "forbidden"


async def test_a_certificate_of_another_ca_gets_no_answer(tmp_path: Path):
    identities = Identities(tmp_path)
    foreign = identities.files("coordinator:evil", trustme.CA())
    async with (
        serving(
            PeerRoute("/v1/x", echo),
            authenticator=Authenticator(mutual_tls=True),
            tls=server_tls(**identities.files("agent:a-0")),
        ) as listener,
        calling(tls=client_tls(**foreign)) as client,
    ):
        with pytest.raises((PeerRejected, PeerUnknown)):
            await client.call(listener.url, "/v1/x", b"", timeout_s=10)


async def test_certificates_of_a_new_ca_are_followed_without_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shared.adapters.credentials.RECHECK_S", 0.0)
    old = Identities(tmp_path)
    server_files, client_files = old.files("agent:a-0"), old.files("coordinator:c-0")
    async with serving(
        PeerRoute("/v1/x", echo), authenticator=Authenticator(mutual_tls=True), tls=server_tls(**server_files)
    ) as listener:
        tls = client_tls(**client_files)
        async with calling(tls=tls) as before:
            assert await before.call(listener.url, "/v1/x", b"", timeout_s=10) == b"coordinator"
        new = trustme.CA()
        (tmp_path / "ca.pem").unlink()
        new.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        old.files("agent:a-0", new)
        old.files("coordinator:c-0", new)
        async with calling(tls=tls) as after, calling(tls=client_tls(**client_files)) as fresh:
            assert await after.call(listener.url, "/v1/x", b"", timeout_s=10) == b"coordinator"
            assert await fresh.call(listener.url, "/v1/x", b"", timeout_s=10) == b"coordinator"


async def test_a_certificate_without_its_key_yet_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shared.adapters.credentials.RECHECK_S", 0.0)
    identities = Identities(tmp_path)
    server_files, client_files = identities.files("agent:a-0"), identities.files("coordinator:c-0")
    async with serving(
        PeerRoute("/v1/x", echo), authenticator=Authenticator(mutual_tls=True), tls=server_tls(**server_files)
    ) as listener:
        server_files["key_file"].write_bytes(client_files["key_file"].read_bytes())
        async with calling(tls=client_tls(**client_files)) as client:
            assert await client.call(listener.url, "/v1/x", b"", timeout_s=10) == b"coordinator"


def test_a_key_that_does_not_match_is_a_config_error(tmp_path: Path):
    identities = Identities(tmp_path)
    files = identities.files("a") | {"key_file": identities.files("b")["key_file"]}
    with pytest.raises(ConfigError, match="matching PEM pair"):
        client_tls(**files)


async def test_beyond_loopback_an_open_listener_is_refused():
    with pytest.raises(ConfigError, match="without a token file or mutual TLS"):
        await listen(build_app(Metrics("test")), host="0.0.0.0")


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
    async def broken(request: web.Request) -> web.StreamResponse:
        raise RuntimeError("password=hunter2")

    route = web.get("/v1/broken", guarded(Authenticator(), broken))
    async with (
        serving(extra=[route]) as listener,
        aiohttp.ClientSession() as raw,
        raw.get(f"{listener.url}/v1/broken") as response,
    ):
        assert (response.status, await response.json()) == (500, {"code": "internal", "message": "internal error"})
