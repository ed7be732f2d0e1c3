"""What waits, and pausing it all: while paused nothing new is offered, what is under way finishes.

The pause lies in etcd, so it survives a failover; saying again what holds changes nothing.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from services.coordinator.http.desk import Desk
from services.coordinator.inspect.overview import QueuedPod, queue_counts, queue_page
from shared.runtime.http.callers import Role
from shared.runtime.http.pages import (
    NumberedPageQuery,
    Selector,
    key_token,
    selector_of,
    token_key,
)
from shared.runtime.http.routes import SLOW_FRESH_S, Ask, Because, RouteAnswer, RoutePage, row
from shared.runtime.records.control import control_of, set_paused
from shared.scheduling.places import Place
from shared.wire.records import Paused


class QueueQuery(NumberedPageQuery, frozen=True, kw_only=True):
    """``place``: only pods there; ``namespace``: only that one's; ``selector``: only pods with these labels, as
    ``kubectl -l`` writes it. All by default."""

    place: Literal["", "active", "backoff", "unschedulable", "gated", "in_flight"] = ""
    namespace: Annotated[str, msgspec.Meta(max_length=63)] = ""
    selector: Selector = ""


class QueueAnswer(RoutePage, frozen=True, kw_only=True):
    """``counts`` by place, of all pods; items in order of arrival. A page may hold fewer than ``limit``, also none,
    and yet not be the last: ``continue`` tells."""

    counts: dict[str, int]
    items: list[QueuedPod]


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


class SchedulingAnswer(RouteAnswer, frozen=True, kw_only=True):
    """Whether pods are being placed. The other fields say who paused it; empty while it runs. ``obeyed``: the leader
    goes by it; false after a change that it has not heard of in 2 s, and will."""

    paused: bool
    obeyed: bool = True
    by: str = ""
    reason: str = ""
    since: str = ""


def answer_of(paused: Paused | None, *, obeyed: bool = True) -> SchedulingAnswer:
    """As answered."""
    if paused is None:
        return SchedulingAnswer(paused=False, obeyed=obeyed)
    return SchedulingAnswer(paused=True, obeyed=obeyed, by=paused.by, reason=paused.reason, since=paused.since)


async def scheduling(desk: Desk, _: Ask[Any, Any]) -> SchedulingAnswer:
    """Whether scheduling is paused."""
    kv = await desk.store.get(desk.keys.control_paused)
    holds = control_of(desk.keys, [kv] if kv is not None else [])[0]
    core = desk.admin.core
    return answer_of(holds, obeyed=core is not None and (core.state.paused is not None) is (holds is not None))


async def pause(desk: Desk, ask: Ask[Any, Because]) -> SchedulingAnswer:
    """Offer nothing new."""
    return await _set(desk, ask, paused=True)


async def resume(desk: Desk, ask: Ask[Any, Because]) -> SchedulingAnswer:
    """Go on."""
    return await _set(desk, ask, paused=False)


async def _set(desk: Desk, ask: Ask[Any, Because], *, paused: bool) -> SchedulingAnswer:
    holds = await set_paused(
        desk.store, desk.keys, paused, by=ask.caller.title, reason=ask.body.reason, now=desk.wall()
    )
    return answer_of(holds, obeyed=await desk.obeyed(lambda core: (core.state.paused is not None) is paused))


ROUTES = (
    row("GET", "/v1/queue", Role.VIEWER, "Pending pods and why they wait", queue, fresh_s=SLOW_FRESH_S),
)  # fmt: skip


SCHEDULING = (
    row(
        "GET", "/v1/scheduling", Role.VIEWER, "Whether scheduling is paused, by whom and why", scheduling,
        fresh_s=SLOW_FRESH_S,
    ),
    row("POST", "/v1/scheduling/pause", Role.OPERATOR, "Offer nothing new; what is under way finishes", pause),
    row("POST", "/v1/scheduling/resume", Role.OPERATOR, "Go on placing pods", resume),
)  # fmt: skip
