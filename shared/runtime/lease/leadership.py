"""Holds leadership for a service: carries out the elector's instructions and tells the service what follows.

Why: ``shared.election.elector`` decides; this shell does its I/O on the lease thread, and hands the result to the main
loop. ``is_valid`` reads a state that the thread has published *before* it tells anybody, so a service that asks right
before each write never acts on a leadership that is over.

Not its job: deciding anything, fencing (every write of a leader compares its term in its own transaction), restarting
the service (on loss it should end; its supervisor starts it anew).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self

import structlog

from shared.election.elector import Elector, ElectorPhase, ElectorState
from shared.election.events import (
    Answer,
    Claimed,
    ClaimKey,
    Elected,
    ElectionTick,
    Event,
    Failed,
    Granted,
    GrantLease,
    Instruction,
    KeySeen,
    LeaderChanged,
    LeaderEnded,
    LeaderKey,
    LeaderRead,
    LeftoverRemoved,
    ReadLeader,
    RemoveLeftover,
    Renew,
    Renewed,
    Request,
    Revoked,
    Start,
    StopElection,
    StopLeading,
)
from shared.election.lease import LeaseSettings
from shared.election.record import LeaderRecord, decode_record
from shared.errors import ConclaveError, StoreCompacted, StoreError, StoreRejected, StoreRolledBack, StoreUnknown
from shared.ports import CreateRevisionIs, DeleteKey, KeyValue, Put, Store
from shared.runtime.lease.thread import LeaseThread
from shared.runtime.records.prefix_watch import follow_prefix

_log = structlog.get_logger(__name__)

_MOST_EVENTS = 256

_LONGEST_SLEEP_S = 5.0
"""Timers of the loop do not count suspend, CLOCK_BOOTTIME does: wake up now and then and look."""


class Leadership:
    """One candidacy for one key. ``async with`` campaigns; leaving resigns, and a successor leads at once.

    ``yields``: a key that our predecessor in this place has left is for others first (``Elector``).
    ``on_elected(term)``, ``on_lost(term, reason)`` and ``on_leader(leader or None)`` run on the main loop, in order,
    and must not block. Between them ``is_valid`` is the truth: it turns False by the clock alone. ``on_lost`` with the
    reason ``store_rolled_back`` or ``internal`` is the end of the candidacy (term 0 if it was not leading then): the
    process should start from scratch.
    """

    def __init__(
        self,
        thread: LeaseThread,
        *,
        key: str,
        record: LeaderRecord,
        settings: LeaseSettings | None = None,
        yields: bool = False,
        on_elected: Callable[[int], None] | None = None,
        on_lost: Callable[[int, str], None] | None = None,
        on_leader: Callable[[LeaderKey | None], None] | None = None,
    ) -> None:
        self._thread = thread
        self._key = key
        self._settings = settings or LeaseSettings()
        self._elector = Elector(self._settings, record, yields)
        self._state = ElectorState()
        self._on_elected, self._on_lost, self._on_leader = on_elected, on_lost, on_leader
        self._events: asyncio.Queue[Event] = asyncio.Queue(_MOST_EVENTS)
        self._requests: set[asyncio.Task[None]] = set()
        self._main: asyncio.AbstractEventLoop | None = None
        self._elected = asyncio.Event()
        self._ended: ConclaveError | None = None
        self.renewal_s = 0.0
        """What the last renewal took, answered or not; read from any thread."""
        self._running: concurrent.futures.Future[None] | None = None

    # --- what a service asks ------------------------------------------------------------------------------------

    def is_valid(self, now: float | None = None) -> bool:
        """Whether this process may act as leader at ``now`` (``CLOCK_BOOTTIME`` seconds; default: now)."""
        return self._state.is_valid(self._thread.clock() if now is None else now)

    @property
    def term(self) -> int:
        """Our term while we lead by the clock, else 0. Compare it in every write: ``CreateRevisionIs(key, term)``."""
        state = self._state
        return state.term if state.is_valid(self._thread.clock()) else 0

    @property
    def key(self) -> str:
        return self._key

    @property
    def leader(self) -> LeaderKey | None:
        """The leader as last seen in etcd: a hint."""
        return self._state.leader

    async def wait_elected(self) -> int:
        """Our term, once we lead. ``StoreRolledBack`` or ``ConclaveError`` when the candidacy has ended instead."""
        while not (term := self.term):
            if self._ended is not None:
                raise self._ended
            self._elected.clear()
            await self._elected.wait()
        return term

    def leader_ended(self, term: int) -> None:
        """The process that led with this term is no more; its lease need not be waited for."""
        if self._running is not None:
            self._thread.submit(self._post(LeaderEnded(term)))

    # --- life -----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._main = asyncio.get_running_loop()
        self._running = self._thread.submit(self._run())
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._running is None:
            return
        self._thread.submit(self._post(StopElection()))
        # The elector answers Stop after one revocation at most; beyond that the lease ends by itself.
        running = asyncio.wrap_future(self._running)
        await asyncio.wait((running,), timeout=2 * self._settings.call_timeout_s + 1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    async def _post(self, event: Event) -> None:
        await self._events.put(event)

    async def _run(self) -> None:
        """In the lease thread: one event after another, until the elector has stopped."""
        watching = asyncio.create_task(self._watch())
        try:
            self._handle(Start())
            while self._state.phase is not ElectorPhase.STOPPED:
                self._handle(await self._next_event())
        except Exception:
            # The shell's one guard: a bug here must end leadership, not leave it standing without renewals. Whoever
            # awaits the candidacy gets it again.
            _log.exception("elector_failed", key=self._key)
            self._abandon("internal", ConclaveError(f"the election of {self._key} has failed; see the log"))
            raise
        finally:
            watching.cancel()
            for task in self._requests:
                task.cancel()
            await asyncio.gather(watching, *self._requests, return_exceptions=True)

    async def _next_event(self) -> Event:
        sleep_s = min(self._state.wake_at - self._thread.clock(), _LONGEST_SLEEP_S)
        if sleep_s > 0:
            try:
                async with asyncio.timeout(sleep_s):
                    return await self._events.get()
            except TimeoutError:
                pass
        elif not self._events.empty():
            return self._events.get_nowait()
        return ElectionTick(main_alive=self._thread.main_alive())

    def _handle(self, event: Event) -> None:
        alive = self._thread.main_alive()
        if alive != self._state.main_alive:
            # A campaign must not be won for a service that hangs: the elector hears of that before the event.
            self._step(ElectionTick(main_alive=alive))
        self._step(event)

    def _step(self, event: Event) -> None:
        state, instructions = self._elector.step(self._state, event, self._thread.clock())
        # Published before anything is done or said: is_valid must be False before anybody hears of a loss.
        self._state = state
        for instruction in instructions:
            self._carry_out(instruction)

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case Elected():
                _log.info("leader_elected", key=self._key, term=instruction.term)
                self._tell(self._elected.set)
                self._tell(self._on_elected, instruction.term)
            case StopLeading():
                _log.warning("leader_lost", key=self._key, term=instruction.term, reason=instruction.reason)
                self._tell(self._on_lost, instruction.term, instruction.reason)
            case LeaderChanged():
                self._tell(self._on_leader, instruction.leader)
            case _:
                task = asyncio.create_task(self._request(instruction))
                self._requests.add(task)
                task.add_done_callback(self._requests.discard)

    def _tell(self, callback: Callable[..., object] | None, *args: Any) -> None:
        if callback is not None and self._main is not None and not self._main.is_closed():
            self._main.call_soon_threadsafe(functools.partial(callback, *args))

    def _abandon(self, reason: str, error: ConclaveError) -> None:
        """End the candidacy at once; the lease ends by itself."""
        if self._state.phase is not ElectorPhase.STOPPED:
            term, self._state = self._state.term, ElectorState(phase=ElectorPhase.STOPPED)
            self._ended = error
            self._tell(self._elected.set)
            self._tell(self._on_lost, term, reason)

    async def _request(self, request: Request) -> None:
        sent_at = self._thread.clock()
        try:
            answer = await perform(self._thread.store, self._key, request, sent_at=sent_at, settings=self._settings)
        except StoreRolledBack as error:
            await self._rolled_back(error)
            return
        except StoreRejected as error:
            _log.warning("election_request_rejected", key=self._key, error=str(error))
            answer = Failed(request.request, unknown=False)
        except StoreError as error:
            _log.info("election_request_unknown", key=self._key, error=str(error))
            answer = Failed(request.request, unknown=True)
        if isinstance(request, Renew):
            self.renewal_s = self._thread.clock() - sent_at
        await self._events.put(answer)

    async def _rolled_back(self, error: StoreRolledBack) -> None:
        # All that the elector has seen and numbered belongs to a history that is gone.
        _log.error("election_store_rolled_back", key=self._key, error=str(error))
        self._abandon("store_rolled_back", error)
        await self._events.put(StopElection())

    async def _watch(self) -> None:
        """Tell the elector every change of the key, at once."""
        store = self._thread.store
        while True:
            try:
                listing = await store.list_prefix(self._key)
                kv = next((kv for kv in listing.items if kv.key == self._key), None)
                absent = KeyValue(self._key, b"", 0, listing.revision)
                await self._events.put(KeySeen(kv) if kv is not None else KeySeen(absent, deleted=True))
                async with aclosing(store.watch(self._key, start_revision=listing.revision + 1)) as batches:
                    async for batch in batches:
                        for event in batch.events:
                            # A prefix watch also sees keys that merely begin like ours.
                            if event.kv.key == self._key:
                                await self._events.put(KeySeen(event.kv, event.deleted))
                return
            except StoreRolledBack as error:
                await self._rolled_back(error)
                return
            except (StoreUnknown, StoreCompacted) as error:
                _log.info("leader_watch_restarted", key=self._key, error=str(error))
                await asyncio.sleep(self._settings.retry_s)
            except StoreRejected as error:
                # The elector still reads the key every observe_every_s.
                _log.warning("leader_watch_rejected", key=self._key, error=str(error))
                await asyncio.sleep(self._settings.observe_every_s)


async def perform(store: Store, key: str, request: Request, *, sent_at: float, settings: LeaseSettings) -> Answer:
    """Carry out one request of the elector. ``sent_at``: the clock *before* sending, which validity counts from.

    Refused: ``StoreRejected``. Unknown: ``StoreUnknown``.
    """
    timeout_s = settings.call_timeout_s
    match request:
        case GrantLease():
            grant = await store.grant_lease(request.ttl_s, timeout_s=timeout_s)
            return Granted(request.request, grant.lease_id, grant.ttl_s, sent_at)
        case ClaimKey():
            claim = [Put(key, request.value, request.lease_id)]
            result = await store.txn([CreateRevisionIs(key, 0)], claim, timeout_s=timeout_s)
            return Claimed(request.request, result.succeeded, result.revision)
        case ReadLeader():
            # A listing, because it says at which revision the key was absent.
            listing = await store.list_prefix(key, timeout_s=timeout_s)
            kv = next((kv for kv in listing.items if kv.key == key), None)
            return LeaderRead(request.request, kv, listing.revision)
        case RemoveLeftover():
            result = await store.txn([CreateRevisionIs(key, request.term)], [DeleteKey(key)], timeout_s=timeout_s)
            return LeftoverRemoved(request.request, result.succeeded)
        case Renew():
            ttl_s = await store.keep_alive(request.lease_id, timeout_s=timeout_s)
            return Renewed(request.request, ttl_s, sent_at)
        case _:
            await store.revoke_lease(request.lease_id, timeout_s=timeout_s)
            return Revoked(request.request)


async def observe_leader(store: Store, key: str) -> AsyncGenerator[tuple[LeaderRecord, int] | None, None]:
    """(record, term) of the current leader now and after every change, None for nobody; for clients of a leader.

    Runs in the caller's loop on the caller's store; ends as ``follow_prefix`` does.
    """
    first, last = True, None
    async with aclosing(follow_prefix(store, key)) as views:
        async for view in views:
            kv = view.items.get(key)
            record = decode_record(kv.value) if kv is not None else None
            current = (record, kv.create_revision) if kv is not None and record is not None else None
            if first or current != last:
                first, last = False, current
                yield current


def leader_of(leadership: Leadership | None) -> tuple[LeaderRecord, int] | None:
    """(record, term) of the leader as last seen in etcd: a hint. None: nobody leads, or not known yet."""
    seen = leadership.leader if leadership is not None else None
    record = decode_record(seen.value) if seen is not None else None
    return None if seen is None or record is None else (record, seen.term)


def term_of(leadership: Leadership | None) -> int:
    """The term in which this process leads; 0 where it does not."""
    return leadership.term if leadership is not None else 0


def leadership_figures(service_id: str, leadership: Leadership | None) -> dict[str, Any]:
    """What every elected service tells of itself."""
    term, found = term_of(leadership), leader_of(leadership)
    figures: dict[str, Any] = {"id": service_id, "leading": term > 0, "term": term}
    if found is not None:
        figures["leader"] = {"id": found[0].identity, "url": found[0].url, "term": found[1]}
    return figures
