"""The Store in memory: etcd's semantics without etcd, for tests and for simulation in virtual time.

Why: gRPC's threads cannot run in a simulated event loop, and a thousand seeds need a store that starts in no time.
``MemoryEtcd`` is the server: synchronous, with revisions, leases on an injected clock, history and compaction.
``MemoryStore`` is a client of one; many clients, also in several threads, may share a server. Both this and
``store.py`` pass ``tests/contract/test_store*.py``; ADR 0005 says which properties are promised.

Not its job: persistence, faults (tests wrap the Store for those), anything etcd would not do.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, Callable, Sequence

from shared.errors import StoreRejected
from shared.ports import Compare, KeyValue, LeaseGrant, Listing, Op, StoreState, TxnResult, WatchBatch
from tests.memory_etcd import MemoryEtcd


class MemoryStore:
    """``shared.ports.Store`` on a ``MemoryEtcd``.

    In a loop with virtual time give the server ``clock=loop.time``: watchers then wake when a lease ends.
    """

    def __init__(self, server: MemoryEtcd | None = None, *, progress_every_s: float | None = None) -> None:
        self._server = server or MemoryEtcd()
        self._progress_every_s = progress_every_s
        self._closed = False
        self._wakers: set[Callable[[], None]] = set()

    async def get(self, key: str, *, timeout_s: float = 2.0) -> KeyValue | None:
        return (await self._open_server()).get(key)

    async def state(self, *, timeout_s: float = 2.0) -> StoreState:
        await self._open_server()
        return StoreState()

    async def list_prefix(self, prefix: str, *, timeout_s: float = 5.0) -> Listing:
        return (await self._open_server()).list_prefix(prefix)

    async def txn(self, compares: Sequence[Compare], ops: Sequence[Op], *, timeout_s: float = 2.0) -> TxnResult:
        return (await self._open_server()).txn(compares, ops)

    async def grant_lease(self, ttl_s: int, *, timeout_s: float = 2.0) -> LeaseGrant:
        return (await self._open_server()).grant_lease(ttl_s)

    async def keep_alive(self, lease_id: int, *, timeout_s: float = 2.0) -> float:
        return (await self._open_server()).keep_alive(lease_id)

    async def revoke_lease(self, lease_id: int, *, timeout_s: float = 2.0) -> None:
        (await self._open_server()).revoke_lease(lease_id)

    async def compact(self, revision: int, *, timeout_s: float = 2.0) -> None:
        (await self._open_server()).compact(revision)

    async def watch(self, prefix: str, *, start_revision: int) -> AsyncGenerator[WatchBatch, None]:
        """See ``Store.watch``. Reads the server's history by position, so a slow caller buffers nothing."""
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(changed.set)

        position, silent_until = start_revision, math.inf
        self._wakers.add(wake)
        self._server.subscribe(wake)
        try:
            while not self._closed:
                changed.clear()
                batch = self._server.read_history(prefix, position)
                if batch is not None:
                    silent_until = math.inf
                    position = batch.revision + 1
                    yield batch
                    continue
                silent_until = min(silent_until, loop.time() + (self._progress_every_s or math.inf))
                if loop.time() >= silent_until:
                    silent_until = math.inf
                    caught_up = self._server.caught_up(prefix, position)
                    if caught_up is not None:
                        position = max(position, caught_up + 1)
                        yield WatchBatch((), position - 1)
                    continue
                # Nobody else may be there to notice the end of a lease, so a watcher looks when one is due.
                due = min(silent_until, loop.time() + self._server.next_expiry_in())
                with contextlib.suppress(TimeoutError):
                    # No timer at all where nothing is due: a loop in virtual time would jump to it.
                    async with asyncio.timeout_at(due if due < math.inf else None):
                        await changed.wait()
        finally:
            self._server.unsubscribe(wake)
            self._wakers.discard(wake)

    async def defragment(self, endpoint: str, *, timeout_s: float = 60.0) -> None:
        """Nothing is ever in pieces here."""

    async def disarm(self, alarm: str, *, timeout_s: float = 5.0) -> None:
        """There are no alarms."""

    async def close(self) -> None:
        self._closed = True
        for wake in tuple(self._wakers):
            wake()

    async def _open_server(self) -> MemoryEtcd:
        # Every call gives way once, as a call over the network would: callers that rely on not being interrupted
        # must fail here too.
        await asyncio.sleep(0)
        if self._closed:
            raise StoreRejected("memory store: closed")
        return self._server
