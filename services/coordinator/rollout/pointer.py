"""The policy pointer for a leading coordinator: seeded where there is none, followed, and written under the term.

What it should be is decided in ``evaluation.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing

import msgspec
import structlog

from services.coordinator.core.events import Event, PointerSeen, PolicyRead
from shared.errors import ConfigError, StoreError
from shared.policy.observation import Policy
from shared.policy.registry import bytes_of, goes_by_nodes, load_policy, made_here, ref_of
from shared.policy.rollout.rollout import PointerChange, apply_rehearsal, first_pointer
from shared.ports import CreateRevisionIs, Store
from shared.runtime.records.policies import follow_pointer, get_weights, newest_change, read_pointer, write_change
from shared.runtime.records.prefix_watch import until_known
from shared.wire.keys import Keys
from shared.wire.records import PolicyPointer, PolicyRef

log = structlog.get_logger()

BY = "coordinator"


async def follow(store: Store, keys: Keys, *, policy: str, term: int, post: Callable[[Event], None]) -> None:
    """Tell the core every pointer; eternal. Where there is none, the policy of the settings becomes the active one."""
    policies, reading = ReadPolicies(store, keys), None
    async with asyncio.TaskGroup() as tasks, aclosing(follow_pointer(store, keys)) as pointers:
        async for stored in pointers:
            if reading is not None:
                reading.cancel()
            if stored.pointer is None:
                await _seed(store, keys, policy, term)
            else:
                post(PointerSeen(stored.pointer))
                reading = tasks.create_task(policies.tell(policies.untold(stored.pointer), post))


class ReadPolicies:
    """Policies made of weights in etcd, told to the core each once while the pointer names it; where they cannot be
    had, all agents are asked."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys
        self._told = frozenset[PolicyRef]()

    def untold(self, pointer: PolicyPointer) -> list[PolicyRef]:
        """Those that the pointer names and that were not told; others are forgotten, as the core forgets them."""
        named = [ref for ref in (pointer.active, pointer.candidate) if ref is not None]
        self._told &= frozenset(named)
        return [ref for ref in named if ref not in self._told and goes_by_nodes(ref) and made_here(ref) is None]

    async def tell(self, refs: Sequence[PolicyRef], post: Callable[[Event], None]) -> None:
        """These."""
        for ref in refs:
            await self._tell(ref, post)

    async def _tell(self, ref: PolicyRef, post: Callable[[Event], None]) -> None:
        try:
            data = await until_known(
                lambda: get_weights(self._store, self._keys, ref.sha256), "policy_unread", policy=ref.title
            )
            post(PolicyRead(ref, load_policy(ref.name, data=data, sha256=ref.sha256)))
            self._told |= {ref}
        except (StoreError, ConfigError) as error:
            log.info("policy_unread", policy=ref.title, error=error, effect="all agents are asked")


class ActivePolicy:
    """The active policy as an object, for explanations; read from etcd when it is first wanted, and again when it has
    changed."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys
        self._known: tuple[PolicyRef, Policy] | None = None

    async def get(self, pointer: PolicyPointer) -> Policy | None:
        """The active policy, placing as the pointer says; None where its weights cannot be had."""
        policy = await self._of(pointer.active)
        apply_rehearsal(policy, pointer.active, pointer)
        return policy

    async def _of(self, ref: PolicyRef) -> Policy | None:
        if self._known is not None and self._known[0] == ref:
            return self._known[1]
        try:
            data = await get_weights(self._store, self._keys, ref.sha256) if ref.sha256 else None
            policy = load_policy(ref.name, data=data, sha256=ref.sha256)
        except (StoreError, ConfigError) as error:
            log.info("policy_unexplained", policy=ref.title, error=error)
            return None
        self._known = (ref, policy)
        return policy


async def write(store: Store, keys: Keys, change: PointerChange, term: int) -> None:
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
    async def write_first() -> None:
        before = first_pointer(ref_of(policy), number=await newest_change(store, keys))
        after = msgspec.structs.replace(before, number=before.number + 1, reason="the mesh's own --policy", by=BY)
        weights = bytes_of(policy)
        leads = [CreateRevisionIs(keys.coordinator_leader, term)]
        await write_change(store, keys, PointerChange(before, after), 0, compares=leads, weights=weights)

    await until_known(write_first, "policy_pointer_unseeded")
