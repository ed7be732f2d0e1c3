"""What people changed through the admin API, newest first; and who the caller is to us, so that a page offers no more
than their role may do.
"""

from __future__ import annotations

from typing import Any

from services.coordinator.http.desk import Desk
from shared.runtime.http.callers import Role
from shared.runtime.http.pages import NumberedPageQuery, page
from shared.runtime.http.routes import SLOW_FRESH_S, Ask, RouteAnswer, RoutePage, row
from shared.runtime.records.admin import read_audit
from shared.wire.records import AuditRecord


class AuditAnswer(RoutePage, frozen=True, kw_only=True):
    """Newest first; the last 1,000 are kept."""

    items: list[AuditRecord]


async def audit(desk: Desk, ask: Ask[NumberedPageQuery, Any]) -> AuditAnswer:
    """The audit log."""
    records = {-record.number: record for record in await read_audit(desk.store, desk.keys)}
    keys, more = page(records, ask.query, int)
    return AuditAnswer(items=[records[key] for key in keys], continue_=more)


class WhoamiAnswer(RouteAnswer, frozen=True, kw_only=True):
    """``name``: from the token file or the certificate; may be empty."""

    role: str
    name: str


async def whoami(_: Desk, ask: Ask[Any, Any]) -> WhoamiAnswer:
    """The caller."""
    return WhoamiAnswer(role=ask.caller.role, name=ask.caller.name)


ROUTES = (
    row(
        "GET", "/v1/audit", Role.VIEWER, "What was changed through this API, by whom and why", audit,
        fresh_s=SLOW_FRESH_S,
    ),
)  # fmt: skip


WHOAMI = (
    row("GET", "/v1/whoami", Role.VIEWER, "Who the caller is, and with which role", whoami, local=True, fresh_s=0.0),
)  # fmt: skip
