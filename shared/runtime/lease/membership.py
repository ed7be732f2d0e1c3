"""Keeps one process registered under its own key: agents with what they own, others with where they listen.

Why: who is there must follow from etcd alone. The key lives under a lease renewed on the lease thread, only while the
main loop ticks; a process that dies or hangs is gone after the TTL, one that leaves is gone at once.

Rules:

1. The first registration of a process replaces whatever its key holds: a new incarnation is there at once.
2. After a loss (lease expired, key deleted) it registers again, but never over another incarnation's key: then it has
   itself been replaced, and ends (``on_replaced``).
3. ``registered`` is by the clock, counted from before sending, as for leadership; here it is information only.

It does not read other members (``prefix_watch.follow_prefix`` does) and does not decide what follows from membership.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

import msgspec
import structlog

from shared.election.lease import LeaseSettings
from shared.errors import ConfigError, StoreError, StoreFull, StoreRolledBack
from shared.ports import Compare, ModRevisionIs, Put
from shared.runtime.lease.thread import LeaseThread
from shared.runtime.process.health import Warnings
from shared.runtime.process.process import START_TIMEOUT_S, ProcessSettings
from shared.runtime.process.runtime import Runtime
from shared.wire.records import AgentRecord, LearnerRecord, MemberRecord, encode_record

_log = structlog.get_logger(__name__)

_LOOK_EVERY = 5
"""The key itself is read at each fifth renewal: keeping a lease alive does not notice that the key is gone."""


_OWN_LEASES = 16
"""How many leases of ours are remembered: one per attempt to register while answers are lost."""


class _Replaced(Exception):
    """Another incarnation holds the key."""

    def __str__(self) -> str:
        return "another incarnation holds the key"


class Membership:
    """One key of one process. ``async with`` registers in the background; leaving revokes the lease.

    ``on_replaced()`` runs on the main loop when another incarnation has taken the key, or the store has gone back in
    time and is not the one that this process joined: it should end, and start from scratch where it has a supervisor.
    """

    def __init__(
        self,
        thread: LeaseThread,
        *,
        key: str,
        value: bytes,
        settings: LeaseSettings | None = None,
        on_replaced: Callable[[], None] | None = None,
    ) -> None:
        self._thread = thread
        self._key = key
        self._value = value
        self._settings = settings or LeaseSettings()
        self._on_replaced = on_replaced
        self._lease_id = 0
        self._own_leases: deque[int] = deque(maxlen=_OWN_LEASES)
        self._written = b""
        self._valid_until = -float("inf")
        self._ever_registered = False
        self._poke = asyncio.Event()
        self._main: asyncio.AbstractEventLoop | None = None
        self._running: concurrent.futures.Future[None] | None = None
        self._first = asyncio.Event()

    def registered(self, now: float | None = None) -> bool:
        """Whether the key is certainly still there at ``now`` (``CLOCK_BOOTTIME`` seconds; default: now)."""
        return (self._thread.clock() if now is None else now) < self._valid_until

    async def wait_registered(self) -> None:
        """Return once the key has been written for the first time."""
        await self._first.wait()

    def set_value(self, value: bytes) -> None:
        """Write ``value`` to the key soon; a burst of calls writes the last one. After leaving it does nothing."""
        if value != self._value:
            self._value = value
            if self._running is not None:
                self._thread.submit(self._set_poke())

    async def __aenter__(self) -> Self:
        self._main = asyncio.get_running_loop()
        self._running = self._thread.submit(self._run())
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._running is None:
            return
        running, self._running = self._running, None  # from here on a new value is nobody's any more
        running.cancel()
        try:
            async with asyncio.timeout(self._settings.call_timeout_s + 0.5):
                await asyncio.wrap_future(self._thread.submit(self._leave()))
        except (TimeoutError, StoreError) as error:
            # The lease ends by itself.
            _log.info("member_left_unrevoked", key=self._key, error=str(error))

    async def _leave(self) -> None:
        self._valid_until = -float("inf")
        if self._lease_id:
            await self._thread.store.revoke_lease(self._lease_id, timeout_s=self._settings.call_timeout_s)

    async def _set_poke(self) -> None:
        self._poke.set()

    # --- in the lease thread ----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                if self._thread.main_alive():
                    await self._register()
                    await self._keep()
            except (_Replaced, StoreRolledBack) as error:
                self._valid_until = -float("inf")
                _log.warning("member_replaced", key=self._key, error=str(error))
                self._tell(self._on_replaced)
                return
            except StoreError as error:
                _log.info("member_registration_failed", key=self._key, error=str(error))
            await asyncio.sleep(self._settings.retry_s)

    async def _register(self) -> None:
        """Write the key under a new lease. After an unknown outcome the next attempt has a lease of its own."""
        store, timeout_s = self._thread.store, self._settings.call_timeout_s
        sent_at = self._thread.clock()
        grant = await store.grant_lease(self._settings.lease_ttl_s, timeout_s=timeout_s)
        compares: list[Compare] = []
        if self._ever_registered:
            compares = [ModRevisionIs(self._key, await self._replaceable_revision())]
        # From here on a key under this lease is ours, even if the answer to the write is lost.
        self._lease_id = grant.lease_id
        self._own_leases.append(grant.lease_id)
        value = self._value
        result = await store.txn(compares, [Put(self._key, value, grant.lease_id)], timeout_s=timeout_s)
        if not result.succeeded:
            await store.revoke_lease(grant.lease_id, timeout_s=timeout_s)
            return
        self._ever_registered = True
        self._written = value
        self._valid_until = self._settings.valid_until(sent_at=sent_at, ttl_s=grant.ttl_s)
        _log.info("member_registered", key=self._key, revision=result.revision)
        self._tell(self._first.set)

    async def _replaceable_revision(self) -> int:
        """The mod_revision that our next write may replace: 0 (absent) or our own. Raises ``_Replaced``."""
        kv = await self._thread.store.get(self._key, timeout_s=self._settings.call_timeout_s)
        if kv is None:
            return 0
        if kv.lease_id not in self._own_leases:
            raise _Replaced
        return kv.mod_revision

    async def _keep(self) -> None:
        """Renew until the key or its lease is gone; returns then."""
        settings, store = self._settings, self._thread.store
        renewals = 0
        next_at = self._valid_until - settings.renew_deadline_s + settings.renew_every_s
        while self._lease_id:
            await self._sleep_until(next_at)
            if not self._thread.main_alive():
                next_at = self._thread.clock() + settings.retry_s
                continue
            try:
                looks = self._value != self._written or renewals % _LOOK_EVERY == 0
                if looks and not await self._write_if_changed():
                    return
                sent_at = self._thread.clock()
                ttl_s = await store.keep_alive(self._lease_id, timeout_s=settings.call_timeout_s)
            except StoreRolledBack:
                raise
            except StoreError as error:
                _log.info("member_renewal_failed", key=self._key, error=str(error))
                next_at = self._thread.clock() + settings.retry_s
                continue
            if ttl_s <= 0:
                self._valid_until = -float("inf")
                _log.warning("member_lease_expired", key=self._key)
                return
            renewals += 1
            self._valid_until = settings.valid_until(sent_at=sent_at, ttl_s=ttl_s)
            next_at = sent_at + settings.renew_every_s

    async def _write_if_changed(self) -> bool:
        """Look at the key, write a new value; False when the key is gone and must be registered again."""
        revision = await self._replaceable_revision()
        if revision == 0:
            return False
        value = self._value
        if value == self._written:
            return True
        try:
            result = await self._thread.store.txn(
                [ModRevisionIs(self._key, revision)],
                [Put(self._key, value, self._lease_id)],
                timeout_s=self._settings.call_timeout_s,
            )
        except StoreFull as error:  # what is there stays true enough; without the renewal that follows it would go
            _log.info("member_not_updated", key=self._key, error=str(error))
            return True
        if result.succeeded:
            self._written = value
        return result.succeeded

    async def _sleep_until(self, at: float) -> None:
        """Until ``at`` or until a new value is to be written."""
        delay_s = at - self._thread.clock()
        if delay_s <= 0:
            return
        try:
            async with asyncio.timeout(min(delay_s, self._settings.renew_every_s)):
                await self._poke.wait()
        except TimeoutError:
            return
        self._poke.clear()

    def _tell(self, callback: Callable[[], object] | None) -> None:
        if callback is not None and self._main is not None and not self._main.is_closed():
            self._main.call_soon_threadsafe(callback)


@asynccontextmanager
async def listed(
    runtime: Runtime[ProcessSettings],
    thread: LeaseThread,
    *,
    key: str,
    record: AgentRecord | LearnerRecord | MemberRecord,
    on_replaced: Callable[[], None] | None = None,
) -> AsyncIterator[Membership]:
    """Registered under ``key`` until the end of the ``async with``, with what is wrong with the process.

    A process that may stand by is listed for people alone, so it goes on when another takes its entry over
    (``on_replaced`` None).
    """
    async with Membership(
        thread,
        key=key,
        value=encode_record(record),
        settings=LeaseSettings.for_ttl(runtime.settings.lease_ttl_s),
        on_replaced=on_replaced,
    ) as membership:

        def tell(warnings: Warnings) -> None:
            membership.set_value(encode_record(msgspec.structs.replace(record, warnings=warnings)))

        runtime.service.spawn("process_health", runtime.health.run(tell))
        yield membership


async def serve_registered(
    runtime: Runtime[ProcessSettings], thread: LeaseThread, *, key: str, record: AgentRecord | LearnerRecord,
    begin: Callable[[], None],
) -> None:  # fmt: skip
    """Register, ``begin``, say that we are ready, and serve until asked to stop.

    ``ConfigError``: etcd does not take the registration, or a second process has the same id: that one goes on.
    """
    replaced = asyncio.Event()
    async with listed(runtime, thread, key=key, record=record, on_replaced=replaced.set) as membership:
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await membership.wait_registered()
        except TimeoutError as error:
            raise ConfigError(
                f"etcd: {','.join(runtime.settings.etcd)} did not take our registration within {START_TIMEOUT_S:g} s; "
                "start it or correct --etcd"
            ) from error
        begin()
        runtime.ready()
        waiting = [asyncio.ensure_future(event.wait()) for event in (runtime.service.stopping, replaced)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
    if replaced.is_set():
        raise ConfigError(
            f"id: another process has registered as {runtime.role} {runtime.id!r}; "
            f"give each {runtime.role} its own --id"
        )
