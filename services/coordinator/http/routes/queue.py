"""What waits, and what is on its way."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from services.coordinator.http.access import Role
from services.coordinator.http.desk import Desk
from services.coordinator.http.pages import NumberedPageQuery, PageQuery, key_token, token_key
from services.coordinator.http.routing import SLOW_FRESH_S, Ask, Page, Route
from services.coordinator.http.selecting import Selector, selector_of
from services.coordinator.inspect.overview import QueuedPod, UnitInFlight, queue_counts, queue_page, unit_page
from shared.scheduling.queue import Place


class QueueQuery(NumberedPageQuery, frozen=True, kw_only=True):
    """``place``: only pods there; ``namespace``: only that one's; ``selector``: only pods with these labels, as
    ``kubectl -l`` writes it. All by default."""

    place: Literal["", "active", "backoff", "unschedulable", "in_flight"] = ""
    namespace: Annotated[str, msgspec.Meta(max_length=63)] = ""
    selector: Selector = ""


class QueueAnswer(Page, frozen=True, kw_only=True):
    """``counts`` by place, of all pods; items in order of arrival. A page may hold fewer than ``limit``, also none,
    and yet not be the last: ``continue`` tells."""

    counts: dict[str, int]
    items: list[QueuedPod]


class UnitsAnswer(Page, frozen=True, kw_only=True):
    """By key."""

    items: list[UnitInFlight]


async def queue(desk: Desk, ask: Ask[QueueQuery, Any]) -> QueueAnswer:
    """A page of pending pods."""
    core, query = desk.core, ask.query
    items, more = queue_page(
        core,
        desk.clock(),
        place=Place(query.place) if query.place else None,
        namespace=query.namespace,
        selector=selector_of(query.selector),
        after=token_key(query.continue_, int) if query.continue_ else 0,
        limit=query.limit,
    )
    return QueueAnswer(counts=queue_counts(core), items=items, continue_=key_token(more) if more is not None else "")


async def in_flight(desk: Desk, ask: Ask[PageQuery, Any]) -> UnitsAnswer:
    """A page of units on their way."""
    query = ask.query
    after = token_key(query.continue_, str) if query.continue_ else ""
    items, more = unit_page(desk.core, desk.wall_of, after=after, limit=query.limit)
    return UnitsAnswer(items=items, continue_=key_token(more) if more is not None else "")


ROUTES = (
    Route(
        method="GET", path="/v1/queue", role=Role.VIEWER, summary="Pending pods and why they wait", answer=QueueAnswer,
        query=QueueQuery, handler=queue, fresh_s=SLOW_FRESH_S,
    ),
    Route(
        method="GET", path="/v1/units", role=Role.VIEWER, summary="Units on their way to a node", answer=UnitsAnswer,
        query=PageQuery, handler=in_flight, fresh_s=SLOW_FRESH_S,
    ),
)  # fmt: skip
