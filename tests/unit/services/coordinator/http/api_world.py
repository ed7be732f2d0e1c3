"""A leader and a standby with their admin APIs over one store in memory; callers with a token per role."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from services.coordinator.http.desk import Desk
from services.coordinator.http.opening import AdminListener, open_admin
from services.coordinator.http.peer_routes import Admin, TermParts
from services.coordinator.http.table import ROUTES
from services.coordinator.settings import CoordinatorSettings
from shared.election.record import LeaderRecord
from shared.model.units.pod_group import GroupSource, PodGroup, group_key
from shared.model.units.queue import Queue
from shared.ports import Put
from shared.runtime.http import admin
from shared.runtime.http.limits import Lag, LoopLag
from shared.runtime.http.routes import Route
from shared.runtime.observe.metrics import Metrics
from shared.runtime.process.service import boottime
from shared.runtime.records.autoscaling import DecidedService, DecisionRecord
from shared.wire.records import AutoscaleRecord
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.test_shell import KEYS, World

TOKENS = {role: f"{role}-token-0123456789" for role in ("viewer", "operator", "admin")}


GROUP = PodGroup(
    group_key(GroupSource.NATIVE, "default", "train"), GroupSource.NATIVE, "default", "train", gang=True, min_count=2
)


SCALED = (
    Put(
        KEYS.autoscaler_last("default/n0"),
        msgspec.json.encode(AutoscaleRecord(uid="u", term=1, number=1, at=0.0, slot=1)),
    ),
    Put(
        KEYS.autoscaler_decision("default/n0", 1),
        msgspec.json.encode(
            DecisionRecord(
                at="2026-11-23T10:00:00Z", term=1, number=1,
                services=[DecidedService(name="web", replicas=2, ready=2, allowed=2)],
            )
        ),
    ),
)  # fmt: skip
"""What an autoscaler recorded of an object."""


@dataclass(frozen=True)
class Seen:
    """What ``Leadership.leader`` gives."""

    value: bytes
    term: int


class StandingBy:
    """``Leadership`` of a process that does not lead."""

    term = 0
    leader: Seen | None = None


@dataclass
class Answered:
    """A response, read whole."""

    status: int
    headers: Any
    text: str
    json: Any

    @property
    def code(self) -> str:
        return str(self.json.get("code", "")) if isinstance(self.json, dict) else ""


class NeverLate(Lag):
    """However busy the machine is that tests this."""

    def ran(self, due: float, now: float) -> None:
        pass


class PunctualLoop(LoopLag):
    """What reads are refused by when the loop runs late, which here it never does."""

    def __init__(self) -> None:
        super().__init__()
        self.lag = NeverLate()


class ApiWorld(World):
    """``leader`` and ``standby``: their admin listeners. Three nodes, a few pods bound, a pod group without members, a
    queue, and an autoscaler's record."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.session = aiohttp.ClientSession()
        self.listeners: dict[str, AdminListener] = {}
        self.desks: dict[str, Desk] = {}
        self.standing_by = StandingBy()

    def settings(self, **more: Any) -> CoordinatorSettings:
        file = self.folder / "admin-tokens"
        file.write_text("".join(f"{token} {role} {role}-1\n" for role, token in TOKENS.items()))
        return CoordinatorSettings(admin_listen="127.0.0.1:0", admin_token_file=file, **more)

    @property
    def parts(self) -> TermParts:
        """Those of the leader's term."""
        assert self.admin.parts is not None
        return self.admin.parts

    async def open(
        self, name: str, admin: Admin, metrics: Metrics, routes: tuple[Route, ...] = ROUTES, **more: Any
    ) -> AdminListener:
        settings = self.settings(**more)
        desk = Desk(
            service_id=name, admin=admin, store=self.store, keys=KEYS, settings=settings, metrics=metrics,
            clock=boottime,
        )  # fmt: skip
        self.desks[name] = desk
        self.listeners[name] = await open_admin(settings, desk, routes=routes)
        return self.listeners[name]

    async def begin(self, *, routes: tuple[Route, ...] = ROUTES) -> None:
        """Leader and standby, both serving; the leader has placed what there is."""
        for number in range(3):
            self.kube.add_node(make_node(f"n{number}"))
        await self.join("a0")
        await self.start()
        leader = await self.open("c0", self.admin, self.metrics, routes)
        other = Admin("c1")
        other.leadership = self.standing_by  # type: ignore[assignment]
        await self.open("c1", other, Metrics("coordinator"), routes)
        record = LeaderRecord(identity="c0", incarnation="i", url="http://c0", admin_url=leader.url)
        seen = Seen(record.encode(), self.leading.term)
        self.leading.leader = self.standing_by.leader = seen  # type: ignore[assignment]
        for number in range(3):
            self.kube.add_pod(make_pod(f"p{number}").cpu("100m"))
        await self.until(lambda: len(self.kube.bound) == 3)
        core = self.admin.core
        assert core is not None
        await self.until(lambda: not core.ledger.placed)
        core.state.cluster.pod_groups[GROUP.key] = GROUP
        core.state.queues.put_queue(Queue("research", guaranteed={"cpu": 4000}))
        await self.store.txn([], SCALED)

    async def ask(
        self, method: str, path: str, role: str | None = "admin", *, at: str = "c0", **options: Any
    ) -> Answered:
        """One request; ``role`` None: without a token."""
        headers = dict(options.pop("headers", {}))
        if role is not None:
            headers["Authorization"] = f"Bearer {TOKENS[role]}"
        url = self.listeners[at].url + path
        async with self.session.request(method, url, headers=headers, **options) as response:
            text = (await response.read()).decode()
            json = await response.json() if response.content_type == "application/json" else None
            return Answered(response.status, response.headers, text, json)

    async def end(self) -> None:
        for listener in self.listeners.values():
            await listener.close()
        await self.session.close()
        if self.task is not None:
            self.task.cancel()
            with contextlib.suppress(BaseException):
                await self.task
        await self.store.close()


@contextlib.asynccontextmanager
async def api_world(folder: Path, *, routes: tuple[Route, ...] = ROUTES) -> AsyncIterator[ApiWorld]:
    world = ApiWorld(folder)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(admin, "LoopLag", PunctualLoop)
        try:
            await world.begin(routes=routes)
            yield world
        finally:
            await world.end()
