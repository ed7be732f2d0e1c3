"""Protocols that the core and the services are written against; the adapters fulfil them.

``Store`` is the coordination store: etcd in production (``adapters/etcd/store.py``), memory in tests
(``tests/memory_store.py``); both pass ``tests/contract/test_store*.py``. ``KubeApi`` is the hot path to the
Kubernetes API (``adapters/kube/api.py``).

Errors of every call are split as in ``shared.errors``: *refused* (had no effect) or *unknown* (may have had).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

if TYPE_CHECKING:  # an agent has nothing to do with Kubernetes' objects
    from shared.kube.resources import ObjectList, Resource, WatchEvent

T = TypeVar("T")


# --- the coordination store -------------------------------------------------------------------------------------


class KeyValue(Struct, frozen=True, gc=False):
    """One key as it was at ``mod_revision``. ``create_revision`` of a leader's key is its term."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease_id: int = 0


class Listing(Struct, frozen=True):
    """All keys under a prefix at one ``revision``, ordered by key. Watch from ``revision + 1``."""

    items: tuple[KeyValue, ...]
    revision: int


class CreateRevisionIs(Struct, frozen=True, gc=False):
    """Compare: the key's create_revision equals ``revision``; 0 means that the key is absent."""

    key: str
    revision: int


class ModRevisionIs(Struct, frozen=True, gc=False):
    """Compare: the key's mod_revision equals ``revision``; 0 means that the key is absent."""

    key: str
    revision: int


Compare = CreateRevisionIs | ModRevisionIs


class Put(Struct, frozen=True, gc=False):
    """Operation: write ``key``; attached to ``lease_id`` unless that is 0."""

    key: str
    value: bytes
    lease_id: int = 0


class DeleteKey(Struct, frozen=True, gc=False):
    """Operation: delete ``key``; absent is fine."""

    key: str


Op = Put | DeleteKey

MAX_TXN_OPS = 128
"""etcd's default ``--max-txn-ops``; more compares or more operations than this are refused."""


class TxnResult(Struct, frozen=True, gc=False):
    """``succeeded`` False: a compare failed and nothing was written; ``revision`` is the store's after the txn."""

    succeeded: bool
    revision: int


class LeaseGrant(Struct, frozen=True):
    """A lease as the store granted it (``ttl_s`` may be longer than asked)."""

    lease_id: int
    ttl_s: float


class StoreEvent(Struct, frozen=True):
    """One change of one key. A delete carries the key, an empty value and the deletion's ``mod_revision``."""

    kv: KeyValue
    deleted: bool = False


class WatchBatch(Struct, frozen=True):
    """All changes of one answer, in order of revision; complete up to ``revision``.

    ``events`` may be empty: then it is a progress notice, a sign of life.
    """

    events: tuple[StoreEvent, ...]
    revision: int


class MemberState(Struct, frozen=True):
    """One server of the store. ``size``: bytes of its file; ``in_use``: of them with something in them; ``quota``: the
    size from which on it takes no writes, 0 where it does not say."""

    endpoint: str
    version: str = ""
    size: int = 0
    in_use: int = 0
    quota: int = 0


class StoreState(Struct, frozen=True):
    """What the servers that answer say of themselves. ``alarms``: ``NOSPACE``, ``CORRUPT``, of any of them."""

    members: tuple[MemberState, ...] = ()
    alarms: frozenset[str] = frozenset()
    revision: int = 0


class Store(Protocol):
    """A linearizable key-value store with revisions, leases, watches and compaction.

    Every call takes ``timeout_s``, the one deadline over everything the call does; when it passes, a read raises
    ``StoreUnknown`` and so does a write, which may then still take effect. ``StoreRejected``: refused, no effect.
    """

    async def get(self, key: str, *, timeout_s: float = 2.0) -> KeyValue | None:
        """Linearizable read of one key."""
        ...

    async def state(self, *, timeout_s: float = 2.0) -> StoreState:
        """What each server says of itself. Unknown (``StoreUnknown``) only where none answers."""
        ...

    async def list_prefix(self, prefix: str, *, timeout_s: float = 5.0) -> Listing:
        """Linearizable read of everything under ``prefix`` at one revision, paged inside."""
        ...

    async def txn(self, compares: Sequence[Compare], ops: Sequence[Op], *, timeout_s: float = 2.0) -> TxnResult:
        """If all ``compares`` hold, apply all ``ops`` at one revision; otherwise nothing.

        Refused with ``StoreRejected`` when either list is longer than ``MAX_TXN_OPS``.
        """
        ...

    async def grant_lease(self, ttl_s: int, *, timeout_s: float = 2.0) -> LeaseGrant:
        """A new lease of at least ``ttl_s`` seconds."""
        ...

    async def keep_alive(self, lease_id: int, *, timeout_s: float = 2.0) -> float:
        """Renew once; the remaining TTL in seconds, 0 when the lease is gone (never an exception for that)."""
        ...

    async def revoke_lease(self, lease_id: int, *, timeout_s: float = 2.0) -> None:
        """End the lease and delete its keys; an unknown lease is fine."""
        ...

    def watch(self, prefix: str, *, start_revision: int) -> AsyncGenerator[WatchBatch, None]:
        """Changes under ``prefix`` from ``start_revision`` on: ordered, unique, atomic per revision, resumable.

        Survives restarts and lost connections by itself (resumes after the last delivered revision). Ends only by
        raising ``StoreCompacted``, whereupon the caller lists again, or by being closed (``aclose``).
        """
        ...

    async def compact(self, revision: int, *, timeout_s: float = 2.0) -> None:
        """Forget history before ``revision`` (tests and maintenance)."""
        ...

    async def close(self) -> None:
        """Release connections; watches end."""
        ...


# --- the Kubernetes API -----------------------------------------------------------------------------------------


class BindRequest(Struct, frozen=True, gc=False):
    """One Binding. ``uid`` and ``resource_version`` are preconditions the API server checks (409 otherwise)."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    node_name: str
    annotations: Mapping[str, str] = {}


class KubeApi(Protocol):
    """The calls a scheduler makes often. Refused: ``KubeRejected``; outcome unknown: ``KubeUnknown``."""

    async def list(self, resource: Resource[T], *, timeout_s: float = 60.0) -> ObjectList[T]:
        """All objects of one kind, paged with ``limit`` and ``continue``; restarts itself on an expired token."""
        ...

    def pages(self, resource: Resource[T], *, timeout_s: float = 60.0) -> AsyncGenerator[ObjectList[T], None]:
        """As ``list``, one page after the other, each of one revision and at least one in all.

        ``KubeExpired``: there are no more pages of that revision; what was told so far may be out of date.
        """
        ...

    def watch(self, resource: Resource[T], *, resource_version: str) -> AsyncIterator[WatchEvent[T]]:
        """Changes after ``resource_version``, with bookmarks; reconnects by itself after the stream ends.

        Raises ``KubeExpired`` on 410: list again.
        """
        ...

    def watch_batches(
        self, resource: Resource[T], *, resource_version: str, brief: int = 0
    ) -> AsyncGenerator[Sequence[WatchEvent[T]], None]:
        """As ``watch``, but everything that one read delivered comes as one sequence, never empty.

        ``brief``: so many streams at first are so short that a server tells within two seconds how far it has got."""
        ...

    async def revision(self, resource: Resource[Any]) -> str:
        """The resourceVersion of the kind now, as a list would have it, and no object. Empty where the server does not
        tell."""
        ...

    async def get(self, resource: Resource[T], *, namespace: str, name: str, timeout_s: float = 5.0) -> T | None:
        """One object, or None where there is none."""
        ...

    async def bind(self, request: BindRequest, *, timeout_s: float = 5.0) -> None:
        """POST pods/NAME/binding. Returning means bound; the API server's answer is a Status."""
        ...

    async def evict(self, *, namespace: str, name: str, uid: str, timeout_s: float = 5.0) -> None:
        """POST pods/NAME/eviction with a uid precondition. 429: a budget forbids it now; not tried again here."""
        ...

    async def patch(
        self,
        resource: Resource[Any],
        *,
        namespace: str,
        name: str,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        subresource: str = "",
        strategy: str = "strategic",
        timeout_s: float = 5.0,
        wait_when_busy: bool = True,
    ) -> None:
        """PATCH one object or its subresource. ``strategy``: ``strategic``, ``merge``, ``json`` (a list of operations).

        ``wait_when_busy`` False: a 429 is told at once, for callers that have other things to write meanwhile.
        """
        ...

    async def patched(
        self, resource: Resource[T], *, namespace: str, name: str, patch: Mapping[str, Any], subresource: str = "",
        timeout_s: float = 5.0, wait_when_busy: bool = True,
    ) -> T:  # fmt: skip
        """As ``patch``, strategic; returns the object as it is by that."""
        ...

    async def create(
        self,
        resource: Resource[Any],
        *,
        namespace: str,
        body: Mapping[str, Any],
        timeout_s: float = 5.0,
        wait_when_busy: bool = True,
        dry_run: bool = False,
    ) -> None:
        """POST one object. ``wait_when_busy`` as of ``patch``; ``dry_run``: it is judged as any other and not made."""
        ...

    async def delete(
        self,
        resource: Resource[Any],
        *,
        namespace: str,
        name: str,
        uid: str = "",
        resource_version: str = "",
        timeout_s: float = 5.0,
    ) -> None:
        """DELETE with preconditions: ``uid`` and ``resource_version``, where they are given."""
        ...

    async def close(self) -> None:
        """Release connections; watches end."""
        ...


class Clock(Protocol):
    """Monotonic seconds that count suspend (``CLOCK_BOOTTIME``); never compared between hosts."""

    def __call__(self) -> float:
        """Seconds since some fixed point."""
        ...
