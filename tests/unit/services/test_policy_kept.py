"""A policy that is activated again by hand can be had by the agents, also when etcd has forgotten its weights."""

from __future__ import annotations

from services.cli.policy import _keep
from shared.adapters.memory_store import MemoryStore
from shared.policy.registry import ref_of
from shared.policy.weights import shipped_bytes
from shared.runtime.policy_store import get_weights
from shared.wire.keys import Keys


async def test_shipped_weights_that_were_forgotten_are_put_back():
    store, keys, ref = MemoryStore(), Keys(), ref_of("marl-dqn")
    await _keep(store, keys, ref)
    assert await get_weights(store, keys, ref.sha256) == shipped_bytes("marl-dqn")


async def test_a_heuristic_needs_none():
    store, keys = MemoryStore(), Keys()
    await _keep(store, keys, ref_of("kube-default"))
    assert (await store.list_prefix(keys.policy_weights_prefix)).items == ()
