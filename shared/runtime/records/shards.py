"""The record of the shards in etcd: read by every binder and coordinator when it is elected, followed, and changed.

A change is one put that compares what was read. From its revision on no binder commits anything under the old shards,
and every leader ends its term as soon as it hears of it. The record is never deleted: its mod_revision would be 0
again, and a binder that has slept since the first time would be believed.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from shared.errors import ConfigError, Conflict, InvalidValue
from shared.ports import Compare, CreateRevisionIs, KeyValue, ModRevisionIs, Put, Store
from shared.runtime.records.control import CAS_TRIES, clean, rfc3339
from shared.runtime.records.prefix_watch import follow_prefix, until_known
from shared.scheduling.shards import Shards
from shared.wire.keys import Keys
from shared.wire.records import ShardsRecord, decode_record, encode_record

MAX_SHARDS = 16
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def shards_in(kv: KeyValue | None) -> Shards:
    """What the record says; without one there is the one shard. ``ConfigError``: it cannot be read."""
    if kv is None:
        return Shards()
    record = decode_record(kv.value, ShardsRecord)
    if record is None or wrong(record.names):
        raise ConfigError(f"etcd: {kv.key} names no shards; put it right as docs/operations/shards.md says")
    return Shards(tuple(sorted(record.names)), kv.mod_revision)


def wrong(names: Sequence[str]) -> str:
    """What is wrong with these names of shards; "" where nothing is."""
    if not 1 <= len(names) <= MAX_SHARDS:
        return f"names: {len(names)} shards; give 1 to {MAX_SHARDS}"
    if len(set(names)) < len(names):
        return "names: a shard is named twice; name each once"
    bad = next((name for name in names if not NAME.fullmatch(name)), "")
    if bad or "" in names:
        return f"names: {bad[:64]!r} is no shard; use a-z, 0-9 and -, 63 characters at most"
    return ""


async def read_shards(store: Store, keys: Keys) -> Shards:
    """The shards now; asked until etcd answers. ``ConfigError``: the record cannot be read."""
    return shards_in(await until_known(lambda: store.get(keys.binder_shards), "shards_unread"))


async def follow_shards(store: Store, keys: Keys) -> AsyncGenerator[Shards, None]:
    """The shards now and after every change; eternal. ``ConfigError``: the record cannot be read."""
    async with aclosing(follow_prefix(store, keys.binder_shards)) as views:
        async for view in views:
            yield shards_in(view.items.get(keys.binder_shards))


async def change_shards(
    store: Store, keys: Keys, names: Sequence[str], *, term: int | None = None, by: str, reason: str, now: dt.datetime,
    unmanned: bool = False,
) -> Shards:  # fmt: skip
    """Divide the nodes into these shards; the shards afterwards. To say again what holds changes nothing.

    ``term``: of the coordinator that does it; None: nobody leads yet. Refused: ``InvalidValue`` for names that cannot
    be, or, unless ``unmanned``, for a shard that no binder leads, whose nodes would get no pods; ``Conflict`` where
    another change, or another coordinator, came first. Unknown: ``StoreUnknown``; to say it again is safe.
    """
    if text := wrong(names):
        raise InvalidValue(text)
    wanted = tuple(sorted(names))
    for _ in range(CAS_TRIES):
        kv = await store.get(keys.binder_shards)
        held = shards_in(kv)
        if held.names == wanted:
            return held
        for name in () if unmanned else wanted:
            if await store.get(keys.binder_leader(name)) is None:
                raise InvalidValue(f"names: no binder leads shard {name}; start one with --shard {name} first")
        before = decode_record(kv.value, ShardsRecord) if kv is not None else None
        record = ShardsRecord(
            names=wanted, generation=before.generation + 1 if before is not None else 1, by=clean(by),
            reason=clean(reason), since=rfc3339(now),
        )  # fmt: skip
        compares: list[Compare] = [
            ModRevisionIs(keys.binder_shards, held.revision),
            CreateRevisionIs(keys.coordinator_leader, term or 0),
        ]
        result = await store.txn(compares, [Put(keys.binder_shards, encode_record(record))])
        if result.succeeded:
            return Shards(wanted, result.revision)
    raise Conflict("others are changing the shards, or another coordinator leads; look again and repeat")
