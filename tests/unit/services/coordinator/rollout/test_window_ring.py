"""Windows of policies are kept for people: numbered, bounded, for the next leader too, written by a leader alone."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from services.coordinator.rollout import window_ring
from services.coordinator.rollout.window_ring import WindowRing
from shared.errors import StoreFenced, StoreUnknown
from shared.ports import Put
from shared.runtime.records.policies import KEPT_WINDOWS, read_windows
from shared.wire.keys import Keys
from shared.wire.records import PolicyWindow
from tests.memory_store import MemoryStore

KEYS = Keys()
NOON = dt.datetime(2026, 11, 22, 12, tzinfo=dt.UTC)


def window(name: str = "kube-default@1") -> PolicyWindow:
    return PolicyWindow(number=0, time="", active=name)


@pytest.fixture
async def store():
    opened = MemoryStore()
    yield opened
    await opened.close()


async def lead(store: MemoryStore) -> int:
    result = await store.txn([], [Put(KEYS.coordinator_leader, b"{}")])
    kv = await store.get(KEYS.coordinator_leader)
    assert kv is not None
    assert result.succeeded
    return kv.create_revision


async def written(store: MemoryStore, count: int, *, up_to: int = 0) -> list[PolicyWindow]:
    while True:
        found = await read_windows(store, KEYS)
        if len(found) >= count and found[-1].number >= up_to:
            return found
        await asyncio.sleep(0)


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(window_ring, "WRITE_EVERY_S", 0.0)


@pytest.mark.usefixtures("at_once")
async def test_a_successor_shows_what_earlier_leaders_kept_and_numbers_on(store):
    term = await lead(store)
    for first in (1, 4):
        ring = WindowRing(store, KEYS, term, wall=lambda: NOON)
        for _ in range(2):
            ring.keep(window())  # before what there is has been read
        running = asyncio.create_task(ring.run())
        await written(store, first + 1)
        ring.keep(window("frag@1"))
        found = await written(store, first + 2)
        running.cancel()
        assert [one.number for one in found] == list(range(1, first + 3))
        assert list(ring.kept) == found
        assert {one.time for one in found} == {"2026-11-22T12:00:00.000Z"}


@pytest.mark.usefixtures("at_once")
async def test_etcd_holds_no_more_than_the_ring(store):
    ring = WindowRing(store, KEYS, await lead(store))
    for _ in range(KEPT_WINDOWS):
        ring.keep(window())
    running = asyncio.create_task(ring.run())
    await written(store, KEPT_WINDOWS)
    for _ in range(30):
        ring.keep(window())
    await written(store, KEPT_WINDOWS, up_to=KEPT_WINDOWS + 30)
    running.cancel()
    assert len((await store.list_prefix(KEYS.policy_windows_prefix)).items) == KEPT_WINDOWS == len(ring.kept)
    assert ring.kept[0].number == 31


async def test_windows_of_a_moment_are_one_write(store, monkeypatch):
    ring, calls = WindowRing(store, KEYS, await lead(store)), []
    txn = store.txn

    async def counted(compares, ops, **options):
        calls.append(len(ops))
        return await txn(compares, ops, **options)

    monkeypatch.setattr(store, "txn", counted)
    for _ in range(20):
        ring.keep(window())
    running = asyncio.create_task(ring.run())
    await written(store, 20)
    ring.keep(window())  # comes with the next write, some seconds later
    await asyncio.sleep(0)
    running.cancel()
    assert calls == [20]


async def test_a_deposed_leader_writes_no_window(store):
    ring = WindowRing(store, KEYS, await lead(store) + 1)
    ring.keep(window())
    with pytest.raises(StoreFenced):
        await ring.run()
    assert await read_windows(store, KEYS) == []


@pytest.mark.usefixtures("at_once")
async def test_windows_that_etcd_does_not_take_are_shown_all_the_same(store, monkeypatch):
    ring, txn, lost = WindowRing(store, KEYS, await lead(store)), store.txn, asyncio.Event()

    async def unknown_once(compares, ops, **options):
        if not lost.is_set():
            lost.set()
            raise StoreUnknown("no answer in time")
        return await txn(compares, ops, **options)

    monkeypatch.setattr(store, "txn", unknown_once)
    ring.keep(window())
    running = asyncio.create_task(ring.run())
    await lost.wait()
    ring.keep(window())
    found = await written(store, 1)
    running.cancel()
    assert [one.number for one in found] == [2]
    assert [one.number for one in ring.kept] == [1, 2]
