"""The etcd adapter against a real etcd that dies, hangs, is cut off or loses its answers."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from shared.adapters.etcd.channel import EtcdConnection, EtcdMember, EtcdSettings
from shared.adapters.etcd.store import EtcdStore
from shared.errors import StoreRejected, StoreRolledBack, StoreUnknown
from shared.ports import CreateRevisionIs, Put, WatchBatch
from tests.faults.etcd_process import EtcdProcess
from tests.faults.tcp_proxy import TcpProxy
from tests.faults.watch_checks import check_atomic, check_ordered, check_reliable, check_unique
from tests.patience import PATIENCE_S
from tests.ports import free_port

pytestmark = [pytest.mark.etcd, pytest.mark.process]


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdProcess]:
    process = EtcdProcess(tmp_path / "etcd")
    process.start()
    yield process
    process.resume()
    process.close()


@pytest.fixture
async def store(etcd: EtcdProcess) -> AsyncIterator[EtcdStore]:
    opened = EtcdStore(EtcdSettings(endpoints=(etcd.endpoint,), ask_after_s=0.3, silent_limit_s=1.0))
    yield opened
    await opened.close()


@pytest.fixture
async def proxy(etcd: EtcdProcess) -> AsyncIterator[TcpProxy]:
    async with TcpProxy(etcd.port) as running:
        yield running


@pytest.fixture
async def proxied(proxy: TcpProxy) -> AsyncIterator[EtcdStore]:
    opened = EtcdStore(EtcdSettings(endpoints=(f"127.0.0.1:{proxy.port}",), ask_after_s=0.3, silent_limit_s=1.0))
    yield opened
    await opened.close()


@pytest.fixture
def given_up(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set when a watch, or a call, has left a member that did not answer: it is about to try again."""
    left = asyncio.Event()
    leave = EtcdConnection.leave

    def noting(connection: EtcdConnection, member: EtcdMember) -> None:
        leave(connection, member)
        left.set()

    monkeypatch.setattr(EtcdConnection, "leave", noting)
    return left


async def put_until_known(store: EtcdStore, key: str, value: bytes) -> int:
    """The revision at which ``key`` holds ``value``: an unknown outcome is read back, never blindly repeated."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                kv = await store.get(key)
                if kv is not None and kv.value == value:
                    return kv.mod_revision
                await store.txn([], [Put(key, value)])
            except StoreUnknown:
                await asyncio.sleep(0.05)


async def ends_unknown(call: Awaitable[object]) -> None:
    """By its own deadline: nothing else would end it."""
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(StoreUnknown):
            await call


class Recorder:
    """Collects a watch in the background."""

    def __init__(self, store: EtcdStore, prefix: str, start: int) -> None:
        self.batches: list[WatchBatch] = []
        self.changed = asyncio.Event()
        self.task = asyncio.create_task(self._run(store, prefix, start))

    async def _run(self, store: EtcdStore, prefix: str, start: int) -> None:
        async with aclosing(store.watch(prefix, start_revision=start)) as watch:
            async for batch in watch:
                self.batches.append(batch)
                self.changed.set()

    async def reach(self, revision: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not self.batches or self.batches[-1].revision < revision:
                self.changed.clear()
                await self.changed.wait()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    def check(self, written: dict[int, set[str]]) -> None:
        assert check_ordered(self.batches) == []
        assert check_unique(self.batches) == []
        assert check_atomic(self.batches) == []
        assert check_reliable(self.batches, written) == []


# --- etcd itself ------------------------------------------------------------------------------------------------


async def test_a_watch_loses_nothing_over_kill_and_restart(etcd, store):
    recorder = Recorder(store, "/w/", 1)
    written: dict[int, set[str]] = {}
    for number in range(60):
        if number in {20, 40}:
            await asyncio.to_thread(etcd.kill)
            restart = asyncio.create_task(asyncio.to_thread(etcd.start))
        written[await put_until_known(store, f"/w/{number}", b"%d" % number)] = {f"/w/{number}"}
    await restart
    await recorder.reach(max(written))
    await recorder.stop()
    recorder.check(written)


async def test_calls_on_a_dead_etcd_end_by_their_deadline_as_unknown(etcd, store):
    await store.get("/k")
    await asyncio.to_thread(etcd.kill)
    for call in (store.get("/k", timeout_s=0.5), store.txn([], [Put("/k", b"")], timeout_s=0.5)):
        await ends_unknown(call)


async def test_calls_on_a_paused_etcd_end_by_their_deadline_as_unknown(etcd, store):
    await store.get("/k")
    etcd.pause()
    calls = (
        store.get("/k", timeout_s=0.5),
        store.txn([], [Put("/k", b"")], timeout_s=0.5),
        store.grant_lease(3, timeout_s=0.5),
        store.keep_alive(7, timeout_s=0.5),
        store.list_prefix("/", timeout_s=0.5),
    )
    for call in calls:
        await ends_unknown(call)
    etcd.resume()
    assert await store.keep_alive(7) == 0


async def test_a_watch_goes_on_after_a_paused_etcd_resumes(etcd, store, given_up):
    recorder = Recorder(store, "/w/", 1)
    first = await put_until_known(store, "/w/1", b"1")
    await recorder.reach(first)
    given_up.clear()
    etcd.pause()
    await asyncio.wait_for(given_up.wait(), PATIENCE_S)
    etcd.resume()
    second = await put_until_known(store, "/w/2", b"2")
    await recorder.reach(second)
    await recorder.stop()
    recorder.check({first: {"/w/1"}, second: {"/w/2"}})


async def test_leases_survive_a_restart_of_etcd_that_is_shorter_than_their_ttl(etcd, store):
    grant = await store.grant_lease(60)
    await store.txn([], [Put("/k", b"", grant.lease_id)])
    await asyncio.to_thread(etcd.kill)
    await asyncio.to_thread(etcd.start)
    assert await store.keep_alive(grant.lease_id, timeout_s=PATIENCE_S) == grant.ttl_s
    assert await store.get("/k") is not None


async def test_a_store_restored_from_the_past_is_refused(etcd, tmp_path, store):
    recorder = Recorder(store, "/w/", 1)
    for number in range(5):
        last = await put_until_known(store, f"/w/{number}", b"")
    await recorder.reach(last)
    await asyncio.to_thread(etcd.kill)
    # The same address, but a data directory that knows nothing of all this.
    other = EtcdProcess(tmp_path / "other", client_port=etcd.port)
    await asyncio.to_thread(other.start)
    try:
        with pytest.raises(StoreRolledBack):
            await store.get("/w/1", timeout_s=PATIENCE_S)
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(StoreRolledBack):
                await recorder.task
    finally:
        await asyncio.to_thread(other.close)


# --- the connection ---------------------------------------------------------------------------------------------


async def test_a_write_whose_reply_is_dropped_is_unknown_and_took_effect(store, proxy, proxied):
    await proxied.get("/k")
    proxy.drop_replies = True
    with pytest.raises(StoreUnknown):
        await proxied.txn([CreateRevisionIs("/k", 0)], [Put("/k", b"once")], timeout_s=0.5)
    assert (await store.get("/k")).value == b"once"
    assert proxy.bytes_dropped > 0


async def test_a_write_that_never_arrived_is_unknown_too(store, proxy, proxied):
    await proxied.get("/k")
    proxy.blackhole(True)
    with pytest.raises(StoreUnknown):
        await proxied.txn([], [Put("/k", b"")], timeout_s=0.5)
    assert await store.get("/k") is None


@pytest.mark.parametrize(("repeats_writes", "revisions"), [(False, 1), (True, 2)])
async def test_no_write_is_repeated_by_the_adapter(store, proxy, proxied, monkeypatch, repeats_writes, revisions):
    """A connection that breaks after the request passed. Ablation: repeating writes like reads applies it twice."""
    await proxied.get("/k")
    if repeats_writes:
        unary = EtcdConnection.unary

        async def repeating(connection, method, request, doing, *, timeout_s, repeatable):
            return await unary(connection, method, request, doing, timeout_s=timeout_s, repeatable=True)

        monkeypatch.setattr(EtcdConnection, "unary", repeating)
    before = (await store.list_prefix("/k")).revision
    proxy.drop_replies = True
    writing = asyncio.create_task(proxied.txn([], [Put("/k", b"again")], timeout_s=PATIENCE_S))
    async with asyncio.timeout(PATIENCE_S):
        while await store.get("/k") is None:
            continue
    proxy.drop_replies = False
    proxy.reset()
    if repeats_writes:
        await writing
    else:
        with pytest.raises(StoreUnknown):
            await writing
    assert (await store.list_prefix("/k")).revision == before + revisions


async def test_a_watch_survives_resets(store, proxy, proxied):
    recorder = Recorder(proxied, "/w/", 1)
    written: dict[int, set[str]] = {}
    for number in range(40):
        if number % 8 == 5:
            proxy.reset()
        written[(await store.txn([], [Put(f"/w/{number}/{part}", b"") for part in "ab"])).revision] = {
            f"/w/{number}/a",
            f"/w/{number}/b",
        }
        if number % 8 == 7:
            await recorder.reach(max(written))
    await recorder.reach(max(written))
    await recorder.stop()
    recorder.check(written)


async def test_a_blackholed_watch_notices_its_silence_and_opens_another(store, proxy, proxied, given_up):
    recorder = Recorder(proxied, "/w/", 1)
    first = (await store.txn([], [Put("/w/1", b"")])).revision
    await recorder.reach(first)
    given_up.clear()
    # Answers vanish, the connection stands: without the watch's own look at its silence, nobody would ever know.
    proxy.drop_replies = True
    second = (await store.txn([], [Put("/w/2", b"")])).revision
    await asyncio.wait_for(given_up.wait(), PATIENCE_S)
    proxy.drop_replies = False
    proxy.reset()
    await recorder.reach(second)
    await recorder.stop()
    recorder.check({first: {"/w/1"}, second: {"/w/2"}})


async def test_slow_replies_are_still_answers(proxy, proxied):
    proxy.latency_s = 0.05
    assert (await proxied.txn([], [Put("/k", b"")])).succeeded
    assert (await proxied.get("/k")).value == b""


async def test_children_may_be_forked_while_calls_are_under_way(store):
    """gRPC's own fork handlers aborted 19 of 400 such children (grpcio 1.85.1) until they were switched off."""

    async def traffic() -> None:
        while True:
            await store.get("/k")

    busy = asyncio.create_task(traffic())
    done = await asyncio.gather(*(asyncio.to_thread(forked_child) for _ in range(60)))
    busy.cancel()
    await asyncio.gather(busy, return_exceptions=True)
    assert done == [(0, b"")] * 60


def forked_child() -> tuple[int, bytes]:
    # A function to run before exec is what makes Python fork instead of vfork.
    child = subprocess.run(["/bin/true"], preexec_fn=int, stderr=subprocess.PIPE, check=False)
    return child.returncode, child.stderr


# --- several endpoints ------------------------------------------------------------------------------------------


async def test_a_dead_first_endpoint_costs_one_attempt(etcd, monkeypatch):
    leave = EtcdConnection.leave
    store = EtcdStore(EtcdSettings(endpoints=(f"127.0.0.1:{free_port()}", etcd.endpoint)))
    left: list[EtcdMember] = []
    monkeypatch.setattr(EtcdConnection, "leave", lambda self, member: (left.append(member), leave(self, member)))
    assert (await store.txn([CreateRevisionIs("/k", 0)], [Put("/k", b"")])).succeeded
    assert len(left) == 1
    await store.close()


async def test_a_silent_first_endpoint_is_left_within_a_reads_deadline(etcd, proxy):
    store = EtcdStore(
        EtcdSettings(endpoints=(f"127.0.0.1:{proxy.port}", etcd.endpoint), ask_after_s=0.3, silent_limit_s=1.0)
    )
    recorder = Recorder(store, "/w/", 1)
    first = await put_until_known(store, "/w/1", b"")
    await recorder.reach(first)
    proxy.blackhole(True)
    assert await store.get("/w/1", timeout_s=PATIENCE_S) is not None
    second = await put_until_known(store, "/w/2", b"")
    await recorder.reach(second)
    await recorder.stop()
    recorder.check({first: {"/w/1"}, second: {"/w/2"}})
    await store.close()


# --- closing and renewals -----------------------------------------------------------------------------------------


async def test_a_closed_store_refuses(etcd):
    store = EtcdStore(EtcdSettings(endpoints=(etcd.endpoint,)))
    await store.get("/k")
    await store.close()
    with pytest.raises(StoreRejected):
        await store.txn([], [])


async def test_renewals_go_on_over_a_broken_stream_and_never_take_anothers_answer(proxy, proxied):
    long, short = await proxied.grant_lease(600), await proxied.grant_lease(60)
    for _ in range(3):
        assert await proxied.keep_alive(long.lease_id) == 600
        proxy.reset()
        assert await proxied.keep_alive(short.lease_id) == 60
        # An answer that comes too late for its own renewal must not be taken for the next one's.
        proxy.latency_s = 0.4
        with pytest.raises(StoreUnknown):
            await proxied.keep_alive(long.lease_id, timeout_s=0.3)
        proxy.latency_s = 0.0
        assert await asyncio.gather(proxied.keep_alive(short.lease_id), proxied.keep_alive(long.lease_id)) == [60, 600]
