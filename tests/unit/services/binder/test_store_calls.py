"""The binder's looks at who leads: those who ask at once share one, and none hears what was so before it asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

import pytest
import structlog

from services.binder.core.events import Event, LookedUp
from services.binder.core.instructions import LookUp
from services.binder.io.store_calls import FEW_KEYS, StoreCalls
from shared.errors import StoreUnknown
from shared.ports import Compare, CreateRevisionIs, DeleteKey, KeyValue, Listing, Op, Put, TxnResult
from shared.runtime.observe.metrics import ReservoirQuantiles
from shared.runtime.process.failpoints import Failpoints
from shared.wire.keys import Keys
from shared.wire.records import Intent, IntentPod, encode_record
from tests.memory_etcd import MemoryEtcd
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


def calls_to(store: MemoryStore, post: Callable[[Iterable[Event]], None] = lambda _: None) -> StoreCalls:
    return StoreCalls(
        store, post, keys=KEYS, shard="0", failpoints=Failpoints(), commit_ms=ReservoirQuantiles(),
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


class CommittedLate(MemoryStore):
    """Before one of its reads the intent is committed after all, and then what its transaction rested on is over."""

    def __init__(self, rest: str, read: int) -> None:
        self.server = MemoryEtcd()
        super().__init__(self.server)
        self.rest, self.reads_left = rest, read
        self.server.txn((), (Put(rest, b""),))

    def read(self) -> None:
        if self.reads_left == 0:
            pod = IntentPod(uid="u", ns="default", name="p", rv="1", node="n")
            intent = Intent(plan_id=1, coordinator_term=7, unit=1, pods=(pod,), term=3)
            self.server.txn((), (Put(KEYS.intent("u"), encode_record(intent)),))
            self.server.txn((), (DeleteKey(self.rest),))
        self.reads_left -= 1

    async def get(self, key: str, *, timeout_s: float = 2.0) -> KeyValue | None:
        self.read()
        return await super().get(key)

    async def list_prefix(self, prefix: str, *, timeout_s: float = 5.0) -> Listing:
        self.read()
        return await super().list_prefix(prefix)


@pytest.mark.parametrize("keys", [1, FEW_KEYS + 1])
@pytest.mark.parametrize(
    "rest",
    [
        KEYS.binder_leader("0"),
        KEYS.coordinator_leader,
        KEYS.binder_fence("0"),
        KEYS.binder_shards,
        KEYS.binder_leader("1"),
        KEYS.binder_fence("1"),
    ],
)
async def test_where_what_an_intent_rests_on_is_over_an_intent_that_is_not_seen_never_comes(
    rest: str, keys: int
) -> None:
    """``Committer.failed`` keeps no watch for it then, and gives its room away."""
    wanted = tuple("u" * number for number in range(1, keys + 1))
    reads = over = 0
    while True:
        posted: list[Event] = []
        store = CommittedLate(rest, reads)
        await calls_to(store, posted.extend).look_up(LookUp(1, wanted, ("1",)))
        [seen] = posted
        assert isinstance(seen, LookedUp)
        if store.reads_left >= 0:
            break  # there are no more reads to come before
        found = {
            KEYS.binder_leader("0"): seen.own_term,
            KEYS.coordinator_leader: seen.coordinator_term,
            KEYS.binder_fence("0"): seen.fence,
            KEYS.binder_shards: seen.shards,
            KEYS.binder_leader("1"): seen.lenders["1"][0],
            KEYS.binder_fence("1"): seen.lenders["1"][1],
        }
        if not found[rest]:
            over += 1
            assert "u" in seen.intents
        reads += 1
    assert over
