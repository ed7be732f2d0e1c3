"""Which intents that wait rest on loans: rooms on nodes of other shards, which their binders keep.

The transaction of such an intent compares each lender's leader and fence as they were when it lent, and carries no
other new intent: who took a loan back must not hold up the others.
"""

from __future__ import annotations

from collections.abc import Mapping

from services.binder.cycle.batch import Lenders
from shared.ports import Compare, CreateRevisionIs, ModRevisionIs
from shared.wire.keys import Keys


class IntentLenders:
    """``of``: by the key of an intent that waits, the lenders it rests on. Most binders have none, and pay for none."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self.of: dict[str, Lenders] = {}

    def compares(self, lenders: Lenders) -> list[Compare]:
        """That each leads, and has not taken back what it lent."""
        compares: list[Compare] = []
        # Both: a lender's successor has another term, and one that has taken its loans back another fence.
        for shard, term, fence in sorted(lenders):
            compares.append(CreateRevisionIs(self._keys.binder_leader(shard), term))
            compares.append(ModRevisionIs(self._keys.binder_fence(shard), fence))
        return compares


def recalled(lenders: Lenders, seen: Mapping[str, tuple[int, int]]) -> bool:
    """Whether one of them leads no more, or has moved its fence, by what etcd holds (shard -> term and fence)."""
    return any(seen.get(shard) != (term, fence) for shard, term, fence in lenders)
