"""What etcd has of objects that were deleted while nobody led goes when somebody leads; of living ones it stays."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from services.autoscaler.core.core import AutoscalerCore
from services.autoscaler.core.events import KINDS, ScaledListed, ScalerSeen
from services.autoscaler.core.instructions import Sweep
from services.autoscaler.core.state import ScalerCoreSettings
from services.autoscaler.io.writes import StoreWrites
from shared.ports import CreateRevisionIs, DeleteKey, Listing, Put
from shared.wire.keys import Keys
from shared.wire.records import AutoscaleRecord
from tests.memory_store import MemoryStore
from tests.unit.services.autoscaler.scaler_world import KEY, World, scaler_of, spec_of

KEYS = Keys()
GONE = "shop/gone"


async def put(store: MemoryStore, key: str, *, term: int, slots: int = 2) -> None:
    record = AutoscaleRecord(uid="u", term=term, number=1, at=0.0)
    ops = [Put(KEYS.autoscaler_last(key), msgspec.json.encode(record))]
    ops += [Put(KEYS.autoscaler_decision(key, slot), b"{}") for slot in range(slots)]
    await store.txn([], ops)


async def lead(store: MemoryStore) -> int:
    await store.txn([], [Put(KEYS.autoscaler_leader, b"{}")])
    held = await store.get(KEYS.autoscaler_leader)
    assert held is not None
    return held.create_revision


async def left(store: MemoryStore) -> set[str]:
    prefix = f"{KEYS.prefix}autoscaler/"
    listing = await store.list_prefix(prefix)
    return {kv.key.removeprefix(prefix).partition("/")[0] for kv in listing.items} - {"leader"}


def writes(store: Any, term: int) -> StoreWrites:
    return StoreWrites(store, KEYS, lambda _: None, term=term, timeout_s=1.0, history=1)


@pytest.fixture
async def store() -> MemoryStore:
    """A leader's etcd, with the record and two decisions of an object that is gone."""
    made = MemoryStore()
    await put(made, GONE, term=1)
    await lead(made)
    return made


async def term_of(store: MemoryStore) -> int:
    held = await store.get(KEYS.autoscaler_leader)
    assert held is not None
    return held.create_revision


async def test_a_new_leader_deletes_record_and_ring_of_objects_that_are_gone(store: MemoryStore):
    await writes(store, await term_of(store)).sweep(Sweep(frozenset()))
    assert await left(store) == set()


async def test_what_lives_or_was_recorded_in_this_term_stays(store: MemoryStore):
    term = await term_of(store)
    await put(store, "shop/new", term=term)  # made after the sweep was asked for
    await writes(store, term).sweep(Sweep(frozenset({GONE})))
    listing = await store.list_prefix(KEYS.autoscaler_lasts_prefix)
    assert [KEYS.autoscaler_object_of(kv.key) for kv in listing.items] == [GONE, "shop/new"]


async def test_a_deposed_leader_sweeps_nothing(store: MemoryStore):
    await writes(store, await term_of(store) + 1).sweep(Sweep(frozenset()))
    assert await left(store) == {"last", "history"}


class Racing:
    """A store in which the record changes right after it was listed. ``compares`` False: nobody looks."""

    def __init__(self, store: MemoryStore, *, compares: bool) -> None:
        self.store, self.compares = store, compares

    async def list_prefix(self, prefix: str, *, timeout_s: float = 5.0) -> Listing:
        listing = await self.store.list_prefix(prefix)
        if prefix == KEYS.autoscaler_lasts_prefix:
            await put(self.store, GONE, term=1)
        return listing

    async def txn(self, compares: Any, ops: Any, *, timeout_s: float = 2.0) -> Any:
        kept = [one for one in compares if self.compares or isinstance(one, CreateRevisionIs)]
        assert all(isinstance(op, DeleteKey) for op in ops)
        return await self.store.txn(kept, ops)


@pytest.mark.parametrize("compares", [True, False])
async def test_a_record_that_changes_meanwhile_stays_because_it_is_compared(store: MemoryStore, compares: bool):
    await writes(Racing(store, compares=compares), await term_of(store)).sweep(Sweep(frozenset()))
    assert (await store.get(KEYS.autoscaler_last(GONE)) is not None) == compares


def core() -> AutoscalerCore:
    return AutoscalerCore(1, ScalerCoreSettings(), World().policies, now=0.0)


def test_it_is_asked_for_once_when_everything_is_listed():
    one = core()
    first = one.handle_all([ScalerSeen(scaler_of(spec_of("front"))), *(ScaledListed(kind) for kind in KINDS[:-1])], 0.0)
    assert first == []
    assert Sweep(frozenset({KEY})) in one.handle_all([ScaledListed(KINDS[-1])], 0.0)
    assert not any(isinstance(found, Sweep) for found in one.handle_all([ScaledListed(KINDS[-1])], 1.0))


def test_a_list_that_was_refused_says_nothing_of_what_is_gone():
    found = core().handle_all([ScaledListed(kind, served=kind != KINDS[0]) for kind in KINDS], 0.0)
    assert not any(isinstance(one, Sweep) for one in found)
