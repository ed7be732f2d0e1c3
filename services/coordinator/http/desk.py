"""What handlers work with: the process's parts, and those of the term while it leads.

    standby: ``term`` None  --leads--> ``term`` set, lists under way  --started--> answers

For a leader that has not listed the cluster yet nothing is answered: 503 ``not_ready``, asked again a moment later.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field

import structlog

from services.coordinator.core.core import Core
from services.coordinator.http.peer_routes import Admin, TermParts
from services.coordinator.settings import CoordinatorSettings
from shared.election.record import LeaderRecord
from shared.errors import StoreRejected, StoreRolledBack
from shared.ports import Clock, KeyValue, Store
from shared.runtime.http.refusals import RequestRefused
from shared.runtime.lease.leadership import leader_of
from shared.runtime.observe.logging import LogTail
from shared.runtime.observe.metrics import Metrics
from shared.runtime.records.control import rfc3339
from shared.runtime.records.prefix_watch import follow_prefix
from shared.wire.keys import Keys

log = structlog.get_logger()

REGISTERED = ("coordinator", "binder", "learner")
"""Services whose processes are under ``members/``."""

Call = Callable[..., Awaitable[bytes]]
"""``PeerClient.call``."""

OBEYED_S = 2.0
"""How long a change waits for the leader to go by it."""


REGISTRY_RETRY_S = 30.0


class MemberRegistry:
    """Who is registered in etcd and who led before, kept in memory by watches: asking costs the leader no way to etcd.

    ``conclave status`` is asked most while the leader is busy, and each answer of etcd would wait for several turns of
    its loop. Until everything was listed once, or where etcd lets us read no more, readers ask etcd themselves.
    """

    def __init__(self, store: Store, prefixes: Sequence[str]) -> None:
        self._store = store
        self._prefixes = tuple(prefixes)
        self._known: dict[str, tuple[KeyValue, ...]] = {}

    async def run(self) -> None:
        """Eternal."""
        async with asyncio.TaskGroup() as group:
            for prefix in self._prefixes:
                group.create_task(self._follow(prefix))

    async def listed(self, prefix: str) -> Sequence[KeyValue]:
        """What is under the prefix, by key. Unknown: ``StoreUnknown``, only while it is not known yet."""
        known = self._known.get(prefix)
        return known if known is not None else (await self._store.list_prefix(prefix)).items

    async def _follow(self, prefix: str) -> None:
        while True:
            try:
                async with aclosing(follow_prefix(self._store, prefix)) as views:
                    async for view in views:
                        self._known[prefix] = tuple(view.items[key] for key in sorted(view.items))
            except (StoreRejected, StoreRolledBack) as error:
                log.warning("registry_unread", prefix=prefix, error=error)
            self._known.pop(prefix, None)
            await asyncio.sleep(REGISTRY_RETRY_S)


@dataclass(slots=True)
class Desk:
    """One per process."""

    service_id: str
    admin: Admin
    store: Store
    keys: Keys
    settings: CoordinatorSettings
    metrics: Metrics
    clock: Clock
    wall: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)
    lines: LogTail = field(default_factory=LogTail)
    registry: MemberRegistry = field(init=False)
    """Who is registered; follows etcd only while somebody runs it."""
    glance: object | None = None
    """The last overview (``routes/overview.py``), shared by everybody who looks; None after a change."""

    call: Call | None = None
    """Asks another service; None where nobody gave the way to."""

    painter: object | None = None
    """The last picture of why pods wait (``routes/pending.py``)."""

    def __post_init__(self) -> None:
        keys = self.keys
        members = [keys.members_prefix(service) for service in REGISTERED]
        self.registry = MemberRegistry(self.store, [*members, keys.binders_prefix, keys.coordinator_terms_prefix])

    @property
    def trouble(self) -> str:
        """Why nobody can lead, where etcd takes no writes; else ""."""
        return self.admin.etcd().refuses

    @property
    def leads(self) -> bool:
        """Whether this process may answer for the mesh now."""
        return self.term > 0

    @property
    def term(self) -> int:
        """The term in which this process leads; 0 where it does not."""
        return self.admin.term

    @property
    def leader(self) -> tuple[LeaderRecord, int] | None:
        """(record, term) of the leader as last seen in etcd: a hint."""
        return leader_of(self.admin.leadership)

    @property
    def led_since(self) -> str:
        """When our term began; empty where we do not lead."""
        return self.admin.parts.began if self.admin.parts is not None and self.leads else ""

    @property
    def parts(self) -> TermParts:
        """Those of the term we lead. Refused: 503 ``not_ready``."""
        if self.admin.parts is None:
            raise RequestRefused("the leader has just been elected", code="not_ready")
        return self.admin.parts

    @property
    def core(self) -> Core:
        """The leader's core, once it has listed everything. Refused: 503 ``not_ready``."""
        core = self.parts.core
        if not core.state.started:
            missing = ", ".join(core.takeover.missing)
            raise RequestRefused(f"the leader is still listing: {missing}", code="not_ready")
        return core

    def changed(self) -> None:
        """A change was made through this API: the next overview is made anew."""
        self.glance = None

    async def obeyed(self, holds: Callable[[Core], bool]) -> bool:
        """Until the leader's core goes by what was just written: nothing is begun against it after the answer, and
        every read shows it. The core hears of it by a watch; False: not within ``OBEYED_S``, or it leads no more. What
        is written holds all the same, and the core goes by it as soon as it hears of it."""
        parts = self.admin.parts
        if parts is None:
            return False
        core = parts.core
        with suppress(TimeoutError):
            async with asyncio.timeout(OBEYED_S):
                while not holds(core):
                    await parts.following.told()
        return holds(core)

    def now(self) -> str:
        """The wall clock, as answers write it."""
        return rfc3339(self.wall())

    def wall_of(self, at: float) -> str:
        """When ``at``, seconds of the core's clock, was on the wall clock."""
        return rfc3339(self.wall() - dt.timedelta(seconds=self.clock() - at))
