"""One transaction of the binder as data: what it writes and rests on, and what it means that it did not succeed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from services.binder.core.events import StoredIntent
from shared.wire.records import GANG, Intent, gang_part

Lenders = frozenset[tuple[str, int, int]]
"""Shard, term and fence of each whose binder keeps room for an intent."""

NO_LENDERS: Lenders = frozenset()


@dataclass(frozen=True, slots=True)
class Batch:
    """The transaction in flight: intents put for the first time, renewed, and deleted (with their creation).

    ``lenders``: what its new intent rests on; ``passes``: units that wait for its success alone.
    """

    number: int
    coordinator_term: int
    puts: Mapping[str, Intent]
    renewals: Mapping[str, Intent]
    clears: Mapping[str, int]
    fences: bool = False
    """It moves the fence: none that was made before it can come after it."""
    ghosts: frozenset[str] = frozenset()
    """Keys of intents that were given up while a transaction with them may still have come: compared to be absent."""
    lenders: Lenders = NO_LENDERS
    passes: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """Every key that it touches or compares."""
        return (*self.puts, *self.renewals, *self.clears, *self.ghosts)


@dataclass(slots=True)
class BatchDiagnosis:
    """What a batch that did not succeed means, unit key by unit key. ``fenced``: somebody else leads the shard;
    ``moved``: the record of the shards has changed. ``recalled``: a lender leads no more, or has moved its fence."""

    fenced: bool = False
    moved: bool = False
    committed: dict[str, Intent] = field(default_factory=dict)
    stale: list[str] = field(default_factory=list)
    foreign: dict[str, StoredIntent] = field(default_factory=dict)
    exhausted: list[str] = field(default_factory=list)
    recalled: list[str] = field(default_factory=list)


def steps_of(batch: Batch, keys: Iterable[str]) -> tuple[str, ...]:
    """Which steps of a gang, and of what is lent, the transaction makes, by the names of their failpoints."""
    lent = ("lend",) if batch.passes else ()
    if not [key for key in keys if key.startswith(GANG)]:
        return lent
    parts = [part for key in batch.puts if (part := gang_part(key)) is not None]
    steps = [*lent]
    steps += ["gang_link"] if any(link for _, link in parts) else []
    steps += ["gang_head"] if any(not link for _, link in parts) else []
    steps += ["gang_rewrite"] if any(gang_part(key) is not None for key in batch.renewals) else []
    return (*steps, "gang_clear") if any(gang_part(key) is not None for key in batch.clears) else tuple(steps)


def same(found: Intent, wanted: Intent) -> bool:
    """Whether the intent in etcd is the one we wanted to write, by plan and unit."""
    return (found.coordinator_term, found.plan_id, found.unit) == (
        wanted.coordinator_term,
        wanted.plan_id,
        wanted.unit,
    )
