"""The record of the shards: what may be in it, and that nobody changes it unseen."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from shared.errors import ConfigError, Conflict, InvalidValue
from shared.ports import Put
from shared.runtime.records.shards import change_shards, follow_shards, read_shards
from shared.scheduling.shards import Shards
from shared.wire.keys import Keys
from shared.wire.records import ShardsRecord, decode_record
from tests.memory_etcd import MemoryEtcd
from tests.memory_store import MemoryStore

KEYS = Keys()
NOW = dt.datetime(2026, 11, 23, tzinfo=dt.UTC)


def store_of(*shards: str) -> tuple[MemoryStore, int]:
    """A mesh in which a coordinator leads, and a binder of each of these shards; the coordinator's term."""
    etcd = MemoryEtcd()
    for shard in shards:
        etcd.txn([], [Put(KEYS.binder_leader(shard), b"{}")])
    return MemoryStore(etcd), etcd.txn([], [Put(KEYS.coordinator_leader, b"{}")]).revision


async def divide(store: MemoryStore, term: int | None, *names: str, unmanned: bool = False) -> Shards:
    return await change_shards(store, KEYS, names, term=term, by="anna", reason="", now=NOW, unmanned=unmanned)


async def test_without_the_record_there_is_one_shard() -> None:
    store, _ = store_of()
    assert await read_shards(store, KEYS) == Shards(("0",), 0)


async def test_a_change_is_one_put_that_counts() -> None:
    store, term = store_of("0", "1")
    changed = await divide(store, term, "1", "0")
    assert changed == await read_shards(store, KEYS)
    assert changed.names == ("0", "1")
    assert changed.revision
    again = await divide(store, term, "0", "1")
    assert again == changed, "to say again what holds changes nothing"
    await divide(store, term, "0")
    kv = await store.get(KEYS.binder_shards)
    assert kv is not None
    record = decode_record(kv.value, ShardsRecord)
    assert record is not None
    assert (record.names, record.generation) == (("0",), 2), "back to one shard is a put too"


@pytest.mark.parametrize("names", [(), ("0", "0"), ("A",), ("a/b",), ("",), ("x" * 64,), tuple(map(str, range(17)))])
async def test_names_that_cannot_be_are_refused(names: tuple[str, ...]) -> None:
    store, term = store_of("0")
    with pytest.raises(InvalidValue, match="names: "):
        await divide(store, term, *names, unmanned=True)


async def test_a_shard_without_a_binder_is_refused_unless_it_is_wanted_so() -> None:
    store, term = store_of("0")
    with pytest.raises(InvalidValue, match="--shard 1"):
        await divide(store, term, "0", "1")
    assert (await divide(store, term, "0", "1", unmanned=True)).names == ("0", "1")


async def test_a_deposed_coordinator_changes_nothing() -> None:
    store, term = store_of("0", "1")
    with pytest.raises(Conflict):
        await divide(store, term - 1, "0", "1")
    with pytest.raises(Conflict):
        await divide(store, None, "0", "1")
    assert not (await read_shards(store, KEYS)).revision


async def test_a_record_that_cannot_be_read_is_not_guessed_at() -> None:
    store, _ = store_of()
    await store.txn([], [Put(KEYS.binder_shards, b'{"names": ["0", "0"], "generation": 1}')])
    with pytest.raises(ConfigError, match="names no shards"):
        await read_shards(store, KEYS)


async def test_a_change_is_told() -> None:
    store, term = store_of("0", "1")
    seen: asyncio.Queue[Shards] = asyncio.Queue()

    async def follow() -> None:
        async for shards in follow_shards(store, KEYS):
            seen.put_nowait(shards)

    following = asyncio.create_task(follow())
    assert await seen.get() == Shards()
    changed = await divide(store, term, "0", "1")
    assert await seen.get() == changed
    following.cancel()
