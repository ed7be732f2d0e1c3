"""Who may call a listener: tokens, certificates, roles, and files of them that change or are damaged while it runs."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import aiohttp
import pytest
import structlog

from shared.adapters.peers import credentials
from shared.adapters.peers.client import MEDIA_TYPE
from shared.adapters.peers.credentials import TokenFile, client_tls, server_tls
from shared.errors import ConfigError, PeerRejected, PeerUnknown
from shared.runtime.http.callers import Authenticator
from shared.runtime.http.listener import listen
from shared.runtime.http.peers import FiguresRoute, PeerRoute, build_app
from shared.runtime.observe.metrics import Metrics
from tests.certificates import TestCa
from tests.unit.shared.runtime.http.listeners import TOKEN, Identities, calling, echo, serving, token_file


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
    monkeypatch.setattr("shared.adapters.peers.credentials.RECHECK_S", 0.0)
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
    monkeypatch.setattr("shared.adapters.peers.credentials.RECHECK_S", 0.0)
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
    monkeypatch.setattr("shared.adapters.peers.credentials.RECHECK_S", 0.0)
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
    monkeypatch.setattr("shared.adapters.peers.credentials.RECHECK_S", 0.0)
    identities = Identities(tmp_path)
    ours, other = identities.files("agent:a-0"), identities.files("agent:a-1")
    context = server_tls(**ours)
    ours["cert_file"].write_bytes(other["cert_file"].read_bytes())
    with structlog.testing.capture_logs() as lines:
        for _ in range(4):
            context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True)
    assert [line["event"] for line in lines] == ["credentials_not_followed"]
    assert "not usable as certificate and key" in lines[0]["error"]


def test_certificates_that_are_gone_are_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.adapters.peers.credentials.RECHECK_S", 0.0)
    files = Identities(tmp_path).files("agent:a-0")
    context = server_tls(**files)
    files["key_file"].unlink()
    with structlog.testing.capture_logs() as lines:
        for _ in range(3):
            context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True)
    assert [line["event"] for line in lines] == ["credentials_not_followed"]
    assert str(files["key_file"]) in lines[0]["error"]


async def test_a_certificate_that_is_renamed_while_it_is_read_ends_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``ConfigError`` out of a connection attempt would end a leader, with the exit code that no restart follows."""
    monkeypatch.setattr("shared.adapters.peers.credentials.RECHECK_S", 0.0)
    identities = Identities(tmp_path)
    ours, other = identities.files("agent:a-0"), identities.files("agent:a-1")
    client, load = client_tls(**identities.files("coordinator:c-0")), credentials._load
    server = server_tls(**ours)

    def renamed_meanwhile(context: ssl.SSLContext, *files: Path) -> None:
        load(context, *files)
        ours["cert_file"].write_bytes(other["cert_file"].read_bytes())

    monkeypatch.setattr(credentials, "_load", renamed_meanwhile)
    os.utime(ours["ca_file"])
    server.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True)
    monkeypatch.setattr(credentials, "_load", load)
    ours["key_file"].write_bytes(other["key_file"].read_bytes())
    route = PeerRoute("/v1/x", echo)
    async with (
        serving(route, authenticator=Authenticator(mutual_tls=True), tls=server) as listener,
        calling(tls=client) as caller,
    ):
        assert await caller.call(listener.url, "/v1/x", b"hello", timeout_s=5.0)


@pytest.mark.parametrize(
    ("text", "expected"), [("", "no token"), ("short", "at least 16"), ("spaß" * 8, "printable ASCII")]
)
def test_a_token_file_that_cannot_be_used_is_a_config_error(tmp_path: Path, text: str, expected: str):
    with pytest.raises(ConfigError, match=expected) as caught:
        token_file(tmp_path, text)
    assert not text or text not in str(caught.value)


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


async def test_who_only_sends_reads_nothing(tmp_path: Path):
    """A sensor is on every node; what it may call is the route that names its role."""
    tokens = token_file(tmp_path, f"{TOKEN} sensor\n{'u' * 32} metrics")
    route = PeerRoute("/v1/x", echo, roles=frozenset({"sensor"}))
    figures = FiguresRoute("/v1/status", dict)
    async with (
        serving(route, figures, authenticator=Authenticator(tokens)) as listener,
        calling(credentials=tokens) as client,
        aiohttp.ClientSession() as raw,
    ):
        assert await client.call(listener.url, "/v1/x", b"", timeout_s=10) == b"sensor"
        for path in ("/metrics", "/v1/stats", "/v1/settings", "/v1/status"):
            for token, expected in ((TOKEN, 403), ("u" * 32, 200)):
                async with raw.get(listener.url + path, headers={"Authorization": f"Bearer {token}"}) as response:
                    assert response.status == expected, path


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
    foreign = identities.files("coordinator:evil", TestCa())
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
    monkeypatch.setattr("shared.adapters.peers.credentials.RECHECK_S", 0.0)
    old = Identities(tmp_path)
    server_files, client_files = old.files("agent:a-0"), old.files("coordinator:c-0")
    async with serving(
        PeerRoute("/v1/x", echo), authenticator=Authenticator(mutual_tls=True), tls=server_tls(**server_files)
    ) as listener:
        tls = client_tls(**client_files)
        async with calling(tls=tls) as before:
            assert await before.call(listener.url, "/v1/x", b"", timeout_s=10) == b"coordinator"
        new = TestCa()
        (tmp_path / "ca.pem").unlink()
        new.write(tmp_path / "ca.pem")
        old.files("agent:a-0", new)
        old.files("coordinator:c-0", new)
        async with calling(tls=tls) as after, calling(tls=client_tls(**client_files)) as fresh:
            assert await after.call(listener.url, "/v1/x", b"", timeout_s=10) == b"coordinator"
            assert await fresh.call(listener.url, "/v1/x", b"", timeout_s=10) == b"coordinator"


async def test_a_certificate_without_its_key_yet_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shared.adapters.peers.credentials.RECHECK_S", 0.0)
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
