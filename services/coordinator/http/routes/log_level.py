"""The level this leader logs at, until it ends; the setting ``log_level`` is the lasting one for all coordinators."""

from __future__ import annotations

from typing import Any, Literal

from services.coordinator.http.access import Role
from services.coordinator.http.desk import Desk
from services.coordinator.http.routing import Answer, Ask, Reason, Route, Schema
from shared.runtime.observe.logging import current_level, set_level

Level = Literal["debug", "info", "warning", "error"]


class LevelAnswer(Answer, frozen=True, kw_only=True):
    """The lowest level that is logged."""

    level: str


class LevelBody(Schema, frozen=True, kw_only=True):
    """The level to log at from now on."""

    level: Level
    reason: Reason = ""


async def show(_: Desk, __: Ask[Any, Any]) -> LevelAnswer:
    """The level now."""
    return LevelAnswer(level=current_level())


async def change(_: Desk, ask: Ask[Any, LevelBody]) -> LevelAnswer:
    """Change it at once."""
    set_level(ask.body.level)
    return LevelAnswer(level=current_level())


ROUTES = (
    Route(
        method="GET", path="/v1/log-level", role=Role.VIEWER, summary="The level that the leader logs at",
        answer=LevelAnswer, handler=show,
    ),
    Route(
        method="PUT", path="/v1/log-level", role=Role.ADMIN, summary="Change it until this leader ends",
        answer=LevelAnswer, body=LevelBody, handler=change,
        audit_target=lambda body: body.level,
    ),
)  # fmt: skip
