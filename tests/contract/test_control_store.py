"""What operators say, settings, terms and the audit log: one file, run on memory and on a real etcd alike."""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
from collections.abc import AsyncIterator, Mapping

import pytest

from shared.adapters.etcd.channel import EtcdSettings
from shared.adapters.etcd.store import EtcdStore
from shared.errors import Conflict, InvalidValue, StoreFenced
from shared.ports import Compare, DeleteKey, KeyValue, Op, Put, Store, TxnResult
from shared.runtime.records import admin as admin_records
from shared.runtime.records import control as control_store
from shared.runtime.records import settings as settings_store
from shared.runtime.records.admin import append_audit, read_audit, read_terms, write_term
from shared.runtime.records.control import read_control, set_drained, set_paused
from shared.runtime.records.settings import Value, change_settings, read_settings, read_settings_history
from shared.wire.keys import Keys
from shared.wire.records import Drained, encode_record
from tests.memory_etcd import MemoryEtcd
from tests.memory_store import MemoryStore

NOW = dt.datetime(2026, 11, 22, 3, 4, 5, 678_000, tzinfo=dt.UTC)
LATER = NOW + dt.timedelta(seconds=1)
_numbers = itertools.count()


@pytest.fixture(params=["memory", pytest.param("etcd", marks=pytest.mark.etcd)])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    if request.param == "memory":
        found: Store = MemoryStore(MemoryEtcd())
    else:
        found = EtcdStore(EtcdSettings(endpoints=(request.getfixturevalue("etcd_process").endpoint,)))
    yield found
    await found.close()


@pytest.fixture
def keys() -> Keys:
    return Keys.under(f"/control/{next(_numbers)}/")


class Raced:
    """A store in which somebody else writes ``key`` right before each of the next ``times`` transactions."""

    def __init__(self, store: Store, key: str, times: int) -> None:
        self._store = store
        self._key = key
        self._times = times

    async def get(self, key: str, *, timeout_s: float = 2.0) -> KeyValue | None:
        return await self._store.get(key, timeout_s=timeout_s)

    async def list_prefix(self, prefix: str) -> object:
        return await self._store.list_prefix(prefix)

    async def txn(self, compares: list[Compare], ops: list[Op], *, timeout_s: float = 2.0) -> TxnResult:
        if self._times:
            self._times -= 1
            kv = await self._store.get(self._key)
            await self._store.txn([], [Put(self._key, kv.value if kv is not None else b"5")])
        return await self._store.txn(compares, ops, timeout_s=timeout_s)


# --- pause ----------------------------------------------------------------------------------------------------------


async def test_a_pause_holds_until_it_is_taken_back_and_names_who_said_it_first(store: Store, keys: Keys) -> None:
    assert (await read_control(store, keys)).paused is None
    paused = await set_paused(store, keys, True, by="anna", reason="works", now=NOW)
    again = await set_paused(store, keys, True, by="ben", reason="me too", now=LATER)
    assert paused is not None
    assert again == paused == (await read_control(store, keys)).paused
    assert paused.since == "2026-11-22T03:04:05.678Z"
    assert await set_paused(store, keys, False, by="ben", reason="", now=LATER) is None
    assert await set_paused(store, keys, False, by="ben", reason="", now=LATER) is None
    assert (await read_control(store, keys)).paused is None


async def test_a_pause_that_cannot_be_read_is_still_a_pause(store: Store, keys: Keys) -> None:
    await store.txn([], [Put(keys.control_paused, b"\xff")])
    assert (await read_control(store, keys)).paused is not None


async def test_text_of_people_is_cut_and_has_no_control_characters(store: Store, keys: Keys) -> None:
    paused = await set_paused(store, keys, True, by="a\nb", reason="x\x1b[31m" + "y" * 999, now=NOW)
    assert paused is not None
    assert paused.by == "a b"
    assert len(paused.reason) <= 256
    assert paused.reason.isprintable()


# --- drained nodes --------------------------------------------------------------------------------------------------


async def test_nodes_are_drained_and_resumed_one_by_one(store: Store, keys: Keys) -> None:
    for node in ("n/0", "n1"):
        await set_drained(store, keys, node, True, by="anna", reason="disk", now=NOW)
    again = await set_drained(store, keys, "n1", True, by="ben", reason="", now=LATER)
    assert again is not None
    assert again.by == "anna"
    assert set((await read_control(store, keys)).drained) == {"n/0", "n1"}
    assert await set_drained(store, keys, "n/0", False, by="anna", reason="", now=LATER) is None
    assert set((await read_control(store, keys)).drained) == {"n1"}


async def test_a_node_is_drained_by_its_key_whatever_the_record_says(store: Store, keys: Keys) -> None:
    """By the record ``other`` was drained, and to resume it deleted a key that was not there: it stayed drained."""
    record = encode_record(Drained(node="other", by="etcdctl", reason="", since=""))
    await store.txn([], [Put(keys.control_drained("n0"), record)])
    drained = (await read_control(store, keys)).drained
    assert {name: found.node for name, found in drained.items()} == {"n0": "n0"}


async def test_drained_nodes_are_bounded(store: Store, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_store, "MAX_DRAINED", 2)
    for node in ("a", "b"):
        await set_drained(store, keys, node, True, by="anna", reason="", now=NOW)
    with pytest.raises(InvalidValue, match="2 nodes are drained already"):
        await set_drained(store, keys, "c", True, by="anna", reason="", now=NOW)
    with pytest.raises(InvalidValue, match="node"):
        await set_drained(store, keys, "", True, by="anna", reason="", now=NOW)


# --- settings -------------------------------------------------------------------------------------------------------


def anything(_: Mapping[str, Value]) -> None:
    """Every value will do."""


async def change(
    store: Store, keys: Keys, values: Mapping[str, Value | None], number: int | None = None
) -> tuple[int, dict[str, Value]]:
    record = await change_settings(
        store, keys, values, by="anna", reason="", expected_number=number, now=NOW, validate=anything
    )
    return record.number, record.values


async def test_changes_of_settings_are_numbered_and_null_takes_one_back(store: Store, keys: Keys) -> None:
    assert await read_settings(store, keys) is None
    assert await change(store, keys, {"a": 1, "b": "x"}, 0) == (1, {"a": 1, "b": "x"})
    assert await change(store, keys, {"a": None, "c": 2.5}) == (2, {"b": "x", "c": 2.5})
    assert await change(store, keys, {"c": 2.5}) == (2, {"b": "x", "c": 2.5}), "nothing changed, nothing is written"
    history = await read_settings_history(store, keys)
    assert [record.number for record in history] == [2, 1]
    assert history[0] == await read_settings(store, keys)


async def test_a_change_against_another_number_is_refused(store: Store, keys: Keys) -> None:
    await change(store, keys, {"a": 1})
    with pytest.raises(Conflict, match="number 1 holds by now, 0 was expected"):
        await change(store, keys, {"a": 2}, 0)
    assert await read_settings_history(store, keys) == [await read_settings(store, keys)]


async def test_a_change_that_is_not_valid_writes_nothing(store: Store, keys: Keys) -> None:
    def refuse(values: Mapping[str, Value]) -> None:
        raise InvalidValue(f"{sorted(values)}")

    await change(store, keys, {"a": 1})
    with pytest.raises(InvalidValue, match=r"\['a', 'b'\]"):
        await change_settings(
            store, keys, {"b": 2}, by="anna", reason="", expected_number=None, now=NOW, validate=refuse
        )
    assert (await read_settings_history(store, keys))[0].values == {"a": 1}


async def test_two_changes_at_once_both_hold(store: Store, keys: Keys) -> None:
    await asyncio.gather(*(change(store, keys, {f"s{number}": number}) for number in range(4)))
    record = await read_settings(store, keys)
    assert record is not None
    assert (record.number, record.values) == (4, {f"s{number}": number for number in range(4)})


async def test_a_change_that_loses_race_after_race_is_refused(store: Store, keys: Keys) -> None:
    await change(store, keys, {"a": 1})
    raced = Raced(store, keys.settings_current, times=100)
    with pytest.raises(Conflict, match="others are changing them"):
        await change(raced, keys, {"a": 2})  # type: ignore[arg-type]
    assert (await read_settings_history(store, keys))[0].values == {"a": 1}


async def test_the_history_of_settings_is_bounded(store: Store, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_store, "HISTORY_LIMIT", 3)
    for number in range(6):
        await change(store, keys, {"a": number})
    assert [record.number for record in await read_settings_history(store, keys)] == [6, 5, 4]


# --- terms ----------------------------------------------------------------------------------------------------------


async def lead(store: Store, keys: Keys) -> int:
    await store.txn([], [DeleteKey(keys.coordinator_leader)])
    return (await store.txn([], [Put(keys.coordinator_leader, b"{}")])).revision


async def test_each_term_is_noted_once_newest_first(store: Store, keys: Keys) -> None:
    terms = []
    for _ in range(3):
        terms.append(await lead(store, keys))
        for now in (NOW, LATER):
            await write_term(store, keys, term=terms[-1], id="c0", url="http://c0", now=now)
    found = await read_terms(store, keys)
    assert [record.term for record in found] == terms[::-1]
    assert {record.began for record in found} == {"2026-11-22T03:04:05.678Z"}


async def test_a_deposed_leader_notes_no_term(store: Store, keys: Keys) -> None:
    old = await lead(store, keys)
    await lead(store, keys)
    with pytest.raises(StoreFenced):
        await write_term(store, keys, term=old, id="c0", url="", now=NOW)
    assert await read_terms(store, keys) == []


async def test_terms_are_bounded(store: Store, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_records, "TERMS_KEPT", 2)
    for _ in range(4):
        term = await lead(store, keys)
        await write_term(store, keys, term=term, id="c0", url="", now=NOW)
    newest, _ = await read_terms(store, keys)
    assert newest.term == term


async def test_an_unreadable_record_does_not_begin_the_numbers_anew(store: Store, keys: Keys) -> None:
    for units in (1, 2, 3):
        await change(store, keys, {"a": units})
    before = await read_settings_history(store, keys)
    await store.txn([], [Put(keys.settings_current, b"\xff")])
    assert await change(store, keys, {"b": 9}, 0) == (4, {"b": 9})
    newest, *others = await read_settings_history(store, keys)
    assert newest == await read_settings(store, keys)
    assert others == before


# --- audit ----------------------------------------------------------------------------------------------------------


async def note(store: Store, keys: Keys, target: str = "n0", by: str = "anna", term: int | None = None) -> int:
    if term is None:
        leader = await store.get(keys.coordinator_leader)
        term = leader.create_revision if leader is not None else await lead(store, keys)
    record = await append_audit(
        store, keys, term=term, by=by, role="operator", route="POST /v1/nodes/{name}/drain", target=target,
        reason="disk", request_id="r1", now=NOW,
    )  # fmt: skip
    return record.number


async def test_a_deposed_leader_notes_nothing(store: Store, keys: Keys) -> None:
    old = await lead(store, keys)
    assert await note(store, keys, term=old) == 1
    new = await lead(store, keys)
    with pytest.raises(StoreFenced, match="is over"):
        await note(store, keys, term=old)
    await store.txn([], [DeleteKey(keys.coordinator_leader)])
    with pytest.raises(StoreFenced, match="is over"):
        await note(store, keys, term=new)
    assert len(await read_audit(store, keys)) == 1


@pytest.mark.parametrize("damage", [b"abc", b"", b"9" * 30, None])
async def test_a_damaged_number_overwrites_no_audit_record(store: Store, keys: Keys, damage: bytes | None) -> None:
    assert [await note(store, keys, target) for target in ("n0", "n1", "n2")] == [1, 2, 3]
    await store.txn([], [DeleteKey(keys.audit_last) if damage is None else Put(keys.audit_last, damage)])
    assert [await note(store, keys, target) for target in ("n3", "n4")] == [4, 5]
    assert [record.target for record in await read_audit(store, keys)] == ["n4", "n3", "n2", "n1", "n0"]


async def test_audit_records_are_numbered_without_a_gap_also_at_once(store: Store, keys: Keys) -> None:
    await lead(store, keys)
    assert sorted(await asyncio.gather(*(note(store, keys, f"n{n}") for n in range(5)))) == [1, 2, 3, 4, 5]
    found = await read_audit(store, keys)
    assert [record.number for record in found] == [5, 4, 3, 2, 1]
    assert {record.target for record in found} == {"n0", "n1", "n2", "n3", "n4"}


async def test_the_audit_log_is_bounded_and_goes_on_counting(
    store: Store, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_records, "AUDIT_KEPT", 3)
    monkeypatch.setattr(admin_records, "PRUNE_EVERY", 2)
    for _ in range(6):
        await note(store, keys)
    assert [record.number for record in await read_audit(store, keys)] == [6, 5, 4]


@pytest.mark.parametrize("fair", [True, False])
async def test_one_callers_flood_pushes_out_no_record_of_others(
    store: Store, keys: Keys, monkeypatch: pytest.MonkeyPatch, fair: bool
) -> None:
    """``fair`` False: the ablation, by age alone."""
    monkeypatch.setattr(admin_records, "AUDIT_KEPT", 6)
    monkeypatch.setattr(admin_records, "PRUNE_EVERY", 2)
    if not fair:
        monkeypatch.setattr(
            admin_records, "surplus", lambda records, kept: sorted(record.number for record in records)[:-kept]
        )
    for by in ("anna", "ben"):
        await note(store, keys, by=by)
    for _ in range(20):
        await note(store, keys, by="mallory")
    found = [record.by for record in await read_audit(store, keys)]
    assert len(found) == 6
    assert ({"anna", "ben"} <= set(found)) is fair


async def test_a_change_that_cannot_be_noted_is_refused(store: Store, keys: Keys) -> None:
    await note(store, keys)
    raced = Raced(store, keys.audit_last, times=1000)
    with pytest.raises(Conflict):
        await note(raced, keys)  # type: ignore[arg-type]
    assert len(await read_audit(store, keys)) == 1
