"""How many pods were bound over all terms: kept in etcd under the leader's term, so that a failover does not reset it.

A leader reads what its predecessors counted and writes the sum every ten seconds while it changes. A process that dies
takes what it counted since with it, ten seconds at the most: it is a figure for people, placing never waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from shared.errors import StoreFenced, StoreFull, StoreUnknown
from shared.ports import CreateRevisionIs, Put, Store
from shared.runtime.records.prefix_watch import until_known
from shared.wire.keys import Keys
from shared.wire.records import TotalsRecord, decode_record, encode_record

log = structlog.get_logger()

EVERY_S = 10.0


class Totals:
    """``bound`` tells what this term has counted so far."""

    def __init__(self, store: Store, keys: Keys, *, term: int, bound: Callable[[], int]) -> None:
        self._store = store
        self._keys = keys
        self._term = term
        self._counted = bound
        self._before: int | None = None

    @property
    def bound(self) -> int | None:
        """Pods bound over all terms; None until it is known what earlier ones counted."""
        return None if self._before is None else self._before + self._counted()

    async def run(self) -> None:
        """Eternal. ``StoreFenced``: somebody else leads."""
        written = self._before = await until_known(self._read, "totals_unread")
        while True:
            await asyncio.sleep(EVERY_S)
            total = self._before + self._counted()
            if total != written:
                try:
                    await self.write(total)
                except (StoreFull, StoreUnknown) as error:
                    log.info("totals_unwritten", error=error)
                    continue
                written = total

    async def write(self, total: int) -> None:
        """Under our term. ``StoreFenced``: it is over. Unknown: ``StoreUnknown``."""
        record = TotalsRecord(bound=total, term=self._term)
        compares = [CreateRevisionIs(self._keys.coordinator_leader, self._term)]
        if not (await self._store.txn(compares, [Put(self._keys.coordinator_totals, encode_record(record))])).succeeded:
            raise StoreFenced(f"term {self._term} is over: the totals were not written")

    async def _read(self) -> int:
        kv = await self._store.get(self._keys.coordinator_totals)
        record = decode_record(kv.value, TotalsRecord) if kv is not None else None
        return max(0, record.bound) if record is not None else 0
