"""The binder's calls to etcd: transactions, looks at what they left, lists of intents. Each ends in an event.

Not its job: retrying a transaction, or deciding what an unknown outcome means; the core does (``commit.py``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from services.binder.core.events import (
    CommitRefused,
    Committed,
    CommitUnknown,
    Event,
    IntentsListed,
    LookedUp,
    LookUpFailed,
    StoredIntent,
)
from services.binder.core.instructions import Commit, LookUp
from shared.errors import StoreError, StoreRejected
from shared.model.units.unit import cause_id
from shared.ports import CreateRevisionIs, KeyValue, Store
from shared.runtime.observe.hops import Hops
from shared.runtime.observe.metrics import ReservoirQuantiles
from shared.runtime.process.failpoints import Failpoints
from shared.wire.keys import Keys
from shared.wire.records import Intent, decode_record

LIST_RETRY_S = 0.2
FEW_KEYS = 8
"""Up to so many intents are looked up one by one, more by one listing."""


class StoreCalls:
    """Carries out ``Commit``, ``LookUp`` and ``ListIntents`` of one term. ``log``: a bound logger."""

    def __init__(
        self,
        store: Store,
        post: Callable[[Iterable[Event]], None],
        *,
        keys: Keys,
        shard: str,
        failpoints: Failpoints,
        commit_ms: ReservoirQuantiles,
        log: Any,
        hops: Hops | None = None,
    ) -> None:
        self._hops = hops or Hops()
        self._store = store
        self._post = post
        self._keys = keys
        self._shard = shard
        self._failpoints = failpoints
        self._commit_ms = commit_ms
        self._log = log
        self._looks: dict[tuple[int, int], asyncio.Task[bool]] = {}
        """Looks at who leads that are not sent yet, by the terms that are asked about."""
        self._looking = asyncio.Lock()

    async def commit(self, commit: Commit) -> None:
        """Answers ``Committed``, ``CommitRefused`` or ``CommitUnknown``."""
        for step in ("commit", *commit.steps):
            self._failpoints.reach(f"before_{step}")
        started = time.perf_counter()
        try:
            result = await self._store.txn(commit.compares, commit.ops)
        except StoreRejected as error:
            self._log.warning("commit_rejected", batch=commit.batch, error=error)
            self._post((CommitRefused(commit.batch),))
            return
        except StoreError as error:
            self._log.warning("commit_unknown", batch=commit.batch, error=error)
            self._post((CommitUnknown(commit.batch),))
            return
        self._commit_ms.record((time.perf_counter() - started) * 1e3)
        for step in ("commit", *commit.steps):
            self._failpoints.reach(f"after_{step}")
        if not result.succeeded:
            self._log.info("commit_refused", batch=commit.batch, revision=result.revision)
            self._post((CommitRefused(commit.batch),))
            return
        self._log.debug("batch_committed", batch=commit.batch, ops=len(commit.ops), revision=result.revision)
        if self._hops.on:
            took_s = time.perf_counter() - started
            for term, unit in commit.units:
                self._hops.line("unit_committed", cause_id(term, unit), revision=result.revision)
                self._hops.span("commit", cause_id(term, unit), took_s, revision=result.revision)
        self._post((Committed(commit.batch, result.revision),))

    async def look_up(self, look_up: LookUp) -> None:
        """Answers ``LookedUp`` or ``LookUpFailed``. Every read is linearizable."""
        try:
            own = await self._store.get(self._keys.binder_leader(self._shard))
            coordinator = await self._store.get(self._keys.coordinator_leader)
            fence, shards = await self._fence(self._shard), await self._store.get(self._keys.binder_shards)
            lenders = {shard: await self._lender(shard) for shard in look_up.lenders}
            if len(look_up.unit_keys) > FEW_KEYS:
                listing = await self._store.list_prefix(self._keys.intents_prefix)
                found: list[KeyValue | None] = list(listing.items)
            else:
                found = [await self._store.get(self._keys.intent(key)) for key in look_up.unit_keys]
        except StoreError as error:
            self._log.warning("lookup_failed", batch=look_up.batch, error=error)
            self._post((LookUpFailed(look_up.batch),))
            return
        intents = self._intents(found)
        wanted = {key: intents[key] for key in look_up.unit_keys if key in intents}
        terms = [kv.create_revision if kv is not None else 0 for kv in (own, coordinator)]
        layout = shards.mod_revision if shards is not None else 0
        self._post((LookedUp(look_up.batch, terms[0], terms[1], wanted, fence, layout, lenders),))

    async def leads(self, term: int, coordinator_term: int) -> bool:
        """Whether etcd names us and the coordinator of that term as leaders now; False too where it does not say. Those
        who ask while a look is out share the next one: what it says is never from before they asked."""
        terms = term, coordinator_term
        look = self._looks.get(terms)
        if look is None:
            look = self._looks[terms] = asyncio.create_task(self._look(terms))
        return await asyncio.shield(look)

    async def _look(self, terms: tuple[int, int]) -> bool:
        async with self._looking:
            del self._looks[terms]
            compares = (
                CreateRevisionIs(self._keys.binder_leader(self._shard), terms[0]),
                CreateRevisionIs(self._keys.coordinator_leader, terms[1]),
            )
            try:
                return (await self._store.txn(compares, ())).succeeded
            except StoreError as error:
                self._log.warning("terms_unconfirmed", error=error)
                return False

    async def coordinator_term(self) -> int:
        """The coordinator's term as etcd has it now, 0 for none. Unknown: ``StoreUnknown``."""
        kv = await self._store.get(self._keys.coordinator_leader)
        return kv.create_revision if kv is not None else 0

    async def list_intents(self) -> None:
        """Answers ``IntentsListed``, however long it takes."""
        while True:
            try:
                listing = await self._store.list_prefix(self._keys.intents_prefix)
                fence = await self._fence(self._shard)
            except StoreError as error:
                self._log.warning("intents_unlisted", error=error)
                await asyncio.sleep(LIST_RETRY_S)
                continue
            self._post((IntentsListed(self._intents(listing.items), fence, listing.revision),))
            return

    async def _fence(self, shard: str) -> int:
        kv = await self._store.get(self._keys.binder_fence(shard))
        return kv.mod_revision if kv is not None else 0

    async def _lender(self, shard: str) -> tuple[int, int]:
        """Term and fence of the shard's leader."""
        leader = await self._store.get(self._keys.binder_leader(shard))
        return (leader.create_revision if leader is not None else 0), await self._fence(shard)

    def _intents(self, items: Iterable[KeyValue | None]) -> Mapping[str, StoredIntent]:
        return {
            self._keys.last_part(kv.key): StoredIntent(decode_record(kv.value, Intent), kv.create_revision)
            for kv in items
            if kv is not None
        }
