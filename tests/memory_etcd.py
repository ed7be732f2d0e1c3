"""etcd's state machine in memory: keys, revisions, leases, history, compaction. No await, no I/O.

Why: the one place that says what etcd does with a request, small enough to be read beside etcd's documentation; the
contract tests hold it against the real one. No product code uses it. ``memory_store.py`` gives it the face of a Store.

Rules (names as in the contract tests):

- One revision per transaction that changes anything; a transaction that changes nothing has none. Revision starts at 1.
- A key's create_revision is that of the put that made it; a delete ends the key, the next put begins a new one.
- A lease lives at least its TTL after the grant or the last renewal. Its end deletes its keys in one revision.
- History is kept from the compacted revision on; reading before it is ``StoreCompacted``. Bounded: old history is
  compacted by itself beyond ``history_limit`` revisions.

Not its job: waiting; time passes only by the clock that was given (or ``time.monotonic``).
"""

from __future__ import annotations

import math
import threading
import time
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shared.errors import StoreCompacted, StoreRejected
from shared.ports import (
    MAX_TXN_OPS,
    Clock,
    Compare,
    CreateRevisionIs,
    KeyValue,
    LeaseGrant,
    Listing,
    Op,
    Put,
    StoreEvent,
    TxnResult,
    WatchBatch,
)

MAX_REQUEST_BYTES = 1_572_864
"""etcd's default ``--max-request-bytes``: 1.5 MiB."""


@dataclass(slots=True)
class _Lease:
    ttl_s: int
    expires_at: float
    keys: set[str] = field(default_factory=set)


class MemoryEtcd:
    """One server. Thread-safe; every method takes effect at one instant."""

    def __init__(self, *, clock: Clock | None = None, min_ttl_s: int = 1, history_limit: int = 100_000) -> None:
        self._clock: Clock = clock or time.monotonic
        self._min_ttl_s = min_ttl_s
        self._history_limit = history_limit
        self._lock = threading.RLock()
        self._revision = 1
        self._compacted = 0
        self._values: dict[str, KeyValue] = {}
        self._sorted: list[str] = []
        self._leases: dict[int, _Lease] = {}
        self._next_lease = 1000
        self._history: list[tuple[int, tuple[StoreEvent, ...]]] = []
        self._subscribers: dict[Callable[[], None], None] = {}

    def next_expiry_in(self) -> float:
        """Seconds until the next lease may end, a little late rather than early; infinite without leases."""
        with self._lock:
            due = min((lease.expires_at for lease in self._leases.values()), default=math.inf)
            return max(due - self._clock(), 0.0) + 0.001

    @property
    def revision(self) -> int:
        with self._lock:
            self.tick()
            return self._revision

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` after each revision and each new lease; it must only set a flag."""
        with self._lock:
            self._subscribers[changed] = None

    def unsubscribe(self, changed: Callable[[], None]) -> None:
        with self._lock:
            self._subscribers.pop(changed, None)

    # --- reads --------------------------------------------------------------------------------------------------

    def get(self, key: str) -> KeyValue | None:
        with self._lock:
            self.tick()
            return self._values.get(key)

    def list_prefix(self, prefix: str) -> Listing:
        with self._lock:
            self.tick()
            first = bisect_left(self._sorted, prefix)
            items: list[KeyValue] = []
            for key in self._sorted[first:]:
                if not key.startswith(prefix):
                    break
                items.append(self._values[key])
            return Listing(tuple(items), self._revision)

    def read_history(self, prefix: str, start_revision: int) -> WatchBatch | None:
        """The first revision >= ``start_revision`` that touched the prefix, None if there is none yet.

        Refused: ``StoreCompacted``.
        """
        with self._lock:
            self.tick()
            # etcd keeps what is needed to watch from the compacted revision itself on.
            if start_revision < self._compacted:
                raise StoreCompacted(
                    f"memory store: revision {start_revision} has been compacted", compact_revision=self._compacted
                )
            first = bisect_left(self._history, start_revision, key=lambda entry: entry[0])
            for revision, events in self._history[first:]:
                matching = tuple(event for event in events if event.kv.key.startswith(prefix))
                if matching:
                    return WatchBatch(matching, revision)
            return None

    def caught_up(self, prefix: str, start_revision: int) -> int | None:
        """The present revision if nothing under the prefix has happened from ``start_revision`` on, else None."""
        with self._lock:
            return self._revision if self.read_history(prefix, start_revision) is None else None

    # --- writes -------------------------------------------------------------------------------------------------

    def txn(self, compares: Sequence[Compare], ops: Sequence[Op]) -> TxnResult:
        with self._lock:
            self.tick()
            self._refuse_bad(compares, ops)
            if not all(self._holds(compare) for compare in compares):
                return TxnResult(succeeded=False, revision=self._revision)
            events: list[StoreEvent] = []
            revision = self._revision + 1
            for op in ops:
                if isinstance(op, Put):
                    events.append(self._put(op, revision))
                elif op.key in self._values:
                    events.append(self._delete(op.key, revision))
            self._publish(events)
            return TxnResult(succeeded=True, revision=self._revision)

    def grant_lease(self, ttl_s: int) -> LeaseGrant:
        with self._lock:
            self.tick()
            self._next_lease += 1
            granted_s = max(ttl_s, self._min_ttl_s)
            self._leases[self._next_lease] = _Lease(granted_s, self._clock() + granted_s)
            self._wake()
            return LeaseGrant(self._next_lease, float(granted_s))

    def keep_alive(self, lease_id: int) -> float:
        with self._lock:
            self.tick()
            lease = self._leases.get(lease_id)
            if lease is None:
                return 0.0
            lease.expires_at = self._clock() + lease.ttl_s
            return float(lease.ttl_s)

    def revoke_lease(self, lease_id: int) -> None:
        with self._lock:
            self.tick()
            if lease_id in self._leases:
                self._end_lease(lease_id)

    def restart(self) -> None:
        """What a restart of etcd does to leases: each gets its full TTL again. Everything else is on its disk."""
        with self._lock:
            for lease in self._leases.values():
                lease.expires_at = self._clock() + lease.ttl_s

    def compact(self, revision: int) -> None:
        with self._lock:
            self.tick()
            if revision <= self._compacted or revision > self._revision:
                raise StoreRejected(
                    f"memory store: cannot compact {revision}: compacted {self._compacted}, now {self._revision}"
                )
            self._forget_before(revision)

    def tick(self) -> None:
        """End the leases whose time is over. Every call does it first; a driver of virtual time calls it too."""
        with self._lock:
            now = self._clock()
            for lease_id in [lease_id for lease_id, lease in self._leases.items() if lease.expires_at <= now]:
                self._end_lease(lease_id)

    # --- inside -------------------------------------------------------------------------------------------------

    def _refuse_bad(self, compares: Sequence[Compare], ops: Sequence[Op]) -> None:
        if len(compares) > MAX_TXN_OPS or len(ops) > MAX_TXN_OPS:
            raise StoreRejected(
                f"memory store: {len(compares)} compares and {len(ops)} operations; the limit is {MAX_TXN_OPS}"
            )
        puts = [op.key for op in ops if isinstance(op, Put)]
        deletes = {op.key for op in ops if not isinstance(op, Put)}
        if len(set(puts)) != len(puts) or deletes.intersection(puts):
            raise StoreRejected("memory store: duplicate key given in txn request")
        if any(not op.key for op in ops) or any(not compare.key for compare in compares):
            raise StoreRejected("memory store: key is not provided")
        size = sum(len(op.key.encode()) + len(op.value) for op in ops if isinstance(op, Put))
        if size > MAX_REQUEST_BYTES:
            raise StoreRejected("memory store: request is too large")
        for op in ops:
            if isinstance(op, Put) and op.lease_id and op.lease_id not in self._leases:
                raise StoreRejected("memory store: requested lease not found")

    def _holds(self, compare: Compare) -> bool:
        kv = self._values.get(compare.key)
        if isinstance(compare, CreateRevisionIs):
            return (kv.create_revision if kv else 0) == compare.revision
        return (kv.mod_revision if kv else 0) == compare.revision

    def _put(self, op: Put, revision: int) -> StoreEvent:
        old = self._values.get(op.key)
        if old is None:
            insort(self._sorted, op.key)
        elif old.lease_id and old.lease_id in self._leases:
            self._leases[old.lease_id].keys.discard(op.key)
        if op.lease_id:
            self._leases[op.lease_id].keys.add(op.key)
        created = old.create_revision if old else revision
        kv = KeyValue(op.key, op.value, created, revision, op.lease_id)
        self._values[op.key] = kv
        return StoreEvent(kv)

    def _delete(self, key: str, revision: int) -> StoreEvent:
        old = self._values.pop(key)
        del self._sorted[bisect_left(self._sorted, key)]
        if old.lease_id and old.lease_id in self._leases:
            self._leases[old.lease_id].keys.discard(key)
        return StoreEvent(KeyValue(key, b"", 0, revision), deleted=True)

    def _end_lease(self, lease_id: int) -> None:
        keys = sorted(self._leases[lease_id].keys)
        events = [self._delete(key, self._revision + 1) for key in keys]
        del self._leases[lease_id]
        self._publish(events)

    def _publish(self, events: Sequence[StoreEvent]) -> None:
        if not events:
            return
        self._revision += 1
        self._history.append((self._revision, tuple(events)))
        # Twice the limit, then back to it: compaction in bulk keeps a put cheap.
        if len(self._history) > 2 * self._history_limit:
            self._forget_before(self._history[-self._history_limit][0])
        self._wake()

    def _wake(self) -> None:
        for changed in tuple(self._subscribers):
            changed()

    def _forget_before(self, revision: int) -> None:
        self._compacted = revision
        del self._history[: bisect_left(self._history, revision, key=lambda entry: entry[0])]
