"""A prefix is a mesh's once somebody led, registered or prepared a policy there; nothing else makes it one."""

from __future__ import annotations

import pytest

from shared.decide.stages import Stage
from shared.ports import Put
from shared.runtime.records.policy_changes import activate, mesh_known
from shared.wire.keys import Keys
from tests.memory_etcd import MemoryEtcd
from tests.memory_store import MemoryStore

KEYS = Keys.under("/mesh/")


@pytest.mark.parametrize(
    "key",
    [
        KEYS.coordinator_leader,
        KEYS.coordinator_term(7),
        KEYS.binder_leader("main"),
        KEYS.agent("a-0"),
        KEYS.member("coordinator", "c-0"),
        KEYS.policies_active,
    ],
)
async def test_a_mesh_that_is_or_was_there_is_known(key: str) -> None:
    etcd = MemoryEtcd()
    etcd.txn([], [Put(key, b"{}")])
    assert await mesh_known(MemoryStore(etcd), KEYS)
    assert not await mesh_known(MemoryStore(etcd), Keys.under("/wrong/"))


async def test_what_others_keep_under_the_prefix_is_no_mesh() -> None:
    etcd = MemoryEtcd()
    etcd.txn([], [Put("/mesh/notes", b"hello"), Put("/mesh/coordinators", b"")])
    assert not await mesh_known(MemoryStore(etcd), KEYS)


@pytest.mark.parametrize(
    ("stage", "told"),
    [
        (Stage.SHADOW, "taken to shadow by hand"),
        (Stage.CANARY, "taken to canary by hand"),
        (Stage.ACTIVE, "activated by hand"),
    ],
)
async def test_the_record_says_how_far_a_policy_was_taken(stage: Stage, told: str) -> None:
    store = MemoryStore(MemoryEtcd())
    pointer = await activate(store, KEYS, "lb", stage=stage, percent=None, by="ann", new_mesh=True)
    assert (pointer.reason.partition(" ")[2], pointer.active.name == "lb") == (told, stage is Stage.ACTIVE)


@pytest.mark.parametrize(
    ("stage", "percent", "forced"),
    [(Stage.CANARY, 1, False), (Stage.CANARY, 50, False), (Stage.CANARY, None, True), (Stage.ACTIVE, None, True)],
)
async def test_good_windows_in_shadow_do_not_hide_that_the_canary_was_skipped(
    stage: Stage, percent: int | None, forced: bool
) -> None:
    store, name = MemoryStore(MemoryEtcd()), "least-allocated"
    await activate(store, KEYS, name, stage=Stage.SHADOW, percent=None, by="ann", new_mesh=True)
    pointer = await activate(store, KEYS, name, stage=stage, percent=percent, by="ann", lacking="")
    assert pointer.forced is forced


async def test_whom_the_canary_has_proved_is_activated_without_force() -> None:
    store, name = MemoryStore(MemoryEtcd()), "least-allocated"
    await activate(store, KEYS, name, stage=Stage.CANARY, percent=10, by="ann", new_mesh=True)
    pointer = await activate(store, KEYS, name, stage=Stage.ACTIVE, percent=None, by="ann", lacking="")
    assert pointer.forced is False
