"""The coordinator's ear at etcd: what operators said, told to the core as levels; settings that apply here."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Sequence

import pytest

from services.coordinator.core.events import ControlSeen, Event
from services.coordinator.io.control import Following, follow_log_level, note_term
from services.coordinator.settings import RUNTIME_SETTINGS, CoordinatorSettings
from shared.errors import StoreFenced, StoreUnknown
from shared.ports import Compare, Op, Put, TxnResult
from shared.runtime.observe.logging import current_level, set_level
from shared.runtime.records.admin import read_terms
from shared.runtime.records.control import set_drained, set_paused
from shared.runtime.records.settings import change_settings
from shared.wire.keys import Keys
from shared.wire.records import RuntimeSettings, encode_record
from tests.memory_etcd import MemoryEtcd
from tests.memory_store import MemoryStore
from tests.patience import PATIENCE_S

KEYS = Keys()
NOW = dt.datetime(2026, 11, 22, tzinfo=dt.UTC)
STARTED = CoordinatorSettings(batch_units=32)


class Ear:
    """Follows one store; ``heard``: what the core was told."""

    def __init__(self) -> None:
        self.store = MemoryStore(MemoryEtcd())
        self.heard: asyncio.Queue[ControlSeen] = asyncio.Queue()
        self.following = Following(self.store, KEYS, STARTED, self._post)

    def _post(self, event: Event) -> None:
        assert isinstance(event, ControlSeen)
        self.heard.put_nowait(event)

    async def next(self) -> ControlSeen:
        async with asyncio.timeout(PATIENCE_S):
            return await self.heard.get()

    async def change(self, **values: int | float | str | None) -> None:
        await change_settings(
            self.store, KEYS, values, by="anna", reason="", expected_number=None, now=NOW,
            validate=RUNTIME_SETTINGS.validate,
        )  # fmt: skip


async def turns() -> None:
    """Turns of the loop, enough for a change in memory to be heard."""
    for _ in range(100):
        await asyncio.sleep(0)


@pytest.fixture
async def ear() -> AsyncIterator[Ear]:
    found = Ear()
    running = asyncio.create_task(found.following.run())
    yield found
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await found.store.close()


async def test_the_core_is_told_once_everything_is_known_and_again_after_each_change(ear: Ear) -> None:
    assert await ear.next() == ControlSeen(settings=STARTED.core())
    await set_paused(ear.store, KEYS, True, by="anna", reason="works", now=NOW)
    seen = await ear.next()
    assert seen.paused is not None
    assert seen.paused.text == "anna: works"
    await set_drained(ear.store, KEYS, "n1", True, by="anna", reason="", now=NOW)
    assert [record.node for record in (await ear.next()).drained] == ["n1"]
    await set_paused(ear.store, KEYS, False, by="anna", reason="", now=NOW)
    seen = await ear.next()
    assert (seen.paused, [record.node for record in seen.drained]) == (None, ["n1"])


async def test_settings_become_those_of_the_core_and_null_brings_back_what_it_was_started_with(ear: Ear) -> None:
    await ear.next()
    await ear.change(offer_deadline_ms=500, preemption_pdb="strict", metrics_every_s=3)
    seen = await ear.next()
    assert seen.settings is not None
    assert (seen.settings.offer_deadline_s, seen.settings.preemption_strict) == (0.5, True)
    assert (seen.settings.batch_units, seen.settings_number) == (32, 1)
    assert ear.following.settings.metrics_every_s == 3
    await ear.change(offer_deadline_ms=None, preemption_pdb=None, metrics_every_s=None)
    assert (await ear.next()).settings == STARTED.core()


async def test_a_value_that_this_version_cannot_use_is_left_out_and_the_others_hold(ear: Ear) -> None:
    await ear.next()
    values: dict[str, int | float | str] = {"batch_units": 0, "plans_in_flight": 5, "of_tomorrow": 1}
    record = RuntimeSettings(number=9, values=values, by="", reason="", time="")
    await ear.store.txn([], [Put(KEYS.settings_current, encode_record(record))])
    seen = await ear.next()
    assert seen.settings is not None
    assert (seen.settings.batch_units, seen.settings.plans_in_flight, seen.settings_number) == (32, 5, 9)
    await ear.store.txn([], [Put(KEYS.settings_current, b"nonsense")])
    assert (await ear.next()).settings == STARTED.core()


async def test_the_log_level_follows_its_setting_and_a_local_one_stays_until_that_changes(ear: Ear) -> None:
    before = current_level()
    following = asyncio.create_task(follow_log_level(ear.store, KEYS, STARTED))
    try:
        await ear.next()
        await ear.change(log_level="warning")
        await turns()
        assert current_level() == "warning"
        set_level("debug")
        await ear.change(batch_units=5)
        await turns()
        assert current_level() == "debug"
        await ear.change(log_level=None)
        await turns()
        assert current_level() == STARTED.log_level
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        set_level(before)


class Lossy(MemoryStore):
    """Loses the answers of the first transactions, which took effect."""

    lost = 2

    async def txn(self, compares: Sequence[Compare], ops: Sequence[Op], *, timeout_s: float = 2.0) -> TxnResult:
        result = await super().txn(compares, ops, timeout_s=timeout_s)
        if self.lost:
            self.lost -= 1
            raise StoreUnknown("no answer")
        return result


async def test_a_term_is_noted_once_although_answers_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.runtime.records.prefix_watch.UNKNOWN_RETRY_S", 0.0)
    server = MemoryEtcd()
    term = server.txn([], [Put(KEYS.coordinator_leader, b"{}")]).revision
    store = Lossy(server)
    await note_term(store, KEYS, term=term, id="c0", url="http://c0")
    assert [(record.term, record.id) for record in await read_terms(store, KEYS)] == [(term, "c0")]
    with pytest.raises(StoreFenced):
        await note_term(store, KEYS, term=term + 1, id="c0", url="http://c0")
