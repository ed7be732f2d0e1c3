"""What operators tell the mesh, in etcd: scheduling paused, nodes drained from scheduling.

Why here: the admin API writes it and the leading coordinator follows it, also the next one after a failover. A change
is one transaction that compares what was read, so two people at once cannot undo each other unseen; telling again what
holds already changes nothing, not even who said it first.

Not its job: settings (``settings.py``), terms and the audit log (``admin.py``), deciding what a pause
means (the coordinator's core does).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct, field

from shared.errors import Conflict, InvalidValue
from shared.ports import DeleteKey, KeyValue, ModRevisionIs, Op, Put, Store
from shared.wire.keys import Keys, escape
from shared.wire.records import Drained, Paused, RuntimeSettings, decode_record, encode_record

MAX_TEXT_CHARS = 256
"""Of a name or a reason that people give; more is cut."""

MAX_DRAINED = 5000
"""Nodes drained at a time (I10); more nodes than that are better cordoned by whoever runs the cluster."""

CAS_TRIES = 5


class Control(Struct, frozen=True):
    """What holds now. ``drained`` by node name; ``settings`` None: nothing was ever changed while running."""

    paused: Paused | None = None
    drained: Mapping[str, Drained] = field(default_factory=dict)
    settings: RuntimeSettings | None = None


def rfc3339(now: dt.datetime) -> str:
    """UTC with milliseconds, such as ``2026-11-22T03:04:05.678Z``. ``now`` must know its time zone."""
    return now.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clean(text: str) -> str:
    """Text of people, made fit for one line of a log or of a pod's condition."""
    return "".join(char if char.isprintable() else " " for char in text[:MAX_TEXT_CHARS]).strip()


def control_of(keys: Keys, items: Iterable[KeyValue]) -> tuple[Paused | None, dict[str, Drained], list[str]]:
    """(paused, drained by node, keys that hold something else) of everything under ``Keys.control_prefix``."""
    paused: Paused | None = None
    drained: dict[str, Drained] = {}
    unreadable = []
    for kv in items:
        if kv.key == keys.control_paused:
            # a pause that cannot be read is still one: going on is what nobody asked for
            paused = decode_record(kv.value, Paused) or Paused(by="", reason="the record cannot be read", since="")
        elif kv.key.startswith(keys.control_drained_prefix):
            name = keys.last_part(kv.key)
            record = decode_record(kv.value, Drained)
            if record is None:
                record = Drained(node=name, by="", reason="the record cannot be read", since="")
            # the key is what is taken back: a record that names another node could never be
            drained[name] = msgspec.structs.replace(record, node=name)
        else:
            unreadable.append(kv.key)
    return paused, drained, unreadable


async def read_control(store: Store, keys: Keys) -> Control:
    """What holds now. Unknown: ``StoreUnknown``."""
    listing = await store.list_prefix(keys.control_prefix)
    paused, drained, _ = control_of(keys, listing.items)
    kv = await store.get(keys.settings_current)
    return Control(paused, drained, decode_record(kv.value, RuntimeSettings) if kv is not None else None)


async def set_paused(
    store: Store, keys: Keys, paused: bool, *, by: str, reason: str, now: dt.datetime
) -> Paused | None:
    """Pause or resume scheduling; what holds afterwards (None: not paused).

    Refused: ``Conflict`` after ``CAS_TRIES`` lost races, ``StoreRejected``. Unknown: ``StoreUnknown``; to say it again
    is safe.
    """
    wanted = Paused(by=clean(by), reason=clean(reason), since=rfc3339(now)) if paused else None
    value = encode_record(wanted) if wanted is not None else None
    found = await _set(store, keys.control_paused, value)
    if found is None or wanted is None:
        return wanted
    return decode_record(found, Paused) or Paused(by="", reason="the record cannot be read", since="")


async def set_drained(
    store: Store, keys: Keys, node: str, drained: bool, *, by: str, reason: str, now: dt.datetime
) -> Drained | None:
    """Drain a node from scheduling, or take it back; what holds afterwards (None: not drained).

    Refused: ``InvalidValue`` for a name that cannot be one or when ``MAX_DRAINED`` nodes are drained already;
    ``Conflict`` and ``StoreRejected`` as for ``set_paused``. Unknown: ``StoreUnknown``; to say it again is safe.
    """
    try:
        escape(node)
    except ValueError as error:
        raise InvalidValue(f"node: {error}") from error
    wanted = Drained(node=node, by=clean(by), reason=clean(reason), since=rfc3339(now)) if drained else None
    if wanted is not None and len((await store.list_prefix(keys.control_drained_prefix)).items) >= MAX_DRAINED:
        raise InvalidValue(f"node: {MAX_DRAINED} nodes are drained already; resume some, or cordon {node} instead")
    found = await _set(store, keys.control_drained(node), encode_record(wanted) if wanted is not None else None)
    if found is None or wanted is None:
        return wanted
    return decode_record(found, Drained) or Drained(node=node, by="", reason="the record cannot be read", since="")


async def _set(store: Store, key: str, value: bytes | None) -> bytes | None:
    """Write ``value`` (None: delete) unless the key is there (is absent) already; then the value found there."""
    for _ in range(CAS_TRIES):
        kv = await store.get(key)
        if (kv is None) == (value is None):
            return kv.value if kv is not None else None
        op: Op = Put(key, value) if value is not None else DeleteKey(key)
        result = await store.txn([ModRevisionIs(key, kv.mod_revision if kv is not None else 0)], [op])
        if result.succeeded:
            return None
    raise Conflict("others are changing the same thing; look again and repeat")
