"""One small document for a screen that looks every second: made at most four times a second, however many look."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from msgspec.structs import asdict

from services.coordinator.health.verdict import Health
from services.coordinator.http.desk import Desk
from services.coordinator.http.routes.health import health_of
from services.coordinator.http.routes.members import read_members
from services.coordinator.http.routes.queue import SchedulingAnswer, answer_of
from services.coordinator.inspect.group_facts import phases
from services.coordinator.inspect.nodes import ResourceTotal
from services.coordinator.inspect.overview import Nodes, Queue, overview
from services.coordinator.inspect.queue_facts import queue_totals
from services.coordinator.inspect.queues import QueueCounts
from services.coordinator.inspect.throughput import Quantiles, Rates
from services.coordinator.inspect.units import UnitCounts
from shared.runtime.http.callers import Role
from shared.runtime.http.routes import Ask, RouteAnswer, row

FRESH_S = 0.25
MEMBERS_FRESH_S = 2.0
"""Members are read from etcd, the rest from memory."""

SERVICES = ("coordinator", "binder", "agent", "learner")


class Leader(RouteAnswer, frozen=True, kw_only=True):
    """Who answers."""

    id: str
    url: str
    term: int
    since: str


class Pods(RouteAnswer, frozen=True, kw_only=True):
    """``bound``: over all terms, this one's alone while it is not known what earlier ones counted; ``running``: pods of
    ours that stand on nodes now."""

    bound: int
    bound_in_term: int
    running: int


class Cluster(RouteAnswer, frozen=True, kw_only=True):
    """What it is called. ``named_by``: setting, context or uid; empty while nothing is known."""

    name: str
    uid: str
    named_by: str


class Members(RouteAnswer, frozen=True, kw_only=True):
    """How many there are."""

    coordinator: int
    binder: int
    agent: int
    learner: int


class Policy(RouteAnswer, frozen=True, kw_only=True):
    """``name@version`` each; empty where there is none."""

    active: str
    candidate: str
    stage: str
    percent: int


class OverviewAnswer(RouteAnswer, frozen=True, kw_only=True):
    """Everything at a glance. ``conflicts`` and ``refusals`` are totals of this term."""

    time: str
    leader: Leader
    scheduling: SchedulingAnswer
    queue: Queue
    pods: Pods
    rates: Rates
    latency_ms: Quantiles
    round_ms: Quantiles
    conflicts: int
    refusals: int
    members: Members
    nodes: Nodes
    resources: list[ResourceTotal]
    policy: Policy
    cluster: Cluster
    health: Health
    units: UnitCounts
    queues: QueueCounts


class Glance:
    """The last overview, while it is fresh."""

    def __init__(self) -> None:
        self._made: tuple[float, OverviewAnswer] | None = None
        self._counted: tuple[float, Members] | None = None
        self._counting: asyncio.Future[Members] | None = None

    async def at(self, desk: Desk) -> OverviewAnswer:
        """As of now, or almost. Refused: 503 ``not_ready``. Unknown: ``StoreUnknown``."""
        if self._made is None or desk.clock() >= self._made[0] + FRESH_S:
            members = await self._members(desk)
            now = desk.clock()
            if self._made is None or now >= self._made[0] + FRESH_S:  # somebody else may have made it meanwhile
                self._made = (now, _overview(desk, now, members))
        return self._made[1]

    async def _members(self, desk: Desk) -> Members:
        """Counted once for all who wait for it: with thousands of agents this takes the loop ten milliseconds."""
        if self._counted is not None and desk.clock() < self._counted[0] + MEMBERS_FRESH_S:
            return self._counted[1]
        if self._counting is None or self._counting.done():
            self._counting = asyncio.ensure_future(self._count(desk))
            # whoever waited may be gone when it fails
            self._counting.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(self._counting)

    async def _count(self, desk: Desk) -> Members:
        services = Counter(member.service for member in (await read_members(desk)).values())
        members = Members(**{name: services[name] for name in SERVICES})
        self._counted = (desk.clock(), members)
        return members


def _overview(desk: Desk, now: float, members: Members) -> OverviewAnswer:
    core, parts, cluster = desk.core, desk.parts, desk.admin.cluster
    figures = asdict(overview(core, parts.throughput, now))
    bound, running = figures.pop("bound"), figures.pop("running")
    total = parts.totals.bound
    policies = core.evaluation.figures()
    record, term = desk.leader or (None, core.state.term)
    name, named_by = cluster.named
    return OverviewAnswer(
        time=desk.now(),
        leader=Leader(
            id=desk.service_id, url=record.url if record is not None else "", term=term, since=desk.led_since
        ),
        scheduling=answer_of(core.state.paused),
        pods=Pods(bound=bound if total is None else total, bound_in_term=bound, running=running),
        members=members,
        cluster=Cluster(name=name, uid=cluster.uid, named_by=named_by),
        health=health_of(desk),
        units=phases(core),
        queues=queue_totals(core),
        policy=Policy(
            active=policies.get("active", ""),
            candidate=policies.get("candidate", ""),
            stage=policies.get("stage", ""),
            percent=policies.get("percent", 0),
        ),
        **figures,
    )


async def show(desk: Desk, _: Ask[Any, Any]) -> OverviewAnswer:
    """Everything at a glance."""
    return await glance_of(desk).at(desk)


def glance_of(desk: Desk) -> Glance:
    """The process's one."""
    if not isinstance(desk.glance, Glance):
        desk.glance = Glance()
    return desk.glance


ROUTES = (
    row("GET", "/v1/overview", Role.VIEWER, "Everything at a glance, for a screen", show, spared=True),
)  # fmt: skip
