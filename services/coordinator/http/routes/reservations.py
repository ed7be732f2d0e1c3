"""Reservations as the leader accounts them: what is kept, where, for how long, and who took it."""

from __future__ import annotations

import time
from typing import Any

from services.coordinator.http.desk import Desk
from services.coordinator.inspect.reservations import ReservationShown, reservations_shown
from shared.runtime.http.callers import Role
from shared.runtime.http.pages import PageQuery, key_token, token_key
from shared.runtime.http.routes import SLOW_FRESH_S, Ask, RoutePage, row


class ReservationsAnswer(RoutePage, frozen=True, kw_only=True):
    """By namespace and name."""

    items: list[ReservationShown]


async def listed(desk: Desk, ask: Ask[PageQuery, Any]) -> ReservationsAnswer:
    """A page of them. The token names one; where that is gone the page begins at the next."""
    query, found = ask.query, reservations_shown(desk.core, time.time())
    if query.continue_:
        after = token_key(query.continue_, str)
        found = [one for one in found if _key(one) > after]
    chosen = found[: query.limit]
    return ReservationsAnswer(
        items=chosen, continue_=key_token(_key(chosen[-1])) if len(found) > len(chosen) else ""
    )  # fmt: skip


def _key(one: ReservationShown) -> str:
    return f"{one.namespace}/{one.name}"


ROUTES = (
    row("GET", "/v1/reservations", Role.VIEWER, "Room that is kept for pods to come", listed, cost=2,
        fresh_s=SLOW_FRESH_S),
)  # fmt: skip
