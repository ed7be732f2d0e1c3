"""Every route of the admin API, in one table: what is served, documented and tested is read from here."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from services.coordinator.http.desk import Desk
from services.coordinator.http.routes import (
    audit,
    autoscalers,
    decisions,
    dump,
    health,
    jobs,
    members,
    nodes,
    overview,
    pending,
    policies,
    queue,
    queues,
    rebalance,
    reservations,
    settings,
    shards,
    snapshot,
    units,
)
from shared.runtime.http import openapi
from shared.runtime.http.callers import Role
from shared.runtime.http.routes import Ask, Route, row
from shared.version import CONCLAVE_VERSION


@cache
def _document() -> bytes:
    return msgspec.json.encode(openapi.document(ROUTES, version=CONCLAVE_VERSION))


async def described(_: Desk, __: Ask[Any, Any]) -> msgspec.Raw:
    """This API, described."""
    return msgspec.Raw(_document())


ROUTES: tuple[Route, ...] = (
    row("GET", "/v1/openapi.json", Role.VIEWER, "This API, described", described, local=True),
    *overview.ROUTES,
    *health.ROUTES,
    *members.ROUTES,
    *nodes.ROUTES,
    *queue.ROUTES,
    *queues.ROUTES,
    *reservations.ROUTES,
    *units.ROUTES,
    *pending.ROUTES,
    *decisions.ROUTES,
    *policies.ROUTES,
    *autoscalers.ROUTES,
    *jobs.ROUTES,
    *rebalance.ROUTES,
    *settings.ROUTES,
    *shards.ROUTES,
    *snapshot.ROUTES,
    *queue.SCHEDULING,
    *audit.ROUTES,
    *settings.LOG_LEVEL,
    *audit.WHOAMI,
    *dump.ROUTES,
)  # fmt: skip
