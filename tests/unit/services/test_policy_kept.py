"""A policy that is activated again by hand can be had by the agents, also when etcd has forgotten its weights."""

from __future__ import annotations

from shared.adapters.memory_store import MemoryStore
from shared.policy.registry import ref_of
from shared.policy.rollout import Stage
from shared.policy.weights import shipped_bytes
from shared.ports import Delete
from shared.runtime.policy_changes import activate
from shared.runtime.policy_store import get_weights
from shared.wire.keys import Keys


async def test_shipped_weights_that_were_forgotten_are_put_back():
    store, keys, ref = MemoryStore(), Keys(), ref_of("marl-dqn")
    for _ in range(2):
        pointer = await activate(store, keys, "marl-dqn", stage=Stage.ACTIVE, percent=None, by="olga")
        assert pointer.active == ref
        assert await get_weights(store, keys, ref.sha256) == shipped_bytes("marl-dqn")
        await store.txn([], [Delete(keys.policy_weights(ref.sha256))])


async def test_a_heuristic_needs_none():
    store, keys = MemoryStore(), Keys()
    await activate(store, keys, "kube-default", stage=Stage.ACTIVE, percent=None, by="olga")
    assert (await store.list_prefix(keys.policy_weights_prefix)).items == ()
