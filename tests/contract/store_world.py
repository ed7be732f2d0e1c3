"""One server behind the Store contract, and what its tests write, watch and wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from shared.ports import DeleteKey, Put, Store, StoreEvent, WatchBatch
from tests.patience import PATIENCE_S


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


async def put(store: Store, key: str, value: bytes = b"", lease_id: int = 0) -> int:
    return (await store.txn([], [Put(key, value, lease_id)])).revision


async def collect(
    store: Store, prefix: str, start: int, enough: Callable[[list[WatchBatch]], bool]
) -> list[WatchBatch]:
    """What a watch gives until it is ``enough``."""
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
            ops[2] = DeleteKey(keys[2])
            existed = await store.get(keys[2]) is not None
            keys = keys if existed else keys[:2]
        result = await store.txn([], ops)
        written[result.revision] = set(keys)
    return written
