"""The Store contract: one file, run on memory and on a real etcd alike."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import pytest

from shared.adapters.etcd_channel import EtcdSettings
from shared.adapters.etcd_store import EtcdStore
from shared.adapters.memory_etcd import MemoryEtcd
from shared.adapters.memory_store import MemoryStore
from shared.errors import StoreCompacted, StoreError, StoreRejected
from shared.ports import (
    MAX_TXN_OPS,
    CreateRevisionIs,
    Delete,
    ModRevisionIs,
    Put,
    Store,
    StoreEvent,
    WatchBatch,
)
from tests.faults.etcd_process import EtcdProcess
from tests.faults.watch_checks import (
    check_atomic,
    check_bookmarkable,
    check_ordered,
    check_reliable,
    check_resumable,
    check_unique,
)

_numbers = itertools.count()
PATIENCE_S = 10.0


@pytest.fixture(scope="module")
def etcd_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcess]:
    process = EtcdProcess(tmp_path_factory.mktemp("etcd"))
    process.start()
    yield process
    process.close()


@dataclass
class World:
    """One server; ``open`` gives a further client, ``prefix`` is this test's own."""

    make: Callable[[], Store]
    prefix: str
    stores: list[Store] = field(default_factory=list)

    def open(self) -> Store:
        self.stores.append(self.make())
        return self.stores[-1]

    def key(self, name: str) -> str:
        return f"{self.prefix}{name}"


@pytest.fixture(params=["memory", pytest.param("etcd", marks=pytest.mark.etcd)])
async def world(request: pytest.FixtureRequest):
    prefix = f"/contract/{next(_numbers)}/"
    if request.param == "memory":
        server = MemoryEtcd()
        found = World(lambda: MemoryStore(server, progress_every_s=0.2), prefix)
    else:
        endpoint = request.getfixturevalue("etcd_process").endpoint
        # A small page, so that listings of a few keys are paged too.
        found = World(lambda: EtcdStore(EtcdSettings(endpoints=(endpoint,), page_size=7)), prefix)
    yield found
    for store in found.stores:
        await store.close()


@pytest.fixture
def store(world: World) -> Store:
    return world.open()


async def put(store: Store, key: str, value: bytes = b"", lease_id: int = 0) -> int:
    return (await store.txn([], [Put(key, value, lease_id)])).revision


async def collect(
    store: Store, prefix: str, start: int, enough: Callable[[list[WatchBatch]], bool]
) -> list[WatchBatch]:
    batches: list[WatchBatch] = []
    async with asyncio.timeout(PATIENCE_S), aclosing(store.watch(prefix, start_revision=start)) as watch:
        async for batch in watch:
            batches.append(batch)
            if enough(batches):
                return batches
    raise AssertionError("the watch ended")


def reached(revision: int) -> Callable[[list[WatchBatch]], bool]:
    return lambda batches: batches[-1].revision >= revision


def events_of(batches: Sequence[WatchBatch]) -> list[StoreEvent]:
    return [event for batch in batches for event in batch.events]


async def write_history(store: Store, world: World, count: int) -> dict[int, set[str]]:
    """``count`` transactions of three keys each, every fourth one with a delete."""
    written: dict[int, set[str]] = {}
    for number in range(count):
        keys = [world.key(f"{number % 5}/{part}") for part in "abc"]
        ops = [Put(key, b"%d" % number) for key in keys]
        if number % 4 == 3:
            ops[2] = Delete(keys[2])
            existed = await store.get(keys[2]) is not None
            keys = keys if existed else keys[:2]
        result = await store.txn([], ops)
        written[result.revision] = set(keys)
    return written


# --- keys and transactions --------------------------------------------------------------------------------------


async def test_an_absent_key_is_none(store, world):
    assert await store.get(world.key("absent")) is None


async def test_an_update_keeps_create_revision_and_moves_mod_revision(store, world):
    first = await put(store, world.key("k"), b"1")
    second = await put(store, world.key("k"), b"2")
    kv = await store.get(world.key("k"))
    assert (kv.value, kv.create_revision, kv.mod_revision, kv.lease_id) == (b"2", first, second, 0)
    assert second == first + 1


async def test_a_key_made_again_has_a_greater_create_revision(store, world):
    first = await put(store, world.key("k"))
    await store.txn([], [Delete(world.key("k"))])
    again = await put(store, world.key("k"))
    assert (await store.get(world.key("k"))).create_revision == again > first


async def test_all_operations_of_a_transaction_share_one_revision(store, world):
    result = await store.txn([], [Put(world.key(name), b"") for name in "abc"])
    listing = await store.list_prefix(world.prefix)
    assert {kv.mod_revision for kv in listing.items} == {result.revision}


async def test_create_only_once(store, world):
    claim = [CreateRevisionIs(world.key("leader"), 0)]
    first = await store.txn(claim, [Put(world.key("leader"), b"one")])
    second = await store.txn(claim, [Put(world.key("leader"), b"two")])
    assert (first.succeeded, second.succeeded) == (True, False)
    assert (await store.get(world.key("leader"))).value == b"one"


async def test_stale_term_transaction_is_refused_whole(store, world):
    term = await put(store, world.key("leader"))
    await store.txn([], [Delete(world.key("leader"))])
    await put(store, world.key("leader"))
    result = await store.txn([CreateRevisionIs(world.key("leader"), term)], [Put(world.key("x"), b"")])
    assert not result.succeeded
    assert await store.get(world.key("x")) is None


async def test_mod_revision_compare_is_a_compare_and_swap(store, world):
    seen = await put(store, world.key("k"), b"1")
    assert (await store.txn([ModRevisionIs(world.key("k"), seen)], [Put(world.key("k"), b"2")])).succeeded
    assert not (await store.txn([ModRevisionIs(world.key("k"), seen)], [Put(world.key("k"), b"3")])).succeeded
    assert (await store.txn([ModRevisionIs(world.key("absent"), 0)], [])).succeeded


async def test_one_failed_compare_of_many_writes_nothing(store, world):
    seen = await put(store, world.key("a"))
    compares = [ModRevisionIs(world.key("a"), seen), CreateRevisionIs(world.key("a"), 0)]
    before = (await store.list_prefix(world.prefix)).revision
    assert await store.txn(compares, [Put(world.key("b"), b"")]) == await store.txn(compares, [])
    assert (await store.list_prefix(world.prefix)).revision == before


async def test_a_transaction_that_changes_nothing_makes_no_revision(store, world):
    before = (await store.list_prefix(world.prefix)).revision
    assert (await store.txn([], [])).revision == before
    assert (await store.txn([], [Delete(world.key("absent"))])).revision == before


async def test_exactly_the_limit_of_operations_is_accepted(store, world):
    compares = [CreateRevisionIs(world.key(f"{n}"), 0) for n in range(MAX_TXN_OPS)]
    puts = [Put(world.key(f"{n}"), b"") for n in range(MAX_TXN_OPS)]
    assert (await store.txn(compares, puts)).succeeded


@pytest.mark.parametrize("kind", ["compares", "operations"])
async def test_more_than_the_limit_is_refused(store, world, kind):
    compares = [CreateRevisionIs(world.key(f"{n}"), 0) for n in range(MAX_TXN_OPS + 1)]
    puts = [Put(world.key(f"{n}"), b"") for n in range(MAX_TXN_OPS + 1)]
    with pytest.raises(StoreRejected):
        await store.txn(compares if kind == "compares" else [], puts if kind == "operations" else [])
    assert (await store.list_prefix(world.prefix)).items == ()


async def test_the_same_key_twice_in_one_transaction_is_refused(store, world):
    with pytest.raises(StoreRejected):
        await store.txn([], [Put(world.key("k"), b"1"), Put(world.key("k"), b"2")])
    with pytest.raises(StoreRejected):
        await store.txn([], [Put(world.key("k"), b"1"), Delete(world.key("k"))])
    assert await store.get(world.key("k")) is None


async def test_an_oversize_value_is_refused(store, world):
    with pytest.raises(StoreRejected):
        await store.txn([], [Put(world.key("k"), b"x" * (2 << 20))])
    assert await store.get(world.key("k")) is None


async def test_a_key_that_is_not_ascii_comes_back_the_same(store, world):
    await put(store, world.key("nœud/\N{SNOWMAN}"), b"\x00\xff")
    (kv,) = (await store.list_prefix(world.prefix)).items
    assert (kv.key, kv.value) == (world.key("nœud/\N{SNOWMAN}"), b"\x00\xff")


# --- listings -----------------------------------------------------------------------------------------------------


async def test_a_listing_is_ordered_complete_and_only_of_the_prefix(store, world):
    for number in range(20):
        await put(store, world.key(f"in/{number:02}"))
    await put(store, world.key("in0"))
    await put(store, world.key("im"))
    listing = await store.list_prefix(world.key("in/"))
    assert [kv.key for kv in listing.items] == [world.key(f"in/{number:02}") for number in range(20)]


async def test_a_listing_is_of_one_revision_while_others_write(store, world):
    other = world.open()
    keys = [world.key(f"{number:02}") for number in range(30)]

    async def write_all() -> None:
        for number in range(40):
            await other.txn([], [Put(key, b"%d" % number) for key in keys])

    writer = asyncio.create_task(write_all())
    while not writer.done():
        listing = await store.list_prefix(world.prefix)
        assert len({kv.value for kv in listing.items}) <= 1
        assert all(kv.mod_revision <= listing.revision for kv in listing.items)
    await writer


async def test_an_empty_listing_says_from_where_to_watch(store, world):
    listing = await store.list_prefix(world.prefix)
    revision = await put(store, world.key("first"))
    assert listing.items == ()
    (event,) = events_of(await collect(store, world.prefix, listing.revision + 1, reached(revision)))
    assert event.kv.key == world.key("first")


# --- the six promises of a watch ----------------------------------------------------------------------------------


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
    deleted = (await store.txn([], [Delete(world.key("k"))])).revision
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


# --- leases -------------------------------------------------------------------------------------------------------


async def test_a_lease_that_ends_deletes_its_keys_in_one_revision(store, world):
    grant = await store.grant_lease(1)
    start = await put(store, world.key("a"), lease_id=grant.lease_id)
    await put(store, world.key("b"), lease_id=grant.lease_id)
    batches = await collect(
        store, world.prefix, start, lambda seen: sum(event.deleted for event in events_of(seen)) == 2
    )
    deletes = [event for event in events_of(batches) if event.deleted]
    assert {event.kv.key for event in deletes} == {world.key("a"), world.key("b")}
    assert len({event.kv.mod_revision for event in deletes}) == 1
    assert await store.keep_alive(grant.lease_id) == 0


async def test_a_lease_kept_alive_outlives_its_ttl(store, world):
    loop = asyncio.get_running_loop()
    grant = await store.grant_lease(1)
    await put(store, world.key("k"), lease_id=grant.lease_id)
    until = loop.time() + 2.5
    while loop.time() < until:
        assert await store.keep_alive(grant.lease_id) == grant.ttl_s
        await asyncio.sleep(0.3)
    assert (await store.get(world.key("k"))).lease_id == grant.lease_id


async def test_a_lease_is_at_least_as_long_as_asked(store):
    assert (await store.grant_lease(30)).ttl_s >= 30


async def test_a_lease_of_no_time_is_given_the_shortest_there_is(store):
    assert (await store.grant_lease(0)).ttl_s >= 1


async def test_keeping_an_unknown_lease_alive_says_zero(store):
    assert await store.keep_alive(123_456_789) == 0


async def test_revoking_deletes_at_once_and_an_unknown_lease_is_fine(store, world):
    grant = await store.grant_lease(60)
    await put(store, world.key("k"), lease_id=grant.lease_id)
    await store.revoke_lease(grant.lease_id)
    await store.revoke_lease(grant.lease_id)
    assert await store.get(world.key("k")) is None


async def test_a_put_under_a_lease_that_is_gone_is_refused(store, world):
    with pytest.raises(StoreRejected):
        await put(store, world.key("k"), lease_id=987_654_321)
    assert await store.get(world.key("k")) is None


async def test_a_key_written_anew_leaves_its_former_lease(store, world):
    old, new = await store.grant_lease(60), await store.grant_lease(60)
    await put(store, world.key("k"), b"old", old.lease_id)
    await put(store, world.key("k"), b"new", new.lease_id)
    await store.revoke_lease(old.lease_id)
    assert (await store.get(world.key("k"))).value == b"new"
    await put(store, world.key("k"), b"free")
    await store.revoke_lease(new.lease_id)
    assert (await store.get(world.key("k"))).lease_id == 0


# --- compaction and closing -------------------------------------------------------------------------------------


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
