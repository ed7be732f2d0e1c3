"""Who the caller is to us: a page offers what their role may do, and no more."""

from __future__ import annotations

from typing import Any

from services.coordinator.http.access import Role
from services.coordinator.http.desk import Desk
from services.coordinator.http.routing import Answer, Ask, Route


class WhoamiAnswer(Answer, frozen=True, kw_only=True):
    """``name``: from the token file or the certificate; may be empty."""

    role: str
    name: str


async def whoami(_: Desk, ask: Ask[Any, Any]) -> WhoamiAnswer:
    """The caller."""
    return WhoamiAnswer(role=ask.caller.role.title, name=ask.caller.name)


ROUTES = (
    Route(
        method="GET", path="/v1/whoami", role=Role.VIEWER, summary="Who the caller is, and with which role",
        answer=WhoamiAnswer, handler=whoami, local=True, fresh_s=0.0,
    ),
)  # fmt: skip
