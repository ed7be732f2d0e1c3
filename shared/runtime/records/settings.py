"""Settings changed while running, in etcd: the current values and the history of changes.

One record holds all values, so a change is all or nothing, and its number is what a writer compares: who read number 3
and writes meanwhile against number 4 is told so. Not its job: knowing which settings there are (the caller's
``validate`` does), carrying them out (the coordinator follows the record).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping

from shared.errors import Conflict
from shared.ports import DeleteKey, ModRevisionIs, Op, Put, Store
from shared.runtime.records.control import CAS_TRIES, clean, rfc3339
from shared.runtime.records.prefix_watch import newest_number
from shared.wire.keys import Keys
from shared.wire.records import RuntimeSettings, decode_record, encode_record

HISTORY_LIMIT = 200
"""Changes kept."""

Value = int | float | str


async def read_settings(store: Store, keys: Keys) -> RuntimeSettings | None:
    """The values now; None: nothing was ever changed while running. Unknown: ``StoreUnknown``."""
    kv = await store.get(keys.settings_current)
    return decode_record(kv.value, RuntimeSettings) if kv is not None else None


async def change_settings(
    store: Store,
    keys: Keys,
    values: Mapping[str, Value | None],
    *,
    by: str,
    reason: str,
    expected_number: int | None,
    now: dt.datetime,
    validate: Callable[[Mapping[str, Value]], None],
) -> RuntimeSettings:
    """Change these values (None: back to what each process was started with), all or nothing; the record afterwards.

    ``validate`` is given all values as they would be and raises ``InvalidValue``. ``expected_number``: the number the
    caller has read (0: there was none), None for whatever it is. A change that changes nothing is not written.
    A record that cannot be read counts as none (number 0); the change is numbered on from the history, which is never
    overwritten. Refused: ``InvalidValue``; ``Conflict``: the number is another one. Unknown: ``StoreUnknown``.
    """
    for _ in range(CAS_TRIES):
        kv = await store.get(keys.settings_current)
        before = decode_record(kv.value, RuntimeSettings) if kv is not None else None
        number = before.number if before is not None else 0
        if expected_number is not None and expected_number != number:
            raise Conflict(f"settings: number {number} holds by now, {expected_number} was expected; read them again")
        known: Mapping[str, Value] = before.values if before is not None else {}
        merged = {name: value for name, value in {**known, **values}.items() if value is not None}
        validate(merged)
        if merged == known and before is not None:
            return before
        newest = number if before is not None else await newest_number(store, keys.settings_history_prefix)
        after = RuntimeSettings(number=newest + 1, values=merged, by=clean(by), reason=clean(reason), time=rfc3339(now))
        value = encode_record(after)
        ops: list[Op] = [Put(keys.settings_current, value), Put(keys.settings_history(after.number), value)]
        if after.number > HISTORY_LIMIT:
            ops.append(DeleteKey(keys.settings_history(after.number - HISTORY_LIMIT)))
        revision = kv.mod_revision if kv is not None else 0
        if (await store.txn([ModRevisionIs(keys.settings_current, revision)], ops)).succeeded:
            return after
    raise Conflict("settings: others are changing them; read them again and repeat")


async def read_settings_history(store: Store, keys: Keys) -> list[RuntimeSettings]:
    """The last changes, newest first; records that cannot be read are left out. Unknown: ``StoreUnknown``."""
    listing = await store.list_prefix(keys.settings_history_prefix)
    records = [decode_record(kv.value, RuntimeSettings) for kv in listing.items]
    return [record for record in reversed(records) if record is not None]
