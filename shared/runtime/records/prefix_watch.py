"""The current content of a prefix, kept by list and watch: members, settings, policies, one leader's key.

Why: every reader of etcd needs the same careful loop (list at R, watch from R + 1, list again after compaction or an
outage), and it must be written once. Levels, not edges: what is yielded is the whole content, so a reader that was
slow or away loses nothing.

Values are not interpreted here, and nothing is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import Any, TypeVar

import structlog
from msgspec import Struct

from shared.errors import StoreCompacted, StoreFull, StoreRolledBack, StoreUnknown
from shared.ports import KeyValue, Store

log = structlog.get_logger()
T = TypeVar("T")

_RETRY_S = 0.2
UNKNOWN_RETRY_S = 0.5


class PrefixView(Struct, frozen=True):
    """All keys under the prefix, complete up to ``revision``. Never changed after it was handed out."""

    items: Mapping[str, KeyValue]
    revision: int


async def follow_prefix(store: Store, prefix: str, *, progress: bool = False) -> AsyncGenerator[PrefixView, None]:
    """The content of ``prefix`` now, then again after every change; waits through outages.

    With ``progress`` also after every sign of life of the watch, so that its silence can be noticed. Ends only by being
    closed or with ``StoreRejected`` (no permission) or ``StoreRolledBack``.
    """
    last: dict[str, KeyValue] | None = None
    while True:
        try:
            listing = await store.list_prefix(prefix)
        except StoreRolledBack:
            raise
        except StoreUnknown:
            await asyncio.sleep(_RETRY_S)
            continue
        items = {kv.key: kv for kv in listing.items}
        if items != last or progress:
            yield PrefixView(MappingProxyType(items), listing.revision)
        try:
            async with aclosing(store.watch(prefix, start_revision=listing.revision + 1)) as batches:
                async for batch in batches:
                    if batch.events:
                        items = dict(items)
                        for event in batch.events:
                            if event.deleted:
                                items.pop(event.kv.key, None)
                            else:
                                items[event.kv.key] = event.kv
                    last = items
                    if batch.events or progress:
                        yield PrefixView(MappingProxyType(items), batch.revision)
            return
        except StoreCompacted:
            last = items


async def until_known(call: Callable[[], Awaitable[T]], told: str, **facts: Any) -> T:
    """What ``call`` returns, made again while its outcome is unknown, or etcd has no room for it; each time the event
    ``told`` is logged."""
    while True:
        try:
            return await call()
        except (StoreFull, StoreUnknown) as error:
            log.info(told, error=error, **facts)
            await asyncio.sleep(UNKNOWN_RETRY_S)


async def newest_number(store: Store, prefix: str) -> int:
    """Number of the newest record of a log in etcd, whose records lie under ``prefix`` and growing numbers; 0: none.

    By its key, so that one that cannot be read counts too. The next number also stands in a key of its own, which
    somebody may delete: going on from the records then, no change overwrites the history of those before it. Unknown:
    ``StoreUnknown``.
    """
    listing = await store.list_prefix(prefix)
    numbers = (kv.key.removeprefix(prefix) for kv in listing.items)
    return max((int(number) for number in numbers if number.isdecimal()), default=0)
