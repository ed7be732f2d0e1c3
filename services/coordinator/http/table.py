"""Every route of the admin API, in one table: what is served, documented and tested is read from here."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from services.coordinator.http import openapi
from services.coordinator.http.access import Role
from services.coordinator.http.desk import Desk
from services.coordinator.http.routes import (
    audit,
    decisions,
    dump,
    health,
    history,
    leader,
    log_level,
    members,
    nodes,
    overview,
    partitions,
    pending,
    pods,
    policies,
    queue,
    scheduling,
    settings,
    whoami,
)
from services.coordinator.http.routing import Ask, Route
from shared.version import CONCLAVE_VERSION


@cache
def _document() -> bytes:
    return msgspec.json.encode(openapi.document(ROUTES, version=CONCLAVE_VERSION))


async def described(_: Desk, __: Ask[Any, Any]) -> msgspec.Raw:
    """This API, described."""
    return msgspec.Raw(_document())


ROUTES: tuple[Route, ...] = (
    Route(
        method="GET", path="/v1/openapi.json", role=Role.VIEWER, summary="This API, described", answer=dict[str, Any],
        handler=described, local=True,
    ),
    *overview.ROUTES,
    *health.ROUTES,
    *history.ROUTES,
    *leader.ROUTES,
    *members.ROUTES,
    *partitions.ROUTES,
    *nodes.ROUTES,
    *queue.ROUTES,
    *pending.ROUTES,
    *pods.ROUTES,
    *decisions.ROUTES,
    *policies.ROUTES,
    *settings.ROUTES,
    *scheduling.ROUTES,
    *audit.ROUTES,
    *log_level.ROUTES,
    *whoami.ROUTES,
    *dump.ROUTES,
)  # fmt: skip
