"""Whether the leader is well: one verdict, what is wrong since when and what to do about it; and its last hour in steps
of ten seconds, what charts are drawn from.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from services.coordinator.health.history import STEP_S
from services.coordinator.health.verdict import Finding, Health
from services.coordinator.http.desk import Desk
from shared.runtime.http.callers import Role
from shared.runtime.http.routes import SLOW_FRESH_S, Ask, RouteAnswer, Schema, row


class Measured(RouteAnswer, frozen=True, kw_only=True):
    """What the verdict rests on. Turns and events: the worst of the last minute."""

    turn_longest_s: float
    turn_busy_share: float
    events_waiting: int
    events_waited_s: float
    writes_queued: int
    writes_oldest_s: float
    plans_open: int
    plans_oldest_s: float
    etcd_renewal_s: float
    agents: int
    agents_suspect: int


class HealthAnswer(RouteAnswer, frozen=True, kw_only=True):
    """``verdict``: ok, degraded or bad; ``findings``: the worst first."""

    verdict: str
    since: str
    findings: list[Finding]
    measured: Measured


def health_of(desk: Desk) -> Health:
    """The verdict of the last second; nothing is measured anew for it."""
    parts = desk.admin.parts
    return parts.vitals.verdicts.health if parts is not None else Health(verdict="ok", since="", findings=[])


async def show(desk: Desk, _: Ask[Any, Any]) -> HealthAnswer:
    """The verdict and what it rests on. Refused: 503 ``not_ready``."""
    _core, vitals = desk.core, desk.parts.vitals
    health, seen = vitals.verdicts.health, vitals.signals
    measured = {name: round(getattr(seen, name), 4) for name in Measured.__struct_fields__ if name != "agents_suspect"}
    return HealthAnswer(
        verdict=health.verdict,
        since=health.since,
        findings=health.findings,
        measured=Measured(agents_suspect=len(seen.suspects), **measured),
    )


class HistoryQuery(Schema, frozen=True, kw_only=True):
    """``since``: only steps that ended after it (Unix seconds); ``minutes``: only the last ones."""

    minutes: Annotated[int, msgspec.Meta(ge=1, le=60)] = 60
    since: Annotated[float, msgspec.Meta(ge=0, le=2**53)] = 0.0


class HistoryAnswer(RouteAnswer, frozen=True, kw_only=True):
    """Columns of equal length, a value per step that ended at the time in ``times`` (Unix seconds); null: not known.
    ``allocation``: requested share by resource. Of this term: ``began`` is when it began to remember."""

    step_s: float
    term: int
    began: str
    times: list[float]
    series: dict[str, list[float | None]]
    allocation: dict[str, list[float | None]]


async def hour(desk: Desk, ask: Ask[HistoryQuery, Any]) -> HistoryAnswer:
    """What is remembered. Refused: 503 ``not_ready``."""
    core, vitals, query = desk.core, desk.parts.vitals, ask.query
    after = max(query.since, desk.wall().timestamp() - 60 * query.minutes)
    history = vitals.history
    return HistoryAnswer(
        step_s=STEP_S,
        term=core.state.term,
        began=vitals.began,
        times=[round(at, 3) for at in history.times(after)],
        series=history.series(after),
        allocation=history.allocation(after),
    )


ROUTES = (
    row("GET", "/v1/health", Role.VIEWER, "Whether the leader is well, and what is wrong", show, spared=True),
    row("GET", "/v1/history", Role.VIEWER, "The last hour of the leader, in steps", hour, cost=5, fresh_s=SLOW_FRESH_S),
)  # fmt: skip
