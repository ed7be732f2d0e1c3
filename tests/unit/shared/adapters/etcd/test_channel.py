"""What an error of gRPC means, which answers are too old to believe, and which endpoints can be meant."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import grpc
import grpc.aio
import pytest

from shared.adapters.etcd.channel import (
    EtcdConnection,
    EtcdMember,
    EtcdSettings,
    EtcdTls,
    RollbackGuard,
    explain,
    split_endpoint,
)
from shared.adapters.etcd.watch import range_end, range_start
from shared.errors import ConfigError, StoreRejected, StoreRolledBack, StoreUnknown

CODE = grpc.StatusCode


def rpc_error(code, details=""):
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)


@pytest.mark.parametrize(
    ("code", "details"),
    [
        (CODE.INVALID_ARGUMENT, "etcdserver: too many operations in txn request"),
        (CODE.NOT_FOUND, "etcdserver: requested lease not found"),
        (CODE.OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted"),
        (CODE.PERMISSION_DENIED, "etcdserver: permission denied"),
        (CODE.UNAUTHENTICATED, "etcdserver: invalid auth token"),
        (CODE.FAILED_PRECONDITION, "etcdserver: lease already exists"),
        (CODE.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded"),
        (CODE.RESOURCE_EXHAUSTED, "grpc: received message larger than max (2097183 vs. 2097152)"),
    ],
)
def test_what_etcd_refuses_is_rejected(code, details):
    assert isinstance(explain(rpc_error(code, details), "x"), StoreRejected)


@pytest.mark.parametrize(
    ("code", "details"),
    [
        (CODE.UNAVAILABLE, "etcdserver: request timed out"),
        (CODE.UNAVAILABLE, "etcdserver: leader changed"),
        (CODE.UNAVAILABLE, "failed to connect to all addresses"),
        (CODE.DEADLINE_EXCEEDED, ""),
        (CODE.CANCELLED, ""),
        (CODE.INTERNAL, "stream reset"),
        (CODE.UNKNOWN, ""),
        (CODE.ABORTED, ""),
        (CODE.DATA_LOSS, ""),
        # Our own limit on an answer: the request had been carried out.
        (CODE.RESOURCE_EXHAUSTED, "CLIENT: Received message larger than max"),
    ],
)
def test_all_else_is_unknown(code, details):
    assert isinstance(explain(rpc_error(code, details), "x"), StoreUnknown)


def test_every_code_of_grpc_has_a_meaning():
    for code in CODE:
        assert isinstance(explain(rpc_error(code), "x"), StoreRejected | StoreUnknown)


def test_details_of_an_error_are_cut():
    assert len(str(explain(rpc_error(CODE.UNKNOWN, "x" * 10_000), "y"))) < 400


def header(cluster_id, revision):
    return SimpleNamespace(cluster_id=cluster_id, revision=revision)


def test_an_answer_older_than_what_was_seen_before_asking_is_refused():
    guard = RollbackGuard()
    guard.check(header(1, 10), floor=0)
    with pytest.raises(StoreRolledBack, match="from 10 to 9"):
        guard.check(header(1, 9), floor=guard.revision)


def test_an_answer_overtaken_by_another_is_no_rollback():
    guard = RollbackGuard()
    asked_at = guard.revision
    guard.check(header(1, 10), floor=asked_at)
    guard.check(header(1, 9), floor=asked_at)
    assert guard.revision == 10


def test_an_answer_of_another_cluster_is_refused():
    guard = RollbackGuard()
    guard.check(header(1, 10), floor=0)
    with pytest.raises(StoreRolledBack, match="cluster"):
        guard.check(header(2, 99), floor=0)


@pytest.mark.parametrize(("others", "over"), [(1, False), (2, True)])
async def test_a_history_is_over_for_a_majority_of_members_alone(monkeypatch, others, over):
    async def ready(*_, **__):
        return True

    async def attempt(member, left_s):
        if member in connection.members[:others]:
            raise StoreRolledBack("of another cluster")
        return member

    monkeypatch.setattr(EtcdMember, "ready", ready)
    connection = EtcdConnection(EtcdSettings(endpoints=("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")))
    keeping = asyncio.ensure_future(connection.keep_history())
    for _ in connection.members:
        assert await connection.run(attempt, "get", timeout_s=60, repeatable=True) in connection.members[others:]
        connection.leave(connection.current)
    if over:
        with pytest.raises(StoreRolledBack):
            await keeping
    assert keeping.done() == over
    keeping.cancel()
    await connection.close()


@pytest.mark.parametrize(
    ("endpoint", "parts"),
    [
        ("127.0.0.1:2379", ("http", "127.0.0.1:2379")),
        ("http://etcd:2379/", ("http", "etcd:2379")),
        ("https://etcd.local:2379", ("https", "etcd.local:2379")),
        ("http://[::1]:2379", ("http", "[::1]:2379")),
    ],
)
def test_endpoints_that_can_be_meant(endpoint, parts):
    assert split_endpoint(endpoint) == parts


@pytest.mark.parametrize(
    "endpoint",
    ["", "etcd", "http://etcd", "ftp://etcd:1", "http://:2379", "etcd:port", "http://etcd:99999", "http://etcd:1/v3"],
)
def test_endpoints_that_cannot_are_named(endpoint):
    with pytest.raises(ConfigError, match="etcd endpoint"):
        EtcdSettings(endpoints=(endpoint,))


def test_https_without_a_ca_and_no_endpoint_at_all_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="CA"):
        EtcdSettings(endpoints=("https://etcd:2379",))
    with pytest.raises(ConfigError, match="none given"):
        EtcdSettings(endpoints=())
    EtcdSettings(endpoints=("https://etcd:2379",), tls=EtcdTls(ca_file=tmp_path))


@pytest.mark.parametrize("name", ["grpc_proxy", "http_proxy", "https_proxy"])
async def test_no_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch, name: str):
    """What lies in etcd is nobody else's; and behind a proxy that does not know our loopback nothing would start."""
    for other in ("no_grpc_proxy", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(other, raising=False)
    came: asyncio.Queue[str] = asyncio.Queue()

    async def listening(who: str) -> asyncio.Server:
        async def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            came.put_nowait(who)
            writer.close()

        return await asyncio.start_server(take, "127.0.0.1", 0)

    async with await listening("etcd") as etcd, await listening("proxy") as proxy:
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
        member = EtcdMember(f"http://127.0.0.1:{etcd.sockets[0].getsockname()[1]}", None)
        asking = asyncio.ensure_future(member.ready(asyncio.get_running_loop().time() + 5.0, patient=False))
        assert await came.get() == "etcd"
        await asking
        await member.close()


def test_a_prefix_range_ends_behind_its_last_key():
    assert (range_start("/a/"), range_end("/a/")) == (b"/a/", b"/a0")
    assert (range_start(""), range_end("")) == (b"\0", b"\0")
    assert (
        range_end("a\N{LATIN SMALL LETTER Y WITH DIAERESIS}") > "a\N{LATIN SMALL LETTER Y WITH DIAERESIS}zzz".encode()
    )
