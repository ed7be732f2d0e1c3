"""What an agent follows in etcd: the policy that decides, who leads, and the learner that wants to know.

Each function follows one source for ever and hands over what it sees; ``post`` is called in the loop that follows.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing

from shared.election.record import LeaderRecord
from shared.election.record import decode_record as decode_leader
from shared.ports import Store
from shared.runtime.records.policies import follow_pointer
from shared.runtime.records.prefix_watch import follow_prefix
from shared.version import CONCLAVE_VERSION, compatible
from shared.wire.keys import Keys
from shared.wire.messages import VERSION
from shared.wire.records import LearnerRecord, PolicyPointer, decode_record


async def follow_policies(store: Store, keys: Keys, post: Callable[[PolicyPointer], object]) -> None:
    """Every pointer, as it changes."""
    async with aclosing(follow_pointer(store, keys)) as pointers:
        async for stored in pointers:
            if stored.pointer is not None:
                post(stored.pointer)


async def follow_learner(store: Store, keys: Keys, post: Callable[[LearnerRecord | None], object]) -> None:
    """The learner that is registered and understands us, None while there is none; of several the first by id."""
    async with aclosing(follow_prefix(store, keys.members_prefix("learner"))) as views:
        async for view in views:
            records = [decode_record(kv.value, LearnerRecord) for kv in view.items.values()]
            known = sorted((r for r in records if r is not None and _speaks(r)), key=lambda r: r.id)
            post(known[0] if known else None)


def _speaks(record: LearnerRecord) -> bool:
    """Whether that learner understands us."""
    return record.protocol == VERSION and compatible(record.version, CONCLAVE_VERSION)


async def follow_leader(store: Store, keys: Keys, post: Callable[[LeaderRecord | None], object]) -> None:
    """The leading coordinator as it is registered, None while nobody leads; a hint."""
    async with aclosing(follow_prefix(store, keys.coordinator_leader)) as views:
        async for view in views:
            kv = view.items.get(keys.coordinator_leader)
            post(decode_leader(kv.value) if kv is not None else None)
