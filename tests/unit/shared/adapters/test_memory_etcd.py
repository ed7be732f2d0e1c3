"""What only the store in memory has: time that a test drives, bounded history, a restart on request."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from shared.errors import StoreCompacted
from shared.ports import CreateRevisionIs, Put
from tests.memory_etcd import MemoryEtcd
from tests.memory_store import MemoryStore


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def server(clock):
    return MemoryEtcd(clock=clock)


def test_a_lease_ends_exactly_with_its_ttl(server, clock):
    grant = server.grant_lease(3)
    server.txn([], [Put("k", b"", grant.lease_id)])
    clock.now += 2.999
    assert server.get("k") is not None
    clock.now += 0.001
    assert server.get("k") is None
    assert server.keep_alive(grant.lease_id) == 0


def test_a_renewal_counts_from_when_it_arrives(server, clock):
    grant = server.grant_lease(3)
    server.txn([], [Put("k", b"", grant.lease_id)])
    for _ in range(10):
        clock.now += 2.9
        assert server.keep_alive(grant.lease_id) == 3
    assert server.get("k") is not None


def test_a_restart_gives_every_lease_its_full_ttl_again(server, clock):
    grant = server.grant_lease(3)
    server.txn([], [Put("k", b"", grant.lease_id)])
    clock.now += 2.9
    server.restart()
    clock.now += 2.9
    assert server.get("k") is not None


def test_the_shortest_ttl_is_the_servers(clock):
    server = MemoryEtcd(clock=clock, min_ttl_s=2)
    assert server.grant_lease(1).ttl_s == 2


def test_leases_that_end_together_each_have_a_revision(server, clock):
    for key in "ab":
        server.txn([], [Put(key, b"", server.grant_lease(1).lease_id)])
    before = server.revision
    clock.now += 5
    server.tick()
    assert server.revision == before + 2


def test_history_is_bounded_and_what_left_it_is_compacted(clock):
    server = MemoryEtcd(clock=clock, history_limit=10)
    for _ in range(21):
        server.txn([], [Put("k", b"")])
    with pytest.raises(StoreCompacted):
        server.read_history("", 2)
    assert server.read_history("", server.revision - 5) is not None


def test_the_next_expiry_is_known_a_little_late(server, clock):
    assert server.next_expiry_in() == float("inf")
    server.grant_lease(3)
    clock.now += 1
    assert 2.0 < server.next_expiry_in() < 2.01


async def test_a_watcher_sees_a_lease_end_when_a_driver_ticks(server, clock):
    store = MemoryStore(server)
    grant = await store.grant_lease(60)
    start = (await store.txn([], [Put("k", b"", grant.lease_id)])).revision
    async with aclosing(store.watch("k", start_revision=start + 1)) as watch:
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        clock.now += 61
        server.tick()
        (event,) = (await waiting).events
    assert event.deleted


async def test_every_call_gives_way_once():
    """Who reads, then writes without a compare, is caught in memory as by etcd: both claims begin by seeing no key."""
    store = MemoryStore()

    async def claim_without_compare(name: bytes) -> bool:
        if await store.get("k") is None:
            await store.txn([], [Put("k", name)])
            return True
        return False

    async def claim(name: bytes) -> bool:
        return (await store.txn([CreateRevisionIs("c", 0)], [Put("c", name)])).succeeded

    assert await asyncio.gather(claim_without_compare(b"1"), claim_without_compare(b"2")) == [True, True]
    assert sorted(await asyncio.gather(claim(b"1"), claim(b"2"))) == [False, True]
