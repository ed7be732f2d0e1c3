"""Past use of queues, kept in etcd under the leader's term: read once, written while any queue counts it.

A process that dies takes the use of the last seconds with it: the order of queues is a little kinder to who used most.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import structlog

from services.coordinator.core.events import Event, QueueHistoryRead
from shared.errors import StoreFenced, StoreFull, StoreUnknown
from shared.ports import CreateRevisionIs, Put, Store
from shared.runtime.records.prefix_watch import until_known
from shared.wire.keys import Keys
from shared.wire.records import QueueHistoryRecord, decode_record, encode_record

log = structlog.get_logger()

EVERY_S = 15.0

MAX_BYTES = 1024 * 1024
"""A larger value is not written: etcd refuses one of 1.5 MiB."""


async def keep(
    store: Store, keys: Keys, *, term: int, post: Callable[[Event], None],
    record: Callable[[int], QueueHistoryRecord | None],
) -> None:  # fmt: skip
    """Eternal. ``StoreFenced``: somebody else leads."""

    async def read() -> Any:
        kv = await store.get(keys.queue_history)
        return decode_record(kv.value, QueueHistoryRecord) if kv is not None else None

    found = await until_known(read, "queue_history_unread")
    if found is not None:
        post(QueueHistoryRead(found, int(time.time())))
    compares = [CreateRevisionIs(keys.coordinator_leader, term)]
    written: dict[str, dict[str, int]] | None = None
    while True:
        await asyncio.sleep(EVERY_S)
        made = record(int(time.time()))
        if made is None or made.past == written:
            continue
        value = encode_record(made)
        if len(value) > MAX_BYTES:
            log.warning("queue_history_too_large", bytes=len(value), most=MAX_BYTES)
            continue
        try:
            result = await store.txn(compares, [Put(keys.queue_history, value)])
        except (StoreFull, StoreUnknown) as error:
            log.info("queue_history_unwritten", error=error)
            continue
        if not result.succeeded:
            raise StoreFenced(f"term {term} is over: the history of queues was not written")
        written = made.past
