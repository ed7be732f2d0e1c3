"""The record of a candidate that is tried beside the policy of a domain's settings: read, followed and changed in etcd.

People change it through the coordinator, whoever leads the domain's service writes what became of it; each write
compares what was read, so neither undoes the other's. How it changes is said by ``shared/decide/rollout.py``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import msgspec
from msgspec.structs import replace

from shared.decide.domain import Domain
from shared.decide.rollout import Rollout, same_step
from shared.errors import Conflict
from shared.ports import Compare, CreateRevisionIs, KeyValue, ModRevisionIs, Put, Store
from shared.runtime.records.control import CAS_TRIES, clean, rfc3339
from shared.runtime.records.prefix_watch import follow_prefix
from shared.wire.keys import Keys
from shared.wire.records import decode_record


def rollout_in(kv: KeyValue | None) -> Rollout:
    """What the record says; one that cannot be read counts as none: then the policy of the settings decides."""
    found = decode_record(kv.value, Rollout) if kv is not None else None
    return found if found is not None else Rollout()


async def read_rollout(store: Store, keys: Keys, domain: Domain) -> Rollout:
    """The record now. Unknown: ``StoreUnknown``."""
    return rollout_in(await store.get(keys.rollout(domain.name)))


async def follow_rollout(store: Store, keys: Keys, domain: Domain) -> AsyncGenerator[tuple[Rollout, int], None]:
    """(the record, its revision) now and after every change; eternal. Revision 0: there is none."""
    key = keys.rollout(domain.name)
    async with aclosing(follow_prefix(store, key)) as views:
        async for view in views:
            kv = view.items.get(key)
            yield rollout_in(kv), kv.mod_revision if kv is not None else 0


async def write_rollout(
    store: Store, keys: Keys, domain: Domain, rollout: Rollout, *, revision: int, term: int
) -> bool:
    """By the service that leads the domain's term: whether it was written, the record being still at ``revision``."""
    compares: list[Compare] = [
        ModRevisionIs(keys.rollout(domain.name), revision), CreateRevisionIs(keys.leader(domain.name), term),
    ]  # fmt: skip
    return (await store.txn(compares, [Put(keys.rollout(domain.name), msgspec.json.encode(rollout))])).succeeded


async def change_rollout(
    store: Store, keys: Keys, domain: Domain, change: Callable[[Rollout, str], Rollout], *, term: int, now: dt.datetime
) -> Rollout:
    """By the coordinator that leads the term: the record after ``change(held, time)``.

    Made again where figures were written meanwhile, and not over another step than the one that was asked for: else two
    promotions at once go from shadow to all. ``Conflict``: another step, or another coordinator, came first; unknown:
    ``StoreUnknown``.
    """
    key, first = keys.rollout(domain.name), None
    for _ in range(CAS_TRIES):
        kv = await store.get(key)
        held = rollout_in(kv)
        first = held if first is None else first
        if not same_step(held, first):
            break
        wanted = change(held, rfc3339(now))
        if wanted == held:
            return held
        wanted = replace(wanted, by=clean(wanted.by), reason=clean(wanted.reason))
        compares: list[Compare] = [
            ModRevisionIs(key, kv.mod_revision if kv is not None else 0),
            CreateRevisionIs(keys.coordinator_leader, term),
        ]
        if (await store.txn(compares, [Put(key, msgspec.json.encode(wanted))])).succeeded:
            return wanted
    raise Conflict(
        f"others are changing the policy of {domain.name}, or another coordinator leads; look again and repeat"
    )
