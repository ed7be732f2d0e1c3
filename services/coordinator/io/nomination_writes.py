"""Nominations into etcd, under the leader's term: all that came since the last transaction go with the next.

    submit --> wait, the newest of a pod in place of older ones --one transaction at a time--> NominationStored each
                                                                |--no answer, no room--> the same again

What is written twice is written once, so an unknown outcome is settled by writing again; a transaction that comes late
all the same leaves a node that the next leader looks at first, and no more. Not its job: which pods are nominated, and
whether anybody waits for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import structlog

from services.coordinator.core.events import Event, NominationStored
from services.coordinator.core.instructions import StoreNominations
from shared.errors import StoreFenced, StoreFull, StoreUnknown
from shared.ports import MAX_TXN_OPS, CreateRevisionIs, Delete, Op, Put, Store
from shared.runtime.records.prefix_watch import until_known
from shared.wire.keys import Keys
from shared.wire.records import NominationRecord, decode_record, encode_record

log = structlog.get_logger()

RETRY_S = 0.2


class NominationWrites:
    """One term's."""

    def __init__(self, store: Store, keys: Keys, term: int, post: Callable[[Iterable[Event]], None]) -> None:
        self._store = store
        self._keys = keys
        self._term = term
        self._post = post
        self._waiting: dict[str, tuple[str, str]] = {}
        self._more = asyncio.Event()

    def submit(self, work: StoreNominations) -> None:
        """Write it with the next transaction."""
        self._waiting.update((uid, (pod, node)) for uid, pod, node in work.changes)
        self._more.set()

    async def run(self) -> None:
        """Eternal. ``StoreFenced``: somebody else leads."""
        while True:
            await self._more.wait()
            self._more.clear()
            while self._waiting:
                uids = list(islice(self._waiting, MAX_TXN_OPS))
                await self._write([(uid, *self._waiting.pop(uid)) for uid in uids])

    async def _write(self, changes: Sequence[tuple[str, str, str]]) -> None:
        compares = [CreateRevisionIs(self._keys.coordinator_leader, self._term)]
        ops = [self._op(*change) for change in changes]
        while True:
            try:
                result = await self._store.txn(compares, ops)
            except (StoreFull, StoreUnknown) as error:
                log.warning("nominations_unstored", count=len(changes), error=error)
                await asyncio.sleep(RETRY_S)
                continue
            if not result.succeeded:
                raise StoreFenced(f"term {self._term} is over: nominations were not written")
            self._post([NominationStored(uid, node) for uid, _, node in changes if node])
            return

    def _op(self, uid: str, pod: str, node: str) -> Op:
        key = self._keys.nomination(uid)
        return Put(key, encode_record(NominationRecord(pod=pod, node=node, term=self._term))) if node else Delete(key)


async def stored_nominations(store: Store, keys: Keys) -> tuple[tuple[str, str], ...]:
    """(pod uid, node) as leaders before have left them, "" for one that cannot be read; asked until etcd answers."""
    listing = await until_known(lambda: store.list_prefix(keys.nominations_prefix), "nominations_unread")
    found = ((kv, decode_record(kv.value, NominationRecord)) for kv in listing.items)
    return tuple((keys.last_part(kv.key), record.node if record is not None else "") for kv, record in found)
