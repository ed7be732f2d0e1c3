"""Whether the leader is well: one verdict, what is wrong since when, and what to do about it."""

from __future__ import annotations

from typing import Any

from services.coordinator.health.verdict import Finding, Health
from services.coordinator.http.access import Role
from services.coordinator.http.desk import Desk
from services.coordinator.http.routing import Answer, Ask, Route


class Measured(Answer, frozen=True, kw_only=True):
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


class HealthAnswer(Answer, frozen=True, kw_only=True):
    """``verdict``: ok, degraded or bad; ``findings``: the worst first."""

    verdict: str
    since: str
    findings: list[Finding]
    measured: Measured


def health_of(desk: Desk) -> Health:
    """The verdict of the last second; nothing is measured anew for it."""
    vitals = desk.admin.vitals
    return vitals.verdicts.health if vitals is not None else Health(verdict="ok", since="", findings=[])


async def show(desk: Desk, _: Ask[Any, Any]) -> HealthAnswer:
    """The verdict and what it rests on. Refused: 503 ``not_ready``."""
    _core, vitals = desk.core, desk.vitals
    health, seen = vitals.verdicts.health, vitals.signals
    return HealthAnswer(
        verdict=health.verdict,
        since=health.since,
        findings=health.findings,
        measured=Measured(
            turn_longest_s=round(seen.turn_longest_s, 4),
            turn_busy_share=round(seen.turn_busy_share, 4),
            events_waiting=seen.events_waiting,
            events_waited_s=round(seen.events_waited_s, 4),
            writes_queued=seen.writes_queued,
            writes_oldest_s=round(seen.writes_oldest_s, 3),
            plans_open=seen.plans_open,
            plans_oldest_s=round(seen.plans_oldest_s, 3),
            etcd_renewal_s=round(seen.etcd_renewal_s, 4),
            agents=seen.agents,
            agents_suspect=len(seen.suspects),
        ),
    )


ROUTES = (
    Route(
        method="GET", path="/v1/health", role=Role.VIEWER, summary="Whether the leader is well, and what is wrong",
        answer=HealthAnswer, handler=show, spared=True,
    ),
)  # fmt: skip
