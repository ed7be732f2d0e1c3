"""An etcd that is full refuses what a leader tells of itself: that is no reason to lead no more."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from services.coordinator.io import control, queue_history, totals
from services.coordinator.io.cluster_lease import mesh_id
from services.coordinator.rollout import window_ring
from shared.errors import StoreFull
from shared.ports import Compare, CreateRevisionIs, Op, Put, TxnResult
from shared.wire.keys import Keys
from shared.wire.records import QueueHistoryRecord
from tests.memory_store import MemoryStore
from tests.patience import PATIENCE_S

KEYS = Keys()
TERM = 1


class Full(MemoryStore):
    """Full until ``room`` is set; ``refused`` once something was."""

    def __init__(self) -> None:
        super().__init__()
        self.room = True
        self.refused = asyncio.Event()
        self.written = asyncio.Event()

    async def txn(self, compares: Sequence[Compare], ops: Sequence[Op], *, timeout_s: float = 2.0) -> TxnResult:
        if not self.room and any(isinstance(op, Put) for op in ops):
            self.refused.set()
            raise StoreFull("etcdserver: mvcc: database space exceeded")
        done = await super().txn(compares, ops)
        self.written.set()
        return done


async def led() -> Full:
    store = Full()
    await store.txn([CreateRevisionIs(KEYS.coordinator_leader, 0)], [Put(KEYS.coordinator_leader, b"{}")])
    store.room = False
    store.written.clear()
    return store


@pytest.mark.parametrize("what", ["totals", "queue_history", "term"])
async def test_a_leader_goes_on_and_writes_it_when_there_is_room(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(totals, "EVERY_S", 0.01)
    monkeypatch.setattr(queue_history, "EVERY_S", 0.01)
    store = await led()
    term = (await store.get(KEYS.coordinator_leader) or pytest.fail("nobody leads")).create_revision
    work = {
        "totals": lambda: totals.Totals(store, KEYS, term=term, bound=lambda: 7).run(),
        "queue_history": lambda: queue_history.keep(
            store, KEYS, term=term, post=lambda event: None,
            record=lambda now: QueueHistoryRecord(time=now, past={"q": {"cpu": 1}}),
        ),
        "term": lambda: control.note_term(store, KEYS, term=term, id="c-0", url="http://c"),
    }[what]()  # fmt: skip
    task = asyncio.create_task(work)
    async with asyncio.timeout(PATIENCE_S):
        await store.refused.wait()
        store.room = True
        await store.written.wait()
    assert not task.done() or task.exception() is None
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_process_that_starts_while_etcd_is_full_finds_the_meshs_id() -> None:
    store = Full()
    known = await mesh_id(store, KEYS)
    store.room = False
    assert await mesh_id(store, KEYS) == known


def test_windows_of_policies_are_among_what_waits() -> None:
    assert KEYS.can_wait([KEYS.policy_window(number) for number in range(window_ring.MOST_PER_WRITE)])
