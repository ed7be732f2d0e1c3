"""Nominations into etcd, under the leader's term: all that came since the last transaction go with the next.

    submit --> wait, the newest of a pod in place of older ones --one transaction at a time--> NominationStored each
                                                                |--no answer, no room--> the same again

What is written twice is written once, so an unknown outcome is settled by writing again. A transaction that got no
answer could still be applied after later ones: the next one moves the *fence*, a key whose mod_revision every one
compares, and none that was made before it comes after it. Not its job: which pods are nominated, and whether anybody
waits for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import structlog

from services.coordinator.core.events import Event, NominationStored
from services.coordinator.core.instructions import StoreNominations
from shared.errors import StoreFenced, StoreFull, StoreUnknown
from shared.ports import MAX_TXN_OPS, Compare, CreateRevisionIs, DeleteKey, ModRevisionIs, Op, Put, Store
from shared.runtime.process.failpoints import Failpoints
from shared.runtime.records.prefix_watch import until_known
from shared.wire.keys import Keys
from shared.wire.records import NominationRecord, decode_record, encode_record

log = structlog.get_logger()

RETRY_S = 0.2

AT_ONCE = MAX_TXN_OPS - 1
"""Nominations in a transaction, which may have to move the fence too."""

Change = tuple[str, str, str, int]
"""Pod uid, ``namespace/name``, node, and the number of the ``StoreNominations``."""


class NominationWrites:
    """One term's."""

    def __init__(
        self, store: Store, keys: Keys, term: int, post: Callable[[Iterable[Event]], None], failpoints: Failpoints
    ) -> None:
        self._store = store
        self._keys = keys
        self._term = term
        self._post = post
        self._failpoints = failpoints
        self._waiting: dict[str, tuple[str, str, int]] = {}
        self._more = asyncio.Event()
        self._fence = 0
        """Its mod_revision, as far as is known; the first refusal tells which it is."""
        self._fence_next = False

    def submit(self, work: StoreNominations) -> None:
        """Write it with the next transaction."""
        self._waiting.update((uid, (pod, node, work.number)) for uid, pod, node in work.changes)
        self._more.set()

    async def run(self) -> None:
        """Eternal. ``StoreFenced``: somebody else leads."""
        while True:
            await self._more.wait()
            self._more.clear()
            while self._waiting:
                uids = list(islice(self._waiting, AT_ONCE))
                await self._write([(uid, *self._waiting.pop(uid)) for uid in uids])

    async def _write(self, changes: Sequence[Change]) -> None:
        stored = [NominationStored(uid, node, number) for uid, _, node, number in changes if node]
        ops = [self._op(uid, pod, node) for uid, pod, node, _ in changes]
        if stored:
            self._failpoints.reach("before_nominate")
        while True:
            try:
                if await self._written(ops):
                    break
            except (StoreFull, StoreUnknown) as error:
                self._fence_next = True
                log.info("nominations_unstored", count=len(changes), error=error)
                await asyncio.sleep(RETRY_S)
        if stored:
            self._failpoints.reach("after_nominate")
        self._post(stored)

    async def _written(self, ops: Sequence[Op]) -> bool:
        """False: the fence is not where it was thought to be, and is known now."""
        leader, fence = self._keys.coordinator_leader, self._keys.nominations_fence
        compares: list[Compare] = [CreateRevisionIs(leader, self._term), ModRevisionIs(fence, self._fence)]
        moved = [Put(fence, b"%d" % self._term)] if self._fence_next else []
        result = await self._store.txn(compares, [*ops, *moved])
        if result.succeeded:
            if moved:
                self._fence, self._fence_next = result.revision, False
            return True
        leads = await self._store.get(leader)
        if leads is None or leads.create_revision != self._term:
            raise StoreFenced(f"term {self._term} is over: nominations were not written")
        found = await self._store.get(fence)
        self._fence = found.mod_revision if found is not None else 0
        return False

    def _op(self, uid: str, pod: str, node: str) -> Op:
        key = self._keys.nomination(uid)
        return (
            Put(key, encode_record(NominationRecord(pod=pod, node=node, term=self._term))) if node else DeleteKey(key)
        )


async def stored_nominations(store: Store, keys: Keys) -> tuple[tuple[str, str], ...]:
    """(pod uid, node) as leaders before have left them, "" for one that cannot be read; asked until etcd answers."""
    listing = await until_known(lambda: store.list_prefix(keys.nominations_prefix), "nominations_unread")
    found = ((kv, decode_record(kv.value, NominationRecord)) for kv in listing.items)
    return tuple((keys.last_part(kv.key), record.node if record is not None else "") for kv, record in found)
