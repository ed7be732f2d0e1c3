"""Two logs in etcd that outlive every process: who led which term, and what people changed through the admin API.

Both are bounded: the oldest records go as new ones come, of the audit log those of whoever has the most, so that nobody
can push out what others did, neither by changes nor by attempts that are refused. A term is written under itself, so
only who leads can claim one. An audit record takes the next number by compare-and-swap, numbered on from the records
where ``audit/last`` is gone or cannot be read, so none is ever overwritten and a gap means nothing.
Not its job: deciding who may change what, logging.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable

import msgspec

from shared.errors import Conflict, StoreFenced
from shared.ports import Compare, CreateRevisionIs, DeleteKey, KeyValue, ModRevisionIs, Op, Put, Store
from shared.runtime.records.control import clean, rfc3339
from shared.runtime.records.prefix_watch import newest_number
from shared.wire.keys import Keys
from shared.wire.records import AuditRecord, TermRecord, decode_record, encode_record

TERMS_KEPT = 100
AUDIT_KEPT = 1000
PRUNE_EVERY = 50
"""Audit records between two clean-ups: each reads the whole log."""

APPEND_TRIES = 20
"""The admin API lets through some ten writes a second: more races than this in a row are none of its."""

PRUNED_AT_ONCE = 64
"""More than ``PRUNE_EVERY``, so that clean-ups keep up; etcd takes 128 operations in one transaction."""


async def write_term(store: Store, keys: Keys, *, term: int, id: str, url: str, now: dt.datetime) -> None:  # noqa: A002
    """Note that ``id`` leads ``term``; the oldest terms go. Writing it again changes nothing.

    Refused: ``StoreFenced``, somebody else leads. Unknown: ``StoreUnknown``.
    """
    key = keys.coordinator_term(term)
    listing = await store.list_prefix(keys.coordinator_terms_prefix)
    if any(kv.key == key for kv in listing.items):
        return
    record = TermRecord(term=term, id=id, url=url, began=rfc3339(now))
    ops: list[Op] = [Put(key, encode_record(record))]
    surplus = len(listing.items) + 1 - TERMS_KEPT
    ops += [DeleteKey(kv.key) for kv in listing.items[: max(0, min(surplus, PRUNED_AT_ONCE))]]
    if not (await store.txn([CreateRevisionIs(keys.coordinator_leader, term)], ops)).succeeded:
        raise StoreFenced(f"term {term} is over: it was not noted")


async def read_terms(store: Store, keys: Keys) -> list[TermRecord]:
    """The last terms, newest first; records that cannot be read are left out. Unknown: ``StoreUnknown``."""
    listing = await store.list_prefix(keys.coordinator_terms_prefix)
    return terms_of(listing.items)


def terms_of(items: Iterable[KeyValue]) -> list[TermRecord]:
    """The terms in a listing in order of keys, newest first; records that cannot be read are left out."""
    records = [decode_record(kv.value, TermRecord) for kv in items]
    return [record for record in reversed(records) if record is not None]


async def append_audit(
    store: Store,
    keys: Keys,
    *,
    term: int,
    by: str,
    role: str,
    route: str,
    target: str,
    reason: str,
    request_id: str,
    now: dt.datetime,
) -> AuditRecord:
    """Note what is about to be changed; every ``PRUNE_EVERY`` records some old ones go (``surplus``). Returning
    means that it is in etcd, and that ``term`` was not over then: a leader that was stopped for minutes finds requests
    on its sockets whose callers have long given up.

    Refused: ``StoreFenced``, ``Conflict`` (too many at once), ``StoreRejected``. Unknown: ``StoreUnknown``; the change
    must not be made then.
    """
    for _ in range(APPEND_TRIES):
        last = await store.get(keys.audit_last)
        before = _number(last.value) if last is not None else 0
        number = (before or await newest_number(store, keys.audit_prefix)) + 1
        record = AuditRecord(
            number=number, time=rfc3339(now), by=clean(by), role=role, route=clean(route), target=clean(target),
            reason=clean(reason), request_id=request_id,
        )  # fmt: skip
        ops: list[Op] = [Put(keys.audit_last, b"%d" % number), Put(keys.audit(number), encode_record(record))]
        if number % PRUNE_EVERY == 0 and number > AUDIT_KEPT:
            gone = surplus([*await read_audit(store, keys), record], AUDIT_KEPT)
            ops += [DeleteKey(keys.audit(old)) for old in gone[:PRUNED_AT_ONCE]]
        revision = last.mod_revision if last is not None else 0
        compares: list[Compare] = [
            ModRevisionIs(keys.audit_last, revision),
            CreateRevisionIs(keys.coordinator_leader, term),
        ]
        if (await store.txn(compares, ops)).succeeded:
            return record
        leader = await store.get(keys.coordinator_leader)
        if leader is None or leader.create_revision != term:
            raise StoreFenced(f"term {term} is over: nothing was noted, and nothing must be changed")
    raise Conflict("audit: too many changes at once; repeat")


async def note_result(store: Store, keys: Keys, record: AuditRecord, result: str, *, term: int) -> None:
    """Add to a record how the change ended; one that has gone meanwhile stays gone.

    Refused: ``StoreRejected``. Unknown: ``StoreUnknown``; the record may be without a result then."""
    kv = await store.get(keys.audit(record.number))
    if kv is None:
        return
    told = msgspec.structs.replace(record, result=clean(result))
    compares: list[Compare] = [
        ModRevisionIs(kv.key, kv.mod_revision),
        CreateRevisionIs(keys.coordinator_leader, term),
    ]
    await store.txn(compares, [Put(kv.key, encode_record(told))])


def surplus(records: Iterable[AuditRecord], kept: int) -> list[int]:
    """Numbers of the records that must go so that ``kept`` stay: each time the oldest of the caller with the most."""
    of: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for record in records:
        of[record.role, record.by].append(record.number)
    for numbers in of.values():
        numbers.sort(reverse=True)
    gone = []
    for _ in range(sum(map(len, of.values())) - kept):
        most = max(of.values(), key=lambda numbers: (len(numbers), -numbers[-1] if numbers else 0))
        gone.append(most.pop())
    return gone


async def read_audit(store: Store, keys: Keys) -> list[AuditRecord]:
    """The last records, newest first; some that cannot be read are left out. Unknown: ``StoreUnknown``."""
    listing = await store.list_prefix(keys.audit_prefix)
    records = [decode_record(kv.value, AuditRecord) for kv in listing.items if kv.key != keys.audit_last]
    return [record for record in reversed(records) if record is not None]


def _number(value: bytes) -> int:
    return int(value) if value.isdigit() and len(value) <= 18 else 0
