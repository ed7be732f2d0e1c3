"""What is known of policies stays: weights that etcd has forgotten are put back, and no change overwrites another."""

from __future__ import annotations

import asyncio

import pytest

from services.coordinator.core.events import Event, PointerSeen
from services.coordinator.rollout.pointer import follow
from shared.decide.stages import Stage
from shared.errors import Conflict
from shared.policy.registry import ref_of
from shared.policy.weights import shipped_bytes
from shared.ports import DeleteKey, Put
from shared.runtime.records.policies import get_weights, read_history
from shared.runtime.records.policy_changes import activate
from shared.wire.keys import Keys
from tests.memory_store import MemoryStore


async def test_shipped_weights_that_were_forgotten_are_put_back():
    store, keys, ref = MemoryStore(), Keys(), ref_of("marl-dqn")
    for _ in range(2):
        pointer = await activate(store, keys, "marl-dqn", stage=Stage.ACTIVE, percent=None, by="olga", new_mesh=True)
        assert pointer.active == ref
        assert await get_weights(store, keys, ref.sha256) == shipped_bytes("marl-dqn")
        await store.txn([], [DeleteKey(keys.policy_weights(ref.sha256))])


async def test_a_heuristic_needs_none():
    store, keys = MemoryStore(), Keys()
    await activate(store, keys, "kube-default", stage=Stage.ACTIVE, percent=None, by="olga", new_mesh=True)
    assert (await store.list_prefix(keys.policy_weights_prefix)).items == ()


async def test_no_change_is_overwritten_in_the_history_after_the_pointer_was_deleted():
    """As ``read_pointer`` asks people to do with a pointer that cannot be read."""
    store, keys = MemoryStore(), Keys()
    for stage in (Stage.SHADOW, Stage.ACTIVE):
        await activate(store, keys, "marl-dqn", stage=stage, percent=None, by="olga", new_mesh=True)
    before = await read_history(store, keys)
    await store.txn([], [DeleteKey(keys.policies_active)])
    pointer = await activate(store, keys, "least-allocated", stage=Stage.ACTIVE, percent=None, by="otto", new_mesh=True)
    assert pointer.number == 3
    assert [record.pointer.by for record in await read_history(store, keys)] == ["olga", "olga", "otto"]
    assert (await read_history(store, keys))[:2] == before


async def test_a_leader_that_seeds_the_pointer_anew_keeps_the_history():
    store, keys = MemoryStore(), Keys()
    led = await store.txn([], [Put(keys.coordinator_leader, b"")])
    await activate(store, keys, "least-allocated", stage=Stage.ACTIVE, percent=None, by="olga", new_mesh=True)
    await store.txn([], [DeleteKey(keys.policies_active)])
    seen: asyncio.Queue[Event] = asyncio.Queue()
    following = asyncio.create_task(follow(store, keys, policy="kube-default", term=led.revision, post=seen.put_nowait))
    event = await seen.get()
    following.cancel()
    assert isinstance(event, PointerSeen)
    assert (event.pointer.number, event.pointer.by) == (2, "coordinator")
    assert [record.pointer.by for record in await read_history(store, keys)] == ["olga", "coordinator"]


async def test_nothing_is_activated_before_the_mesh_has_said_what_decides_otherwise():
    """``kube-default`` became the active one beside a candidate, whatever ``--policy`` the coordinators had."""
    store, keys = MemoryStore(), Keys()
    with pytest.raises(Conflict, match="repeat in a moment"):
        await activate(store, keys, "marl-dqn", stage=Stage.SHADOW, percent=None, by="olga")
    assert (await store.list_prefix("")).items == ()
