"""Logs in etcd whose records lie under growing numbers (``Keys.settings_history`` and its like): how far one has come.

Why: the number of the next record stands in a key of its own, which somebody may delete, or which an older version may
be unable to read. Going on from the records themselves then, no change ever overwrites the history of those before it.
"""

from __future__ import annotations

from shared.ports import Store


async def newest_number(store: Store, prefix: str) -> int:
    """Number of the newest record under ``prefix``, by its key, so that one that cannot be read counts too; 0: none.

    Unknown: ``StoreUnknown``.
    """
    listing = await store.list_prefix(prefix)
    numbers = (kv.key.removeprefix(prefix) for kv in listing.items)
    return max((int(number) for number in numbers if number.isdecimal()), default=0)
