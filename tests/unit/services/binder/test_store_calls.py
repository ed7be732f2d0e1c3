"""The binder's looks at who leads: those who ask at once share one, and none hears what was so before it asked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from services.binder.io.store_calls import StoreCalls
from shared.errors import StoreUnknown
from shared.ports import Compare, CreateRevisionIs, Op, TxnResult
from shared.runtime.observe.metrics import ReservoirQuantiles
from shared.runtime.process.failpoints import Failpoints
from shared.wire.keys import Keys
from tests.memory_store import MemoryStore

KEYS = Keys("/looks")


class SlowStore(MemoryStore):
    """Each transaction looks at once, and answers when it is let; ``asked``: the coordinator's term in each."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []
        self.answers: list[asyncio.Event] = []
        self.leads = True

    async def txn(self, compares: Sequence[Compare], ops: Sequence[Op], *, timeout_s: float = 2.0) -> TxnResult:
        del ops, timeout_s
        leads, answer = self.leads, asyncio.Event()
        coordinator = compares[1]
        assert isinstance(coordinator, CreateRevisionIs)
        self.asked.append(coordinator.revision)
        self.answers.append(answer)
        await answer.wait()
        return TxnResult(leads, 1)


def calls_to(store: MemoryStore) -> StoreCalls:
    return StoreCalls(
        store, lambda _: None, keys=KEYS, shard="0", failpoints=Failpoints(), commit_ms=ReservoirQuantiles(),
        log=structlog.get_logger(),
    )  # fmt: skip


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_those_who_ask_while_a_look_is_out_share_the_next_one() -> None:
    store = SlowStore()
    calls = calls_to(store)
    first = [asyncio.create_task(calls.leads(2, 1)) for _ in range(32)]
    await settle()
    later = [asyncio.create_task(calls.leads(2, 1)) for _ in range(32)]
    await settle()
    assert store.asked == [1]
    store.leads = False  # from now on
    store.answers[0].set()
    await settle()
    assert store.asked == [1, 1]
    store.answers[1].set()
    assert await asyncio.gather(*first) == [True] * 32
    assert await asyncio.gather(*later) == [False] * 32


async def test_other_terms_are_asked_about_by_themselves() -> None:
    store = SlowStore()
    calls = calls_to(store)
    asking = [asyncio.create_task(calls.leads(2, term)) for term in (1, 3, 1)]
    for number in range(2):
        await settle()
        store.answers[number].set()
    assert await asyncio.gather(*asking) == [True] * 3
    assert store.asked == [1, 3]


async def test_who_gives_up_asking_takes_the_answer_from_nobody() -> None:
    store = SlowStore()
    calls = calls_to(store)
    gone, stays = (asyncio.create_task(calls.leads(2, 1)) for _ in range(2))
    await settle()
    gone.cancel()
    await settle()
    store.answers[0].set()
    assert await stays


async def test_a_store_that_does_not_answer_confirms_nobody() -> None:
    class Silent(MemoryStore):
        async def txn(self, compares: Sequence[Compare], ops: Sequence[Op], *, timeout_s: float = 2.0) -> TxnResult:
            raise StoreUnknown("no answer")

    assert not await calls_to(Silent()).leads(2, 1)
