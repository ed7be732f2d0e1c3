"""Nominations into etcd: all that wait in one transaction, the newest of a pod, under the term, until etcd answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import pytest

from services.coordinator.core.events import Event, NominationStored
from services.coordinator.core.instructions import StoreNominations
from services.coordinator.io import nomination_writes
from services.coordinator.io.nomination_writes import AT_ONCE, NominationWrites, stored_nominations
from shared.errors import StoreFenced, StoreUnknown
from shared.ports import MAX_TXN_OPS, Compare, DeleteKey, Op, Put, TxnResult
from shared.runtime.process.failpoints import Failpoints
from shared.wire.keys import Keys
from tests.memory_store import MemoryStore

KEYS = Keys()


class CountingStore(MemoryStore):
    """``lost``: so many transactions from now on have no answer, though each takes effect."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = 0
        self.sizes: list[int] = []

    async def txn(self, compares: Sequence[Compare], ops: Sequence[Op], *, timeout_s: float = 2.0) -> TxnResult:
        result = await super().txn(compares, ops)
        self.sizes.append(len(ops))
        if self.lost:
            self.lost -= 1
            raise StoreUnknown("the connection was cut")
        return result


async def leading(store: MemoryStore) -> int:
    """Our term."""
    return (await store.txn((), [Put(KEYS.coordinator_leader, b"{}")])).revision


async def written(store: CountingStore, *works: StoreNominations, term: int = 0, lost: int = 0) -> list[Event]:
    """What is heard until all of it is written; or raised."""
    heard: list[Event] = []
    newest = {uid: node for work in works for uid, _, node in work.changes}
    wanted = {(uid, node) for uid, node in newest.items() if node}
    done = asyncio.Event()

    def post(events: Iterable[Event]) -> None:
        heard.extend(events)
        if wanted <= {(one.uid, one.node) for one in heard if isinstance(one, NominationStored)}:
            done.set()

    writes = NominationWrites(store, KEYS, term or await leading(store), post, Failpoints())
    store.sizes.clear()
    store.lost = lost
    for work in works:
        writes.submit(work)
    running = asyncio.ensure_future(writes.run())
    finished = asyncio.ensure_future(done.wait())
    await asyncio.wait((running, finished), return_when=asyncio.FIRST_COMPLETED)
    finished.cancel()
    if running.done():
        running.result()
    running.cancel()
    return heard


def nominated(*uids: str, node: str = "n1", number: int = 1) -> StoreNominations:
    return StoreNominations(tuple((uid, f"default/{uid}", node) for uid in uids), number)


async def test_all_that_wait_are_written_at_once_and_read_back() -> None:
    store = CountingStore()
    heard = await written(store, nominated("a", "b"), nominated("c", node="n2", number=2))
    a, b, c = NominationStored("a", "n1", 1), NominationStored("b", "n1", 1), NominationStored("c", "n2", 2)
    assert heard == [a, b, c]
    assert store.sizes == [3]
    assert await stored_nominations(store, KEYS) == (("a", "n1"), ("b", "n1"), ("c", "n2"))


async def test_no_transaction_is_larger_than_etcd_takes() -> None:
    store = CountingStore()
    await written(store, nominated(*(f"uid-{number}" for number in range(AT_ONCE + 3))))
    assert store.sizes == [AT_ONCE, 3]
    assert AT_ONCE < MAX_TXN_OPS, "there is room for the fence"


async def test_a_transaction_without_an_answer_is_made_again_and_moves_the_fence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nomination_writes, "RETRY_S", 0.0)
    store = CountingStore()
    assert await written(store, nominated("a"), lost=2) == [NominationStored("a", "n1", 1)]
    assert store.sizes[0] == 1
    assert await stored_nominations(store, KEYS) == (("a", "n1"),)
    assert await store.get(KEYS.nominations_fence) is not None


class LateStore(CountingStore):
    """The first transaction has no answer, and arrives when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.late: tuple[Sequence[Compare], Sequence[Op]] | None = None

    async def txn(self, compares: Sequence[Compare], ops: Sequence[Op], *, timeout_s: float = 2.0) -> TxnResult:
        if self.late is None and any(isinstance(op, Put) and op.key == KEYS.nomination("a") for op in ops):
            self.late = compares, ops
            raise StoreUnknown("the connection was cut")
        return await super().txn(compares, ops, timeout_s=timeout_s)


@pytest.mark.parametrize("fenced", [True, False])
async def test_a_transaction_without_an_answer_cannot_come_after_later_ones(
    monkeypatch: pytest.MonkeyPatch, *, fenced: bool
) -> None:
    """And where none compares the fence it can."""
    monkeypatch.setattr(nomination_writes, "RETRY_S", 0.0)
    store, heard, more = LateStore(), list[Event](), asyncio.Event()

    def post(events: Iterable[Event]) -> None:
        heard.extend(events)
        more.set()

    writes = NominationWrites(store, KEYS, await leading(store), post, Failpoints())
    running = asyncio.ensure_future(writes.run())
    for number, node in enumerate(("n1", "n2"), start=1):
        more.clear()
        writes.submit(nominated("a", node=node, number=number))
        await more.wait()
    running.cancel()
    assert store.late is not None
    compares, ops = store.late
    await store.txn([one for one in compares if fenced or one.key != KEYS.nominations_fence], ops)
    assert heard == [NominationStored("a", "n1", 1), NominationStored("a", "n2", 2)]
    assert await stored_nominations(store, KEYS) == (("a", "n2" if fenced else "n1"),)


async def test_a_leader_goes_on_from_the_fence_that_those_before_have_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nomination_writes, "RETRY_S", 0.0)
    store = CountingStore()
    await written(store, nominated("a"), lost=1)
    await store.txn((), [DeleteKey(KEYS.coordinator_leader)])
    assert await written(store, nominated("b")) == [NominationStored("b", "n1", 1)]
    assert await stored_nominations(store, KEYS) == (("a", "n1"), ("b", "n1"))


async def test_a_nomination_that_is_over_is_deleted_and_one_that_cannot_be_read_is_told_as_none() -> None:
    store = CountingStore()
    await written(store, nominated("a", "b"), StoreNominations((("a", "", ""),), 2))
    assert await stored_nominations(store, KEYS) == (("b", "n1"),)
    await store.txn((), [Put(KEYS.nomination("odd"), b"no record")])
    assert await stored_nominations(store, KEYS) == (("b", "n1"), ("odd", ""))


async def test_a_leader_of_before_writes_none() -> None:
    store = CountingStore()
    with pytest.raises(StoreFenced):
        await written(store, nominated("a"), term=await leading(store) + 7)
    assert await stored_nominations(store, KEYS) == ()
