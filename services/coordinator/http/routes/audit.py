"""What people changed through the admin API, newest first."""

from __future__ import annotations

from typing import Any

from services.coordinator.http.access import Role
from services.coordinator.http.desk import Desk
from services.coordinator.http.pages import NumberedPageQuery, page
from services.coordinator.http.routing import SLOW_FRESH_S, Ask, Page, Route
from shared.runtime.records.admin import read_audit
from shared.wire.records import AuditRecord


class AuditAnswer(Page, frozen=True, kw_only=True):
    """Newest first; the last 1,000 are kept."""

    items: list[AuditRecord]


async def audit(desk: Desk, ask: Ask[NumberedPageQuery, Any]) -> AuditAnswer:
    """The audit log."""
    records = {-record.number: record for record in await read_audit(desk.store, desk.keys)}
    keys, more = page(records, ask.query, int)
    return AuditAnswer(items=[records[key] for key in keys], continue_=more)


ROUTES = (
    Route(
        method="GET", path="/v1/audit", role=Role.VIEWER, summary="What was changed through this API, by whom and why",
        answer=AuditAnswer, query=NumberedPageQuery, handler=audit, fresh_s=SLOW_FRESH_S,
    ),
)  # fmt: skip
