"""Who is registered in etcd and who led before, kept in memory by watches: asking costs the leader no way to etcd.

``conclave status`` is asked most while the leader is busy, and each answer of etcd would wait for several turns of its
loop. Until everything was listed once, or where etcd lets us read no more, readers ask etcd themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import structlog

from shared.errors import StoreRejected, StoreRolledBack
from shared.ports import KeyValue, Store
from shared.runtime.records.prefix_watch import follow_prefix

log = structlog.get_logger()

RETRY_S = 30.0


class Registry:
    """One per process. ``prefixes``: what is followed."""

    def __init__(self, store: Store, prefixes: Sequence[str]) -> None:
        self._store = store
        self._prefixes = tuple(prefixes)
        self._known: dict[str, tuple[KeyValue, ...]] = {}

    async def run(self) -> None:
        """Eternal."""
        async with asyncio.TaskGroup() as group:
            for prefix in self._prefixes:
                group.create_task(self._follow(prefix))

    async def listed(self, prefix: str) -> Sequence[KeyValue]:
        """What is under the prefix, by key. Unknown: ``StoreUnknown``, only while it is not known yet."""
        known = self._known.get(prefix)
        return known if known is not None else (await self._store.list_prefix(prefix)).items

    async def _follow(self, prefix: str) -> None:
        while True:
            try:
                async with aclosing(follow_prefix(self._store, prefix)) as views:
                    async for view in views:
                        self._known[prefix] = tuple(view.items[key] for key in sorted(view.items))
            except (StoreRejected, StoreRolledBack) as error:
                log.warning("registry_unread", prefix=prefix, error=error)
            self._known.pop(prefix, None)
            await asyncio.sleep(RETRY_S)
