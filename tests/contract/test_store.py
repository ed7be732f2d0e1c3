"""The Store contract for keys, transactions, listings and leases, run on memory and on a real etcd alike.

Watches and compaction: ``test_store_watches.py``.
"""

from __future__ import annotations

import asyncio
import re

import pytest

from shared.errors import StoreRejected
from shared.ports import MAX_TXN_OPS, CreateRevisionIs, DeleteKey, ModRevisionIs, Put
from tests.contract.store_world import collect, events_of, put, reached
from tests.patience import PATIENCE_S

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
    await store.txn([], [DeleteKey(world.key("k"))])
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
    await store.txn([], [DeleteKey(world.key("leader"))])
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
    assert (await store.txn([], [DeleteKey(world.key("absent"))])).revision == before


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
        await store.txn([], [Put(world.key("k"), b"1"), DeleteKey(world.key("k"))])
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
    grant = await store.grant_lease(2)
    await put(store, world.key("k"), lease_id=grant.lease_id)
    until = loop.time() + 1.5 * grant.ttl_s
    while loop.time() < until:
        assert await store.keep_alive(grant.lease_id) == grant.ttl_s
        await asyncio.sleep(0.3)  # time has to pass: the lease would end in it
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


async def test_a_server_tells_its_release(store, request):
    """The etcd at hand is asked; the store in memory is of no release."""
    state = await store.state(timeout_s=PATIENCE_S)
    real = "etcd" in request.node.callspec.id
    assert len(state.members) == real
    for member in state.members:
        assert re.fullmatch(r"\d+\.\d+\.\d+\S*", member.version)
        assert 0 < member.in_use <= member.size
        assert not state.alarms
