"""The policy pointer for a leading coordinator: seeded where there is none, followed, and written under the term.

Refuses to do: deciding about it (``rolling.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import msgspec
import structlog

from services.coordinator.events import Event, PointerSeen
from shared.errors import ConfigError, StoreError, StoreUnknown
from shared.policy.registry import HEURISTICS, ref_of
from shared.policy.rollout import Change, first_pointer
from shared.policy.weights import shipped_bytes
from shared.ports import CreateRevisionIs, Store
from shared.runtime.policy_store import follow_pointer, put_weights, read_pointer, write_change
from shared.wire.keys import Keys

log = structlog.get_logger()

RETRY_S = 0.5
BY = "coordinator"


async def follow(store: Store, keys: Keys, *, policy: str, term: int, post: Callable[[Event], None]) -> None:
    """Tell the core every pointer; eternal. Where there is none, the policy of the settings becomes the active one."""
    async with aclosing(follow_pointer(store, keys)) as pointers:
        async for stored in pointers:
            if stored is None:
                log.error("policy_pointer_unreadable", key=keys.policies_active)
            elif stored.pointer is None:
                await _seed(store, keys, policy, term)
            else:
                post(PointerSeen(stored.pointer))


async def write(store: Store, keys: Keys, change: Change, term: int) -> None:
    """Make the change if the pointer is still what it starts from and ``term`` still leads; the watch tells the rest.

    An answer that is lost is no matter: the core asks again for what it does not see.
    """
    try:
        stored = await read_pointer(store, keys)
        if stored.pointer != change.before:
            log.info("policy_change_late", reason=change.after.reason)
            return
        leads = [CreateRevisionIs(keys.coordinator_leader, term)]
        written = await write_change(store, keys, change, stored.mod_revision, compares=leads)
        log.info("policy_change_written" if written else "policy_change_lost", reason=change.after.reason)
    except (StoreError, ConfigError) as error:
        log.warning("policy_change_unwritten", reason=change.after.reason, error=error)


async def _seed(store: Store, keys: Keys, policy: str, term: int) -> None:
    before = first_pointer(ref_of(policy))
    change = Change(before, msgspec.structs.replace(before, number=1, reason="the mesh's own --policy", by=BY))
    while True:
        try:
            if policy not in HEURISTICS:
                await put_weights(store, keys, shipped_bytes(policy))
            leads = [CreateRevisionIs(keys.coordinator_leader, term)]
            await write_change(store, keys, change, 0, compares=leads)
            return
        except StoreUnknown as error:
            log.info("policy_pointer_unseeded", error=error)
            await asyncio.sleep(RETRY_S)
