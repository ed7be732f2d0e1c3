"""Which binder decides about a node: the shards that nodes are divided into, one leading binder each.

A node's shard is a pure function of its name and the names in the record ``binders/shards``: rendezvous hashing, so a
shard that is added takes its part, and of the others no node moves. Nobody writes where a node belongs. The record is
compared by its ``revision`` (etcd's mod_revision, 0 where there is none) in every transaction of a binder, so that at
any revision of etcd a node has one owner.

Not its job: agents' partitions (``partition.py``), which are advice and may overlap for a moment; these may not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from shared.scheduling.partition import weight
from shared.wire.records import Intent

ONLY = "0"
"""The one shard of a mesh without the record."""

SHARD_LABEL = "conclave.io/shard"
"""A node's label, inside the coordinator alone: where there are several shards, members of pod groups select by it."""


@dataclass(frozen=True, slots=True)
class Shards:
    """All shards there are, as the record said at ``revision``."""

    names: tuple[str, ...] = (ONLY,)
    revision: int = 0

    several: bool = field(init=False, default=False)
    """Whether it matters which shard a node is of."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "several", len(self.names) > 1)

    def of(self, name: str) -> str:
        """The shard of a node, and the home of a group, by name."""
        return self.names[0] if len(self.names) == 1 else _first(self.names, name)

    def resolver(self, key: str, intent: Intent | None) -> str:
        """Whose an intent is to finish or to withdraw: the shard's that committed it, while there is that shard.

        One that cannot be read, or whose shard is gone, falls to a shard by the unit ``key``: that does not change
        while its pods do.
        """
        return intent.shard if intent is not None and intent.shard in self.names else self.of(key)


@lru_cache(maxsize=65_536)
def _first(names: tuple[str, ...], name: str) -> str:
    return max(names, key=lambda shard: (weight(shard, name), shard))
