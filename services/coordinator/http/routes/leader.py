"""Who leads, and who led before: the failovers of a mesh."""

from __future__ import annotations

from typing import Any

from services.coordinator.http.access import Role
from services.coordinator.http.desk import Desk
from services.coordinator.http.pages import NumberedPageQuery, page
from services.coordinator.http.routing import SLOW_FRESH_S, Answer, Ask, Page, Route
from shared.runtime.http.listener import Refused
from shared.runtime.records.admin import terms_of


class LeaderAnswer(Answer, frozen=True, kw_only=True):
    """The leader. ``term``: the fencing token of everything it writes; ``since``: when the term began."""

    id: str
    url: str
    admin_url: str
    term: int
    since: str
    lease_ttl_s: float


class TermItem(Answer, frozen=True, kw_only=True):
    """One term. ``ended_by``: the id of the leader that came after, empty for the one who leads now."""

    term: int
    id: str
    url: str
    began: str
    ended_by: str


class TermsAnswer(Page, frozen=True, kw_only=True):
    """Newest first."""

    items: list[TermItem]


async def leader(desk: Desk, _: Ask[Any, Any]) -> LeaderAnswer:
    """Who leads."""
    seen = desk.leader
    if seen is None:
        raise Refused("no coordinator leads; one is being elected", code="no_leader", status=503, retry_after_s=1)
    record, term = seen
    return LeaderAnswer(
        id=record.identity,
        url=record.url,
        admin_url=record.admin_url,
        term=term,
        since=desk.led_since,
        lease_ttl_s=desk.settings.lease_ttl_s,
    )


async def terms(desk: Desk, ask: Ask[NumberedPageQuery, Any]) -> TermsAnswer:
    """The last terms, one by one: where one ends is where the next begins."""
    records = {
        -record.term: record for record in terms_of(await desk.registry.listed(desk.keys.coordinator_terms_prefix))
    }
    successor = dict(zip(sorted(records)[1:], sorted(records), strict=False))
    keys, more = page(records, ask.query, int)
    items = [
        TermItem(
            term=records[key].term,
            id=records[key].id,
            url=records[key].url,
            began=records[key].began,
            ended_by=records[successor[key]].id if key in successor else "",
        )
        for key in keys
    ]
    return TermsAnswer(items=items, continue_=more)


ROUTES = (
    Route(
        method="GET", path="/v1/leader", role=Role.VIEWER, summary="Who leads", answer=LeaderAnswer, handler=leader,
    ),
    Route(
        method="GET", path="/v1/terms", role=Role.VIEWER, summary="The last terms of leadership: the failovers",
        answer=TermsAnswer, query=NumberedPageQuery, handler=terms, fresh_s=SLOW_FRESH_S,
    ),
)  # fmt: skip
