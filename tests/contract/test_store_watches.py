"""The Store contract for watches: the six promises, compaction, closing. Run on memory and on a real etcd alike."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from shared.errors import StoreCompacted, StoreError, StoreRejected
from shared.ports import DeleteKey, Store, WatchBatch
from tests.contract.store_world import PATIENCE_S, World, collect, events_of, put, reached, write_history
from tests.faults.watch_checks import (
    check_atomic,
    check_bookmarkable,
    check_ordered,
    check_reliable,
    check_resumable,
    check_unique,
)


async def watched_history(store: Store, world: World) -> tuple[list[WatchBatch], dict[int, set[str]]]:
    """Half of the history is read back, half arrives live."""
    start = (await store.list_prefix(world.prefix)).revision + 1
    written = await write_history(store, world, 30)
    other = world.open()

    async def write_more() -> dict[int, set[str]]:
        return await write_history(other, world, 30)

    writer = asyncio.create_task(write_more())
    batches: list[WatchBatch] = []
    async with asyncio.timeout(PATIENCE_S), aclosing(store.watch(world.prefix, start_revision=start)) as watch:
        async for batch in watch:
            batches.append(batch)
            if writer.done() and batch.revision >= max(writer.result()):
                break
    return batches, written | await writer


async def test_a_watch_is_ordered(store, world):
    batches, _ = await watched_history(store, world)
    assert check_ordered(batches) == []


async def test_a_watch_is_unique(store, world):
    batches, _ = await watched_history(store, world)
    assert check_unique(batches) == []


async def test_a_watch_is_atomic(store, world):
    batches, _ = await watched_history(store, world)
    assert check_atomic(batches) == []


async def test_a_watch_is_reliable(store, world):
    batches, written = await watched_history(store, world)
    assert check_reliable(batches, written) == []


async def test_a_watch_is_resumable_at_every_revision(store, world):
    start = (await store.list_prefix(world.prefix)).revision + 1
    written = await write_history(store, world, 12)
    last = max(written)
    for cut in sorted(written)[:-1]:
        first = await collect(store, world.prefix, start, reached(cut))
        second = (
            []
            if first[-1].revision >= last
            else await collect(store, world.prefix, first[-1].revision + 1, reached(last))
        )
        assert check_resumable(first, second, written) == []


async def test_a_watch_is_bookmarkable(store, world):
    start = (await store.list_prefix(world.prefix)).revision + 1
    written = await write_history(store, world, 8)
    # Elsewhere: only a bookmark can carry the watch beyond these.
    for number in range(5):
        elsewhere = await put(store, f"/elsewhere{world.prefix}{number}")
    batches = await collect(store, world.prefix, start, reached(elsewhere))
    assert batches[-1].events == ()
    assert check_bookmarkable(batches, written) == []
    later = await put(store, world.key("later"))
    (event,) = events_of(await collect(store, world.prefix, batches[-1].revision + 1, reached(later)))
    assert event.kv.key == world.key("later")


async def test_a_quiet_watch_gives_signs_of_life(store, world):
    start = (await store.list_prefix(world.prefix)).revision + 1
    batches = await collect(store, world.prefix, start, lambda seen: len(seen) >= 2)
    assert events_of(batches) == []


async def test_a_delete_carries_its_key_and_revision(store, world):
    start = await put(store, world.key("k"), b"value")
    deleted = (await store.txn([], [DeleteKey(world.key("k"))])).revision
    put_event, delete_event = events_of(await collect(store, world.prefix, start, reached(deleted)))
    assert not put_event.deleted
    assert (delete_event.deleted, delete_event.kv.key, delete_event.kv.value, delete_event.kv.mod_revision) == (
        True, world.key("k"), b"", deleted,
    )  # fmt: skip


async def test_a_watch_from_the_future_delivers_only_from_there(store, world):
    now = (await store.list_prefix(world.prefix)).revision
    watching = asyncio.create_task(collect(store, world.prefix, now + 1, lambda seen: bool(events_of(seen))))
    await put(store, world.key("k"))
    assert [event.kv.mod_revision for event in events_of(await watching)] == [now + 1]


async def test_many_watches_see_the_same(store, world):
    start = (await store.list_prefix(world.prefix)).revision + 1
    written = await write_history(store, world, 10)
    seen = await asyncio.gather(*(collect(store, world.prefix, start, reached(max(written))) for _ in range(8)))
    for batches in seen:
        assert check_reliable(batches, written) == []


async def test_a_slow_reader_loses_nothing(store, world):
    start = (await store.list_prefix(world.prefix)).revision + 1
    batches: list[WatchBatch] = []
    async with asyncio.timeout(PATIENCE_S), aclosing(store.watch(world.prefix, start_revision=start)) as watch:
        written = await write_history(store, world, 1)
        batches.append(await anext(watch))
        written |= await write_history(store, world, 60)
        async for batch in watch:
            batches.append(batch)
            if batch.revision >= max(written):
                break
    assert check_reliable(batches, written) == []


async def test_a_watch_from_compacted_history_says_so(store, world):
    start = await put(store, world.key("k"), b"1")
    for _ in range(5):
        last = await put(store, world.key("k"), b"2")
    await store.compact(last)
    with pytest.raises(StoreCompacted) as caught:
        await collect(store, world.prefix, start, lambda seen: bool(events_of(seen)))
    assert caught.value.compact_revision == last


async def test_a_watch_from_the_compacted_revision_itself_still_works(store, world):
    await put(store, world.key("k"), b"1")
    last = await put(store, world.key("k"), b"2")
    await store.compact(last)
    (event,) = events_of(await collect(store, world.prefix, last, reached(last)))
    assert event.kv.value == b"2"


async def test_compacting_the_past_or_the_future_is_refused(store, world):
    last = await put(store, world.key("k"))
    await store.compact(last)
    with pytest.raises(StoreRejected):
        await store.compact(last)
    with pytest.raises(StoreRejected):
        await store.compact(last + 1000)


async def test_listing_is_untouched_by_compaction(store, world):
    for number in range(9):
        last = await put(store, world.key(f"{number}"))
    await store.compact(last)
    assert len((await store.list_prefix(world.prefix)).items) == 9


async def test_closing_the_store_ends_its_watches_and_refuses_calls(world):
    store = world.make()
    start = (await store.list_prefix(world.prefix)).revision + 1

    async def read_on() -> None:
        async for batch in store.watch(world.prefix, start_revision=start):
            assert batch.events == ()

    reading = asyncio.create_task(read_on())
    await asyncio.sleep(0.05)
    async with asyncio.timeout(PATIENCE_S):
        await store.close()
        await reading
    with pytest.raises(StoreError):
        await store.get(world.key("k"))


async def test_a_cancelled_watch_leaves_the_store_usable(store, world):
    start = (await store.list_prefix(world.prefix)).revision + 1
    watching = asyncio.create_task(collect(store, world.prefix, start, lambda seen: bool(events_of(seen))))
    await asyncio.sleep(0.05)
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
    assert await put(store, world.key("k")) >= start
