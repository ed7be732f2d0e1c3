r"""What every leader runs on: the shell of one term, and the candidacy that terms come from.

    stand by --elected--> one term (a ``LeaderShell``, its sources) --lost, fenced, a bug--> the error that ended it
        \                       \--asked to stop--> drain
         \--asked to stop----------------------------------> resign

    post -> inbox -> turn: do we still lead? --> core.handle(events, now) --> instructions, carried out in order
              ^                                                                   |
              +---- the core's next deadline, what became of background tasks <---+

Everything that arrived since the last turn of the loop is one batch, so a lone event is handled at once and a burst
costs one pass. Leadership is asked for by the clock before each turn; on doubt nothing more goes out. The shell decides
nothing; the core does.
"""

from __future__ import annotations

import asyncio
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from shared.election.events import Leader
from shared.election.lease import LeaseSettings
from shared.election.record import LeaderRecord, decode_record
from shared.errors import LeadershipLost, StoreError
from shared.ports import Clock, Store
from shared.runtime.lease.leader_connection import LeaderConnection
from shared.runtime.lease.leadership import Leadership
from shared.runtime.lease.membership import listed
from shared.runtime.lease.thread import LeaseThread
from shared.runtime.process.process import ProcessSettings
from shared.runtime.process.runtime import Runtime, new_incarnation
from shared.version import CONCLAVE_VERSION
from shared.wire.records import MemberRecord
from shared.wire.records import decode_record as decode_member_record

E = TypeVar("E")
I = TypeVar("I")  # noqa: E741  the counterpart of E: instructions

DRAIN_S = 3.0
"""How long a leader that is asked to stop goes on with what is on its way."""


class Validity(Protocol):
    """What a leader is asked before each turn, and before each write that no transaction fences (``Leadership``)."""

    def is_valid(self, now: float | None = None) -> bool:
        """Whether this process may act as leader now."""
        ...


class Turn(Struct, frozen=True, gc=False):
    """What one turn took. ``waited_s``: from the post that asked for it; ``cpu_s``: of this thread."""

    ended: float
    events: int
    waited_s: float
    took_s: float
    cpu_s: float


class LeaderShell(ABC, Generic[E, I]):
    """One term's shell. ``run`` lasts until the term ends, by an error.

    ``handle`` is the core's; ``tick`` is the event that a deadline posts; a turn takes ``most_events`` at most.
    ``leadership`` None: no other process may act in our place.
    """

    def __init__(
        self,
        handle: Callable[[Sequence[E], float], Iterable[I]],
        *,
        tick: E,
        clock: Clock,
        leadership: Validity | None,
        most_events: int = sys.maxsize,
    ) -> None:
        self._handle = handle
        self._tick = tick
        self._clock = clock
        self._leadership = leadership
        self._most_events = most_events
        self._inbox: list[E] = []
        self._turning = False
        self._posted_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: asyncio.Future[None] | None = None

    @abstractmethod
    def carry_out(self, instruction: I) -> None:
        """Do it, or ``start`` what does it; an error ends the term."""

    def turned(self, turn: Turn) -> None:
        """After each turn."""

    def post(self, events: Iterable[E]) -> None:
        """Events for the next turn of the loop."""
        self._inbox.extend(events)
        if self._inbox and not self._turning:
            self._turning, self._posted_at = True, self._clock()
            asyncio.get_running_loop().call_soon(self._turn)

    def post_one(self, event: E) -> None:
        """One event for the next turn of the loop."""
        self.post((event,))

    def hold(self) -> None:
        """Take no turn before ``resume``: what is posted meanwhile waits."""
        self._turning = True

    def resume(self, first: E) -> None:
        """Go on with ``first``, then with what was posted meanwhile."""
        self._inbox.insert(0, first)
        self._turning = False
        self.post(())

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it beside everything else; its error ends the term."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def wake_at(self, at: float | None) -> None:
        """Post the tick at this time of the clock instead of any earlier request; None: not at all."""
        if at == self._timer_at:
            return
        self._timer_at = at
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at is not None:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, at - self._clock()), self._due)

    @property
    def over(self) -> bool:
        """Whether the term has ended."""
        return self._ended is not None and self._ended.done()

    def end(self, error: BaseException) -> None:
        """End the term with this error, unless it has ended already."""
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(error)

    async def run(self) -> None:
        """Eternal; raises what ends the term: ``LeadershipLost``, ``StoreFenced``, or a bug's error."""
        self._ended = asyncio.get_running_loop().create_future()
        self.post(())  # what came before
        try:
            await self._ended
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for task in self._tasks:
                task.cancel()

    def _turn(self) -> None:
        self._turning = False
        if self._ended is None or self._ended.done():
            return
        if self._leadership is not None and not self._leadership.is_valid():
            self.end(LeadershipLost("the lease may have ended"))
            return
        events, self._inbox = self._inbox[: self._most_events], self._inbox[self._most_events :]
        began, began_cpu_s = self._clock(), time.thread_time()
        try:
            for instruction in self._handle(events, began):
                self.carry_out(instruction)
            ended = self._clock()
            self.turned(
                Turn(ended, len(events), began - self._posted_at, ended - began, time.thread_time() - began_cpu_s)
            )
        except Exception as error:  # noqa: BLE001  the shell's one guard: it ends the term with this error
            self.end(error)
            return
        self.post(())  # the rest of a large batch, after whatever else waits for the loop

    def _due(self) -> None:
        self._timer_at = None
        self.post_one(self._tick)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.end(error)


class Candidacy(Struct, frozen=True):
    """This process's candidacy for one key; ``lost`` says how a term of it ended."""

    runtime: Runtime[ProcessSettings]
    leadership: Leadership
    lost: asyncio.Future[str]

    async def run(
        self,
        lead: Callable[[int], Coroutine[Any, Any, None]],
        *,
        drain: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Stand by, then ``lead`` the term, until asked to stop. ``drain`` is waited for first, for ``DRAIN_S``.

        ``LeadershipLost``: another process may lead."""
        elected = asyncio.ensure_future(self.leadership.wait_elected())
        stopping = asyncio.ensure_future(self.runtime.service.stopping.wait())
        leading: asyncio.Task[None] | None = None
        try:
            await asyncio.wait((elected, stopping), return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                return
            leading = asyncio.create_task(lead(elected.result()))
            ends: tuple[asyncio.Future[Any], ...] = (leading, stopping, self.lost)
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if drain is not None and not leading.done() and not self.lost.done():
                draining = asyncio.ensure_future(drain())
                await asyncio.wait((draining, leading, self.lost), timeout=DRAIN_S, return_when=asyncio.FIRST_COMPLETED)
                draining.cancel()
            if leading.done():
                leading.result()
            if self.lost.done():
                raise LeadershipLost(self.lost.result())
        finally:
            for waiting in (elected, stopping, leading):
                if waiting is not None:
                    waiting.cancel()
            if leading is not None:
                await asyncio.gather(leading, return_exceptions=True)


@asynccontextmanager
async def candidacy(
    runtime: Runtime[ProcessSettings],
    *,
    key: str,
    hung_after_s: float,
    admin_url: str = "",
    plugins: tuple[str, ...] = (),
    role: str = "",
    thread: LeaseThread | None = None,
    on_leader: Callable[[bool], None] | None = None,
) -> AsyncIterator[Candidacy]:
    """Campaign for ``key``, listed among the members; leaving resigns, and a successor leads at once.

    A process may be a candidate for several keys, each with a lease of its own: then ``role`` says what it is listed
    as here, not the process's own, and ``thread`` renews for all of them. ``on_leader`` hears
    of each leader whether it is we. A leader whose process ends is followed at once where its machine says so
    (``leader_connection``); started again in its place, we let others go first that stand for the key by then."""
    lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def on_lost(term: int, reason: str) -> None:
        if not lost.done():
            lost.set_result(f"term {term} is over: {reason}")

    def saw(leader: Leader | None) -> None:
        known = decode_record(leader.value) if leader is not None else None  # None: nobody's, or cannot be read
        ours = known is not None and known.incarnation == incarnation
        connection.follow(known.url if known is not None and not ours else "", leader.term if leader is not None else 0)
        if on_leader is not None and leader is not None:
            on_leader(ours)

    def on_ended(term: int) -> None:
        leadership.leader_ended(term)

    incarnation, version = new_incarnation(), CONCLAVE_VERSION
    record = LeaderRecord(
        identity=runtime.id, incarnation=incarnation, url=runtime.url, admin_url=admin_url, version=version
    )
    member = MemberRecord(
        id=runtime.id, url=runtime.url, incarnation=incarnation, version=version, admin_url=admin_url, plugins=plugins,
        stands_for=key,
    )  # fmt: skip
    role = role or runtime.role
    yields = await others_stand(runtime.store, runtime.keys.members_prefix(role), member)
    own = LeaseThread(runtime.open_store, hung_after_s=hung_after_s)
    async with (
        LeaderConnection(runtime.client, on_ended, service=role) as connection,
        own if thread is None else nullcontext(thread) as thread,
        listed(runtime, thread, key=runtime.keys.member(role, runtime.id), record=member),
        Leadership(
            thread,
            key=key,
            record=record,
            settings=LeaseSettings.for_ttl(runtime.settings.lease_ttl_s),
            yields=yields,
            on_lost=on_lost,
            on_leader=saw,
        ) as leadership,
    ):
        yield Candidacy(runtime, leadership, lost)


async def others_stand(store: Store, prefix: str, own: MemberRecord) -> bool:
    """Whether another process is listed that stands for the key ``own`` does; where etcd does not say, none."""
    try:
        listing = await store.list_prefix(prefix)
    except StoreError:
        return False
    records = (decode_member_record(kv.value, MemberRecord) for kv in listing.items)
    return any(one is not None and one.id != own.id and one.stands_for == own.stands_for for one in records)
