"""The policy pointer, the weights and their history in etcd: read, followed, and changed by compare-and-swap.

Why one place: the command line, the learner and the leading coordinator all change the pointer, and each must do it so
that nobody's change is lost: the write compares the revision that was read, and puts the history record in the same
transaction. Weights lie under their sha256 and are never changed, so a pointer can only name bytes that are there.

What comes next is decided by ``policy/rollout.py``; bytes are checked by ``policy/weights.py``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from functools import cache

import msgspec
import structlog
from msgspec import Struct, field

from shared.errors import ConfigError, StoreError
from shared.policy import numbering
from shared.policy.registry import HEURISTICS, LEARNED
from shared.policy.rollout.rollout import HISTORY_LIMIT, PointerChange
from shared.policy.weights import MAX_BYTES, digest, shipped, shipped_names
from shared.ports import Compare, DeleteKey, ModRevisionIs, Op, Put, Store
from shared.runtime.records.prefix_watch import follow_prefix, newest_number
from shared.wire.keys import Keys
from shared.wire.records import PolicyPointer, PolicyRef, PolicyWindow, decode_record, encode_record

log = structlog.get_logger()

WEIGHTS_TIMEOUT_S = 10.0
KEPT_WINDOWS = 720
"""Windows kept: six hours of 30 s each."""
KEPT_WEIGHTS = 8
"""Sets of weights kept in etcd beside those that the pointer names, newest first."""


class StoredPointer(Struct, frozen=True):
    """The pointer and the revision a change must compare; None and 0 where there is none yet."""

    pointer: PolicyPointer | None
    mod_revision: int


class HistoryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One change: the pointer after it, and when it was made (UTC, for people only)."""

    at: str
    pointer: PolicyPointer


async def read_pointer(store: Store, keys: Keys, *, timeout_s: float = 2.0) -> StoredPointer:
    """The pointer as it is. ``ConfigError``: the key holds something else. Unknown: ``StoreUnknown``."""
    kv = await store.get(keys.policies_active, timeout_s=timeout_s)
    if kv is None:
        return StoredPointer(None, 0)
    pointer = decode_record(kv.value, PolicyPointer)
    if pointer is None:
        raise ConfigError(f"{keys.policies_active}: holds no policy pointer; delete the key and activate a policy")
    return StoredPointer(pointer, kv.mod_revision)


async def write_change(
    store: Store, keys: Keys, change: PointerChange, mod_revision: int, *, compares: Sequence[Compare] = (),
    weights: bytes | None = None,
) -> bool:  # fmt: skip
    """Write the change if the pointer is still at ``mod_revision`` (0: absent) and all ``compares`` hold.

    ``weights``: a file that the pointer names from now on, kept under its digest in the same transaction, so that a
    refused change leaves none behind; old ones that nothing names any more go. False: certainly not written.
    ``ConfigError``: the weights are too large for etcd. ``StoreUnknown``: it may have been written; read again.
    """
    if weights is not None and len(weights) > MAX_BYTES:
        raise ConfigError(f"weights: {len(weights)} bytes is more than {MAX_BYTES}; make the network smaller")
    after = change.after
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    record = HistoryRecord(at=now, pointer=after)
    ops: list[Op] = [
        Put(keys.policies_active, encode_record(after)),
        Put(keys.policy_history(after.number), msgspec.json.encode(record)),
    ]
    if after.number > HISTORY_LIMIT:
        ops.append(DeleteKey(keys.policy_history(after.number - HISTORY_LIMIT)))
    if weights is not None:
        ops.append(Put(keys.policy_weights(digest(weights)), weights))
    timeout_s = 2.0 if weights is None else WEIGHTS_TIMEOUT_S
    wanted = [ModRevisionIs(keys.policies_active, mod_revision), *compares]
    result = await store.txn(wanted, ops, timeout_s=timeout_s)
    if result.succeeded and weights is not None:
        with suppress(StoreError, ConfigError):  # the change is made; what stays goes with the next one
            await _forget_old(store, keys)
    return result.succeeded


async def read_history(store: Store, keys: Keys) -> list[HistoryRecord]:
    """The changes that are remembered, oldest first; records that cannot be read are left out."""
    listing = await store.list_prefix(keys.policy_history_prefix)
    records = [decode_record(kv.value, HistoryRecord) for kv in listing.items]
    return [record for record in records if record is not None]


async def read_windows(store: Store, keys: Keys) -> list[PolicyWindow]:
    """The last windows, oldest first; records that cannot be read are left out. Unknown: ``StoreUnknown``."""
    listing = await store.list_prefix(keys.policy_windows_prefix)
    windows = [decode_record(kv.value, PolicyWindow) for kv in listing.items]
    return sorted((window for window in windows if window is not None), key=lambda window: window.number)


async def newest_change(store: Store, keys: Keys) -> int:
    """Number of the last change, also where the pointer itself was deleted; 0: there was none."""
    return await newest_number(store, keys.policy_history_prefix)


async def get_weights(store: Store, keys: Keys, sha256: str) -> bytes | None:
    """The bytes kept under a digest, unchecked; None where there are none."""
    kv = await store.get(keys.policy_weights(sha256), timeout_s=WEIGHTS_TIMEOUT_S)
    return None if kv is None else kv.value


async def follow_pointer(store: Store, keys: Keys) -> AsyncGenerator[StoredPointer, None]:
    """The pointer now and after every change, through outages; a value that is none is logged and left out."""
    async with aclosing(follow_prefix(store, keys.policies_active)) as views:
        async for view in views:
            kv = view.items.get(keys.policies_active)
            if kv is None:
                yield StoredPointer(None, 0)
                continue
            pointer = decode_record(kv.value, PolicyPointer)
            if pointer is None:
                log.error("policy_pointer_unreadable", key=kv.key)
            else:
                yield StoredPointer(pointer, kv.mod_revision)


async def _forget_old(store: Store, keys: Keys) -> None:
    """Delete weights that are neither named by the pointer nor among the newest that the history names; none where the
    pointer has changed since it was read, for it may name them again."""
    stored = await read_pointer(store, keys)
    named: set[str] = set()
    if stored.pointer is not None:
        refs = (stored.pointer.active, stored.pointer.previous, stored.pointer.candidate)
        named = {ref.sha256 for ref in refs if ref is not None}
    seen: list[str] = []
    for record in reversed(await read_history(store, keys)):
        for ref in (record.pointer.candidate, record.pointer.active):
            if ref is not None and ref.sha256 and ref.sha256 not in seen:
                seen.append(ref.sha256)
    old = [sha256 for sha256 in seen[KEPT_WEIGHTS:] if sha256 not in named]
    if old:
        unchanged = ModRevisionIs(keys.policies_active, stored.mod_revision)
        await store.txn([unchanged], [DeleteKey(keys.policy_weights(sha256)) for sha256 in old[:64]])


# --- which policies there are ------------------------------------------------------------------------------------


class PolicyRow(Struct, frozen=True, kw_only=True):
    """One policy. ``role``: active, previous, or the stage of the candidate; ``percent`` of the pods it decides for;
    ``from``: published, shipped or built in."""

    name: str
    version: int
    sha256: str
    role: str
    percent: int
    where: str = field(name="from")


def refs_of(pointer: PolicyPointer | None, history: Sequence[HistoryRecord]) -> list[PolicyRef]:
    """Every policy that the pointer or the history names, newest first, each once."""
    return numbering.refs_of(
        [*([pointer] if pointer is not None else []), *(record.pointer for record in reversed(history))]
    )


def policy_rows(pointer: PolicyPointer | None, history: Sequence[HistoryRecord]) -> list[PolicyRow]:
    """One row per policy."""
    found = [_row(ref, pointer, "published" if ref.sha256 else "built in") for ref in refs_of(pointer, history)]
    seen = {(row.name, row.version, row.sha256) for row in found}
    return found + [
        _row(ref, pointer, where) for ref, where in _at_hand() if (ref.name, ref.version, ref.sha256) not in seen
    ]


@cache
def _at_hand() -> tuple[tuple[PolicyRef, str], ...]:
    """What comes with the package, which does not change while we run: reading the weights costs too much each time."""
    at_hand = [(PolicyRef(name, make().version), "built in") for name, make in sorted(HEURISTICS.items())]
    for name in shipped_names():
        if name in LEARNED:
            file = shipped(name)
            at_hand.append((PolicyRef(name, file.card.version, file.sha256), "shipped"))
    return tuple(at_hand)


def _row(ref: PolicyRef, pointer: PolicyPointer | None, where: str) -> PolicyRow:
    role, percent = "", 0
    if pointer is not None:
        if ref == pointer.active:
            role, percent = "active", 100 - pointer.percent
        elif ref == pointer.candidate:
            role, percent = pointer.stage, pointer.percent
        elif ref == pointer.previous:
            role = "previous"
    return PolicyRow(name=ref.name, version=ref.version, sha256=ref.sha256, role=role, percent=percent, where=where)
