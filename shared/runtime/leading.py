r"""What every service that leads is made of, from its start to the end of its term.

    on_cluster: kubeconfig --> opened --> face, listener --> etcd and the API server answer
    stand:      candidacy --> ready --elected--> begin: parts and tasks of the term --lost, fenced, a bug--> its error
                     \                               \--asked to stop--> drain
                      \--asked to stop------------------------------------> resign

A service says what is its own: what it shows (``Face``), how a term begins, what is settled before it resigns. One
process may stand for several keys, each with a lease of its own that one thread renews; who loses one of them ends.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Any, Generic, Protocol, TypeVar

from shared.adapters.kube.api import KubeClient
from shared.adapters.kube.config import KubeConfig
from shared.election.events import LeaderKey
from shared.election.lease import LeaseSettings
from shared.election.record import LeaderRecord, decode_record
from shared.errors import LeadershipLost, StoreError
from shared.ports import Store
from shared.runtime.http.peers import FiguresRoute, PeerRoute
from shared.runtime.lease.leader_connection import LeaderConnection
from shared.runtime.lease.leadership import Leadership, term_of
from shared.runtime.lease.membership import listed
from shared.runtime.lease.settings import LeaderSettings
from shared.runtime.lease.thread import LeaseThread
from shared.runtime.observe.metrics import Metrics
from shared.runtime.process.runtime import Runtime, new_incarnation, opened
from shared.runtime.process.service import Service
from shared.version import CONCLAVE_VERSION
from shared.wire.records import MemberRecord
from shared.wire.records import decode_record as decode_member_record

T = TypeVar("T")
P = TypeVar("P", bound=LeaderSettings)

DRAIN_S = 3.0
"""How long a leader that is asked to stop goes on with what is on its way."""

STATUS = "/v1/status"

PeerRoutes = Sequence[PeerRoute | FiguresRoute]

Begun = tuple[T, Sequence[Coroutine[Any, Any, None]]]
"""A term: its parts, and what runs until it ends, by an error of any of it."""


class AnsweringFace(Protocol):
    """What a process answers peers, probes and scrapes with: one service's ``Face``, or several."""

    def routes(self) -> PeerRoutes: ...
    def register(self, metrics: Metrics) -> None: ...


F = TypeVar("F", bound=AnsweringFace)


class Face(ABC, Generic[T]):
    """What one service shows of itself, whether it leads or not. ``parts``: of its term, there while it leads."""

    def __init__(self, service_id: str) -> None:
        self.service_id = service_id
        self.leadership: Leadership | None = None
        self.parts: T | None = None

    @abstractmethod
    def routes(self) -> PeerRoutes:
        """What it answers."""

    @abstractmethod
    def register(self, metrics: Metrics) -> None:
        """Show its figures at ``/v1/stats`` and its metrics at ``/metrics``."""

    @abstractmethod
    def status(self) -> dict[str, Any]:
        """Who leads, and how far a leader is; what ``STATUS`` answers."""

    @property
    def term(self) -> int:
        """The term in which this process leads; 0 where it does not."""
        return term_of(self.leadership)

    def figures(self) -> dict[str, Any]:
        """How ``/v1/stats`` begins."""
        term = self.term
        return {"id": self.service_id, "leading": term > 0, "term": term}


class Faces:
    """Those of several services in one process. Its status is the first one's, with each other's by its name."""

    def __init__(self, first: Face[Any], **others: Face[Any]) -> None:
        self._first = first
        self._others = others

    def routes(self) -> PeerRoutes:
        """All of them."""
        faces = (self._first, *self._others.values())
        return [
            *(one for face in faces for one in face.routes() if one.path != STATUS),
            FiguresRoute(STATUS, self._status),
        ]

    def register(self, metrics: Metrics) -> None:
        """All of theirs."""
        for face in (self._first, *self._others.values()):
            face.register(metrics)

    def _status(self) -> dict[str, Any]:
        return self._first.status() | {name: face.status() for name, face in self._others.items()}


@asynccontextmanager
async def on_cluster(
    service: Service, settings: P, role: str, face_of: Callable[[Runtime[P], KubeConfig], F]
) -> AsyncIterator[tuple[Runtime[P], KubeClient, F]]:
    """The process, its API server and its face, once all of them answer; closed at the end.

    ``ConfigError``: a setting, etcd, the API server. The kubeconfig is read first, and by standbys too, so that a wrong
    one is found at start and not at the takeover."""
    access = await KubeConfig.load(settings.kubeconfig, context=settings.context or None)
    async with opened(service, settings, role) as runtime:
        face = face_of(runtime, access)
        face.register(runtime.metrics)
        await runtime.listen(face.routes())
        api = runtime.api = KubeClient(access)
        await runtime.check_servers()
        service.spawn("credentials", access.keep_fresh())
        yield runtime, api, face


async def stand(
    runtime: Runtime[LeaderSettings],
    face: Face[T],
    begin: Callable[[int, Leadership], Awaitable[Begun[T]]],
    *,
    key: str,
    role: str,
    ready: Callable[[], None],
    drain: Callable[[T], Awaitable[None]] | None = None,
    leave: Callable[[bool], Awaitable[None]] | None = None,
    admin_url: str = "",
    plugins: tuple[str, ...] = (),
    thread: LeaseThread | None = None,
    on_leader: Callable[[bool], None] | None = None,
) -> None:
    """Stand by, then lead, until asked to stop. ``LeadershipLost``: another process may lead.

    ``ready`` is called once we are a candidate. Asked to stop, ``drain`` is waited for, for ``DRAIN_S``. ``leave`` is
    the last before we resign; it hears whether in order: asked to stop, and nothing lost. ``role`` is what the process
    is listed as here; ``thread`` None: one of our own renews; ``on_leader`` hears of each leader whether it is we."""
    async with candidacy(
        runtime, key=key, role=role, admin_url=admin_url, plugins=plugins, thread=thread, on_leader=on_leader
    ) as (leadership, lost):
        face.leadership = leadership
        ready()
        try:
            await _stand_by_and_lead(runtime.service, face, begin, leadership, lost, drain)
        finally:
            try:
                if leave is not None:  # we hold the lease until it is done, and are asked until then
                    await leave(runtime.service.stopping.is_set() and not lost.done())
            finally:
                face.parts = None


async def lead(face: Face[T], begun: Awaitable[Begun[T]]) -> None:
    """One term, until it ends by an error."""
    face.parts, tasks = await begun
    async with asyncio.TaskGroup() as group:
        for task in tasks:
            group.create_task(task)


async def _stand_by_and_lead(
    service: Service,
    face: Face[T],
    begin: Callable[[int, Leadership], Awaitable[Begun[T]]],
    leadership: Leadership,
    lost: asyncio.Future[str],
    drain: Callable[[T], Awaitable[None]] | None,
) -> None:
    elected = asyncio.ensure_future(leadership.wait_elected())
    stopping = asyncio.ensure_future(service.stopping.wait())
    leading: asyncio.Task[None] | None = None
    try:
        await asyncio.wait((elected, stopping), return_when=asyncio.FIRST_COMPLETED)
        if stopping.done():
            return
        leading = asyncio.create_task(lead(face, begin(elected.result(), leadership)))
        ends: tuple[asyncio.Future[Any], ...] = (leading, stopping, lost)
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if drain is not None and face.parts is not None and not leading.done() and not lost.done():
            draining = asyncio.ensure_future(drain(face.parts))
            await asyncio.wait((draining, leading, lost), timeout=DRAIN_S, return_when=asyncio.FIRST_COMPLETED)
            draining.cancel()
        if leading.done():
            leading.result()
        if lost.done():
            raise LeadershipLost(lost.result())
    finally:
        for waiting in (elected, stopping, leading):
            if waiting is not None:
                waiting.cancel()
        if leading is not None:
            await asyncio.gather(leading, return_exceptions=True)


@asynccontextmanager
async def candidacy(
    runtime: Runtime[LeaderSettings],
    *,
    key: str,
    role: str,
    admin_url: str,
    plugins: tuple[str, ...],
    thread: LeaseThread | None,
    on_leader: Callable[[bool], None] | None,
) -> AsyncIterator[tuple[Leadership, asyncio.Future[str]]]:
    """Campaign for ``key``, listed among the members; leaving resigns, and a successor leads at once. The future says
    how a term ended.

    A leader whose process ends is followed at once where its machine says so (``leader_connection``); started again in
    its place, we let others go first that stand for the key by then."""
    lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def on_lost(term: int, reason: str) -> None:
        if not lost.done():
            lost.set_result(f"term {term} is over: {reason}")

    def saw(leader: LeaderKey | None) -> None:
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
    yields = await others_stand(runtime.store, runtime.keys.members_prefix(role), member)
    own = LeaseThread(runtime.open_store, hung_after_s=runtime.settings.hung_after_s)
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
        yield leadership, lost


async def others_stand(store: Store, prefix: str, own: MemberRecord) -> bool:
    """Whether another process is listed that stands for the key ``own`` does; where etcd does not say, none."""
    try:
        listing = await store.list_prefix(prefix)
    except StoreError:
        return False
    records = (decode_member_record(kv.value, MemberRecord) for kv in listing.items)
    return any(one is not None and one.id != own.id and one.stands_for == own.stands_for for one in records)
