"""The last windows of policies, for people: kept by the leader, and in etcd, so that its successor shows them too.

    core --KeepWindow--> ring in memory --every 10 s at most--> one transaction under the term --> policies/windows/

Slots are used again, so etcd holds no more than the ring. A window that could not be written by the end of a term is
lost, and nothing depends on it. Windows are judged elsewhere (``policy.rollout``).
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections import deque
from collections.abc import Callable, Sequence

import msgspec
import structlog

from shared.errors import StoreFenced, StoreFull, StoreUnknown
from shared.ports import CreateRevisionIs, Put, Store
from shared.runtime.records.control import rfc3339
from shared.runtime.records.policies import KEPT_WINDOWS, read_windows
from shared.wire.keys import Keys
from shared.wire.records import PolicyWindow, encode_record

log = structlog.get_logger()

WRITE_EVERY_S = 10.0
MOST_PER_WRITE = 64
RETRY_S = 0.5


class WindowRing:
    """One term's. ``kept``: oldest first."""

    def __init__(
        self, store: Store, keys: Keys, term: int, *, wall: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)
    ) -> None:
        self._store = store
        self._keys = keys
        self._term = term
        self._wall = wall
        self._early: list[PolicyWindow] | None = []
        """Closed before the windows of earlier terms were read, so without a number yet; None: they were read."""
        self._unwritten: deque[PolicyWindow] = deque(maxlen=KEPT_WINDOWS)
        self._more = asyncio.Event()
        self.kept: deque[PolicyWindow] = deque(maxlen=KEPT_WINDOWS)

    def keep(self, window: PolicyWindow) -> None:
        """One more was closed, now."""
        window = msgspec.structs.replace(window, time=rfc3339(self._wall()))
        if self._early is not None:
            self._early = [*self._early, window][-KEPT_WINDOWS:]
        else:
            self._number(window)

    async def run(self) -> None:
        """Read what earlier terms kept, then write what comes; eternal. ``StoreFenced``: somebody else leads."""
        self._begin(await self._read())
        while True:
            await self._more.wait()
            self._more.clear()
            while self._unwritten:
                await self._write([self._unwritten.popleft() for _ in range(min(MOST_PER_WRITE, len(self._unwritten)))])
            await asyncio.sleep(WRITE_EVERY_S)

    def _begin(self, earlier: Sequence[PolicyWindow]) -> None:
        self.kept.extend(earlier)
        early, self._early = self._early or [], None
        for window in early:
            self._number(window)

    def _number(self, window: PolicyWindow) -> None:
        window = msgspec.structs.replace(window, number=self.kept[-1].number + 1 if self.kept else 1)
        self.kept.append(window)
        self._unwritten.append(window)
        self._more.set()

    async def _read(self) -> list[PolicyWindow]:
        while True:
            try:
                return await read_windows(self._store, self._keys)
            except StoreUnknown as error:
                log.info("policy_windows_unread", error=error)
                await asyncio.sleep(RETRY_S)

    async def _write(self, windows: Sequence[PolicyWindow]) -> None:
        leads = [CreateRevisionIs(self._keys.coordinator_leader, self._term)]
        puts = [
            Put(self._keys.policy_window(window.number % KEPT_WINDOWS), encode_record(window)) for window in windows
        ]
        try:
            written = await self._store.txn(leads, puts)
        except (StoreFull, StoreUnknown) as error:
            log.info("policy_windows_unwritten", count=len(windows), error=error)
            return
        if not written.succeeded:
            raise StoreFenced(f"term {self._term} is over: windows of policies were not written")
