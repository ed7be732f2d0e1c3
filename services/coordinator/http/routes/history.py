"""The last hour of this leader, in steps of ten seconds: what charts are drawn from."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from services.coordinator.health.history import STEP_S
from services.coordinator.http.access import Role
from services.coordinator.http.desk import Desk
from services.coordinator.http.routing import SLOW_FRESH_S, Answer, Ask, Route, Schema


class HistoryQuery(Schema, frozen=True, kw_only=True):
    """``since``: only steps that ended after it (Unix seconds); ``minutes``: only the last ones."""

    minutes: Annotated[int, msgspec.Meta(ge=1, le=60)] = 60
    since: Annotated[float, msgspec.Meta(ge=0, le=2**53)] = 0.0


class HistoryAnswer(Answer, frozen=True, kw_only=True):
    """Columns of equal length, a value per step that ended at the time in ``times`` (Unix seconds); null: not known.
    ``allocation``: requested share by resource. Of this term: ``began`` is when it began to remember."""

    step_s: float
    term: int
    began: str
    times: list[float]
    series: dict[str, list[float | None]]
    allocation: dict[str, list[float | None]]


async def show(desk: Desk, ask: Ask[HistoryQuery, Any]) -> HistoryAnswer:
    """What is remembered. Refused: 503 ``not_ready``."""
    core, vitals, query = desk.core, desk.vitals, ask.query
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
    Route(
        method="GET", path="/v1/history", role=Role.VIEWER, summary="The last hour of the leader, in steps",
        answer=HistoryAnswer, query=HistoryQuery, handler=show, cost=5, fresh_s=SLOW_FRESH_S,
    ),
)  # fmt: skip
