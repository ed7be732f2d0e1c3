"""What the learner takes from agents is bounded, and what it publishes was compared with what still decides."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from lab.serve.core import LearnerCore
from lab.serve.online import OnlineTrainer
from lab.serve.publishing import Publisher, Unpublished
from lab.serve.shell import MOST_AGENTS, LearnerShell
from shared.decide.stages import Stage
from shared.errors import ConfigError
from shared.policy.marl.features import FEATURES
from shared.policy.weights import encode as encode_weights
from shared.ports import Put
from shared.runtime.http.callers import Caller
from shared.runtime.observe.metrics import Metrics
from shared.runtime.records.policies import read_pointer
from shared.wire.codec import encode
from shared.wire.keys import Keys
from shared.wire.messages import VERSION, Transition, Transitions
from shared.wire.records import PolicyPointer, PolicyRef, encode_record
from tests.marl_weights import weights
from tests.memory_store import MemoryStore

KEYS = Keys()
ONE = Transition([0.0] * len(FEATURES), 1, -1.0, [0.0] * len(FEATURES))


def shell(store: MemoryStore) -> LearnerShell:
    async def fetch(sha256: str) -> bytes | None:
        return None

    return LearnerShell(
        LearnerCore("marl-dqn", 100, 0.02),
        OnlineTrainer(features=len(FEATURES), capacity=64, learning_rate=0.01, discount=0.9, seed=1000),
        lambda *_: 0.0,
        Publisher(store, KEYS),
        Metrics("learner"),
        updates=1,
        seeds=(500,),
        fetch=fetch,
        on_losses=lambda *_: None,
    )


def batch(agent: str) -> bytes:
    return encode(Transitions(VERSION, 1, 0, 1, agent, "marl-dqn", [ONE], 7))


async def test_while_it_trains_nothing_piles_up_however_much_agents_send():
    made = shell(MemoryStore())
    for _ in range(500):
        await made.take(batch("a"), Caller())
    assert len(made._inbox) == 1
    assert made.stats()["transitions"] == 500


async def test_everything_taken_meanwhile_is_counted_once():
    made = shell(MemoryStore())
    running = asyncio.create_task(made.run())
    for wave in (99, 1):
        for _ in range(wave):
            await made.take(batch("a"), Caller())
        for _ in range(3):
            await asyncio.sleep(0)
    assert made.stats()["fresh"] == 100
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_agents_that_come_and_go_are_not_remembered_for_ever():
    made = shell(MemoryStore())
    for number in range(MOST_AGENTS + 10):
        await made.take(batch(f"agent-{number}"), Caller())
    assert made.stats()["transitions_dropped"] == 7 * MOST_AGENTS


async def stored(pointer: PolicyPointer) -> MemoryStore:
    store = MemoryStore()
    await store.txn([], [Put(KEYS.policies_active, encode_record(pointer))])
    return store


BASE = PolicyRef("marl-dqn", 1, "a" * 64)


async def test_a_candidate_is_published_only_beside_the_policy_it_was_compared_with():
    store = await stored(PolicyPointer(active=PolicyRef("kube-default", 1), previous=BASE, number=5))
    with pytest.raises(Unpublished, match="marl-dqn@1"):
        await Publisher(store, KEYS).publish(weights(version=2), base=BASE, gain=0.1)
    assert (await read_pointer(store, KEYS)).pointer.number == 5
    assert (await store.list_prefix(KEYS.policy_weights_prefix)).items == ()


async def test_what_may_not_be_published_leaves_no_weights_behind():
    theirs = PolicyRef("lb", 1, "b" * 64)
    store = await stored(PolicyPointer(active=BASE, candidate=theirs, stage=Stage.CANARY, percent=10, number=5))
    with pytest.raises(ConfigError, match="in the canary"):
        await Publisher(store, KEYS).publish(weights(version=2), base=BASE, gain=0.1)
    assert (await store.list_prefix(KEYS.policy_weights_prefix)).items == ()


async def test_a_candidate_that_passed_is_in_shadow_and_its_weights_are_there():
    store = await stored(PolicyPointer(active=BASE, number=5))
    ref = await Publisher(store, KEYS).publish(weights(version=2), base=BASE, gain=0.1)
    pointer = (await read_pointer(store, KEYS)).pointer
    assert (pointer.candidate, pointer.stage, pointer.number) == (ref, Stage.SHADOW, 6)
    kept = await store.get(KEYS.policy_weights(ref.sha256))
    assert kept.value == encode_weights(weights(version=2))


async def test_a_version_that_other_weights_had_before_is_numbered_on():
    store = await stored(PolicyPointer(active=BASE, previous=PolicyRef("marl-dqn", 2, "c" * 64), number=5))
    ref = await Publisher(store, KEYS).publish(weights(version=2), base=BASE, gain=0.1)
    assert ref.title == "marl-dqn@3"
    assert (await store.get(KEYS.policy_weights(ref.sha256))).value == encode_weights(weights(version=3))
