"""The record of a policy for training jobs that is rolled out: read, followed and changed in etcd.

People set it through the coordinator, the leading jobs service writes what became of it; each write compares what was
read, so neither undoes the other's.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import msgspec
from msgspec.structs import replace

from shared.errors import ConfigError, Conflict, InvalidValue, TooFewWindows
from shared.jobs.online.stages import NEXT, Rollout, Stage, same_step
from shared.jobs.registry import entry_of
from shared.ports import Compare, CreateRevisionIs, KeyValue, ModRevisionIs, Put, Store
from shared.runtime.records.control import CAS_TRIES, clean, rfc3339
from shared.runtime.records.prefix_watch import follow_prefix
from shared.wire.keys import Keys
from shared.wire.records import decode_record

MOST_PERCENT = 99


def rollout_in(kv: KeyValue | None) -> Rollout:
    """What the record says; one that cannot be read counts as none: then the policy of the settings decides."""
    found = decode_record(kv.value, Rollout) if kv is not None else None
    return found if found is not None else Rollout()


async def read_rollout(store: Store, keys: Keys) -> Rollout:
    """The record now. Unknown: ``StoreUnknown``."""
    return rollout_in(await store.get(keys.jobs_rollout))


async def follow_rollout(store: Store, keys: Keys) -> AsyncGenerator[tuple[Rollout, int], None]:
    """(the record, its revision) now and after every change; eternal. Revision 0: there is none."""
    async with aclosing(follow_prefix(store, keys.jobs_rollout)) as views:
        async for view in views:
            kv = view.items.get(keys.jobs_rollout)
            yield rollout_in(kv), kv.mod_revision if kv is not None else 0


async def write_rollout(store: Store, keys: Keys, rollout: Rollout, *, revision: int, term: int) -> bool:
    """By the jobs service that leads the term: whether it was written, the record being still at ``revision``."""
    compares: list[Compare] = [
        ModRevisionIs(keys.jobs_rollout, revision), CreateRevisionIs(keys.jobs_leader, term),
    ]  # fmt: skip
    return (await store.txn(compares, [Put(keys.jobs_rollout, msgspec.json.encode(rollout))])).succeeded


def set_candidate(held: Rollout, name: str, *, now: str, by: str, reason: str) -> Rollout:
    """Begin with a candidate, in shadow; to say it again changes nothing. Refused: ``InvalidValue``, there is none of
    this name; ``Conflict``, another is rolled out."""
    try:
        entry_of(name)
    except ConfigError as error:
        raise InvalidValue(str(error)) from None
    if held.on and held.candidate == name:
        return held
    if held.on:
        raise Conflict(
            f"policy: {held.candidate} is rolled out, in {held.stage}; take it back first ('conclave jobs policy back')"
        )
    return Rollout(stage=Stage.SHADOW, candidate=name, by=by, reason=reason, since=now)


def promoted(held: Rollout, *, percent: int, force: bool, now: str, by: str, reason: str) -> Rollout:
    """The next stage; ``force``: also without a good window, and recorded. Refused: ``Conflict`` where there is none,
    ``TooFewWindows`` where no window of this stage was good."""
    if held.stage not in NEXT:
        told = f"{held.candidate} is active already" if held.on else "no policy is rolled out; 'set' one"
        raise Conflict(f"stage: {told}")
    if not held.good and not force:
        raise TooFewWindows(
            f"stage: no window of {held.candidate} in {held.stage} was good yet (half an hour each); wait for one, or "
            "force it (--force)"
        )
    if not 1 <= percent <= MOST_PERCENT:
        raise InvalidValue(f"percent: {percent} is not from 1 to {MOST_PERCENT}")
    return replace(
        held, stage=NEXT[held.stage], percent=percent, good=0, by=by, reason=reason, since=now, forced=not held.good
    )


def taken_back(held: Rollout, *, now: str, by: str, reason: str) -> Rollout:
    """Only the policy of the settings decides. To say it again changes nothing."""
    return replace(held, stage=Stage.NONE, good=0, by=by, reason=reason, since=now, forced=False) if held.on else held


async def change_rollout(
    store: Store, keys: Keys, change: Callable[[Rollout, str], Rollout], *, term: int, now: dt.datetime
) -> Rollout:
    """By the coordinator that leads the term: the record after ``change(held, time)``.

    Made again where the jobs service wrote figures meanwhile, and not over another step than the one that was asked
    for: else two promotions at once go from shadow to all jobs. ``Conflict``: another
    step, or another coordinator, came first; unknown: ``StoreUnknown``.
    """
    first: Rollout | None = None
    for _ in range(CAS_TRIES):
        kv = await store.get(keys.jobs_rollout)
        held = rollout_in(kv)
        first = held if first is None else first
        if not same_step(held, first):
            break
        wanted = change(held, rfc3339(now))
        if wanted == held:
            return held
        wanted = replace(wanted, by=clean(wanted.by), reason=clean(wanted.reason))
        compares: list[Compare] = [
            ModRevisionIs(keys.jobs_rollout, kv.mod_revision if kv is not None else 0),
            CreateRevisionIs(keys.coordinator_leader, term),
        ]
        if (await store.txn(compares, [Put(keys.jobs_rollout, msgspec.json.encode(wanted))])).succeeded:
            return wanted
    raise Conflict("others are changing the jobs' policy, or another coordinator leads; look again and repeat")
